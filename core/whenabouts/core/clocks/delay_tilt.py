"""Tilts a fitted distribution of delays until its lowest moments are those of the counts.

A fit that ends early keeps something of the distribution with which it began, mostly in its ends. Its distribution
function at a delay is uniform if the fit is right; else the counts show by which smooth factor of it the density is off
(Neyman 1937, "Smooth test for goodness of fit"). Few factors, since each costs as much as one bucket of a histogram.
"""

from __future__ import annotations

import numpy as np

from whenabouts.core.arrays.typing import FloatArray

ORDER = 4
"""The factor is the exponential of a polynomial of this degree in the distribution function."""

ROUNDS = 30
LONGEST_STEP, CONVERGED = 0.5, 1e-6
STEEPEST = 5.0


def tilted(masses: FloatArray, counts: FloatArray, background: FloatArray, pairs: float) -> FloatArray:
    """The masses by cell (with sum 1), tilted: the maximum likelihood of Poisson counts with the expectation
    `background + pairs masses exp(polynomial)`, by Fisher scoring. The masses as they are if that finds none. O(cells).

    >>> even, sloped = np.full(50, 0.02), np.linspace(0.01, 0.03, 50)
    >>> found = tilted(even, 10 + 5_000 * sloped, np.full(50, 10.0), 5_000)
    >>> float(np.abs(np.cumsum(found) - np.cumsum(sloped)).max()) < 0.001
    True
    """
    at = np.cumsum(masses) - masses / 2
    terms = np.polynomial.legendre.legvander(2 * at - 1, ORDER) * np.sqrt(2 * np.arange(ORDER + 1) + 1)
    found = np.zeros(ORDER + 1)
    for _ in range(ROUNDS):
        true = pairs * masses * np.exp(np.clip(terms @ found, -STEEPEST, STEEPEST))
        expected = background + true
        information = (terms * (true * true / expected)[:, None]).T @ terms
        ridge = max(1e-6 * float(np.trace(information)) / len(found), 1e-12)
        step = np.linalg.solve(information + ridge * np.eye(len(found)), terms.T @ ((counts / expected - 1) * true))
        longest = float(np.abs(step).max())
        found += step * min(1.0, LONGEST_STEP / max(longest, 1e-300))
        if longest < CONVERGED:
            tilt = masses * np.exp(np.clip(terms @ found, -STEEPEST, STEEPEST))
            return np.asarray(tilt / max(float(tilt.sum()), 1e-300))
    return masses
