"""Counts upon a known background as blocks of constant rate: keeps sharp edges, which smooth fits blur.

The partition of the cells that has the greatest likelihood, less a price for each block, by dynamic programming over
its last change (Jackson et al. 2005; Scargle et al. 2013, "Bayesian blocks").
"""

from __future__ import annotations

import numpy as np

from whenabouts.core.arrays.typing import FloatArray

PRICE = 8.0
"""What a block must add to the log likelihood: chance makes one among a thousand cells about once in ten times."""

STEPS = 21


def excess_in_blocks(counts: FloatArray, background: FloatArray, price: float = PRICE) -> FloatArray:
    """What exceeds the background in each cell, even within a block, and never below zero.

    A block of n counts where the background has b < n contributes n ln(n / b) - n + b to the log likelihood and costs
    `price`; other blocks are background, which is free. Cost: O(cells^2).

    >>> excess_in_blocks(np.array([5.0] * 20 + [25.0] * 10 + [5.0] * 20), np.full(50, 5.0))[18:22].tolist()
    [0.0, 0.0, 20.0, 20.0]
    """
    seen = np.concatenate([[0.0], np.cumsum(counts)])
    chance = np.concatenate([[0.0], np.cumsum(np.maximum(background, 1e-9))])
    best = np.zeros(len(counts) + 1)
    begin = np.zeros(len(counts) + 1, np.int64)
    for end in range(1, len(counts) + 1):
        own, even = seen[end] - seen[:end], chance[end] - chance[:end]
        above = np.maximum(own, even)
        gain = own * np.log(above / even) - above + even - price
        value = best[:end] + gain
        begin[end] = int(np.argmax(value))
        best[end] = value[begin[end]]
        if best[end] <= best[end - 1]:  # the last cell is background
            begin[end], best[end] = -1, best[end - 1]
    found = np.zeros(len(counts))
    end = len(counts)
    while end:
        start = int(begin[end])
        if start < 0:
            end -= 1
            continue
        found[start:end] = (seen[end] - seen[start] - (chance[end] - chance[start])) / (end - start)
        end = start
    return found


def share_of_second(
    halves: list[tuple[FloatArray, FloatArray]], counts: list[FloatArray], background: FloatArray
) -> float:
    """How much of the second of two fits and how much of the first predict what was held out best (Smyth and Wolpert
    1999): each pair of `halves` was made from the other one of `counts`, all above half the `background`."""
    shares = np.linspace(0.0, 1.0, STEPS)
    likelihood = np.zeros(STEPS)
    for (first, second), held_out in zip(halves, counts, strict=True):
        for number, share in enumerate(shares):
            rate = np.maximum(background / 2 + (1 - share) * first + share * second, 1e-300)
            likelihood[number] += float((held_out * np.log(rate) - rate).sum())
    return float(shares[int(np.argmax(likelihood))])
