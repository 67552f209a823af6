"""Kernels of exact sums: numbers as digits of base 2^32 on one global grid, and sums of digits.

Limb k has the weight 2^(32 k - 1152), so every finite double is three digits on consecutive limbs, and limb `UNIT`
has weight 1. A sum is one int64 per limb. Adding never carries: 2^30 digits below 2^32 fit. Differences of prefix sums
are exact even if the prefixes themselves wrap around, as long as the difference fits.

A row of cells is one sum. Its columns are named by `columns`: first the number of values, then counts of values that
are no finite number, then the limbs that occur, in ascending order.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    BOOL,
    FLOAT64,
    FOUR_INT64,
    INT64,
    READ_BOOL,
    READ_FLOAT64,
    READ_INT32,
    READ_INT64,
    READ_INT64_2D,
    WRITE_FLOAT64,
    WRITE_INT32,
    WRITE_INT64,
    WRITE_INT64_2D,
    compiled,
)
from whenabouts.core.arrays.typing import BoolArray, FloatArray, IntArray

LIMBS = 69
"""Limbs of doubles. Integers of 256 bits take limbs `UNIT` to `UNIT + 7`."""

UNIT = 36
"""The limb of weight 1."""

ROOM = LIMBS + 2
"""Limbs of a sum: 2^31 doubles carry into one more, and the last has the sign."""

# What a row can be besides a number with digits, and the columns that count them. VALUES counts all but nulls, and is
# the kind of a positive zero.
VALUES, NEGATIVE_ZERO, NOT_A_NUMBER, INFINITY, NEGATIVE_INFINITY, NULL = range(ROOM, ROOM + 6)
KINDS = ROOM + 6

MOST_VALUES = 1 << 30
"""How many digits of 32 bits an int64 can add up, either sign, with a bit to spare."""

_MASK = (1 << 32) - 1

_ONE_BIT = np.uint64(1)


@compiled(FOUR_INT64(FLOAT64), inline=True)
def split(value: float) -> tuple[int, int, int, int]:
    """The lowest limb and the three signed digits of a finite double."""
    bits = int(np.float64(value).view(np.int64))
    exponent = (bits >> 52) & 0x7FF
    whole = bits & 0xFFFFFFFFFFFFF
    if exponent:
        whole |= 0x10000000000000
    else:
        exponent = 1
    place = exponent + 77  # the value is whole * 2^(place - 1152)
    shift = place & 31
    low = (whole & _MASK) << shift
    high = ((whole >> 32) << shift) + (low >> 32)
    sign = -1 if bits < 0 else 1
    return place >> 5, sign * (low & _MASK), sign * (high & _MASK), sign * (high >> 32)


@compiled((READ_FLOAT64, READ_BOOL, WRITE_INT32, WRITE_INT64_2D))
def fill_float_digits(values: FloatArray, valid: BoolArray, limb: NDArray[np.int32], digit: IntArray) -> None:
    """Digits of doubles; `valid` may be empty if all are."""
    for i in range(values.size):
        value = values[i]
        digit[i, 0] = digit[i, 1] = digit[i, 2] = 0
        if valid.size and not valid[i]:
            limb[i] = NULL
        elif value == 0.0:
            negative = np.float64(value).view(np.int64) != 0
            limb[i], digit[i, 0] = (NEGATIVE_ZERO, 1) if negative else (VALUES, 0)
        elif math.isfinite(value):
            limb[i], digit[i, 0], digit[i, 1], digit[i, 2] = split(value)
        else:
            digit[i, 0] = 1
            limb[i] = NOT_A_NUMBER if math.isnan(value) else (INFINITY if value > 0.0 else NEGATIVE_INFINITY)


@compiled((READ_INT32, READ_INT64_2D, READ_INT64, INT64, INT64, WRITE_INT64_2D, INT64), inline=True)
def _add(
    limb: NDArray[np.int32], digit: IntArray, slot: IntArray, first: int, last: int, cells: IntArray, to: int
) -> None:
    """Add rows `first..last` to one sum."""
    for j in range(first, last):
        kind = limb[j]
        at = slot[kind]
        cells[to, 0] += kind != NULL
        for d in range(digit.shape[1]):
            cells[to, at + d] += digit[j, d]


@compiled((READ_INT32, READ_INT64_2D, READ_INT64, INT64, WRITE_INT64_2D))
def fill_prefix(limb: NDArray[np.int32], digit: IntArray, slot: IntArray, step: int, prefix: IntArray) -> None:
    """`prefix[b]` is the sum of the first `b * step` rows; the first row of `prefix` must be zeros."""
    for b in range(1, prefix.shape[0]):
        for c in range(prefix.shape[1]):
            prefix[b, c] = prefix[b - 1, c]
        _add(limb, digit, slot, (b - 1) * step, b * step, prefix, b)


@compiled((
    READ_INT32, READ_INT64_2D, READ_INT64, READ_INT64_2D, READ_INT64, INT64, READ_INT64, READ_INT64, WRITE_INT64_2D,
))  # fmt: skip
def add_ranges(
    limb: NDArray[np.int32],
    digit: IntArray,
    slot: IntArray,
    prefix: IntArray,
    prefix_slot: IntArray,
    step: int,
    start: IntArray,
    stop: IntArray,
    cells: IntArray,
) -> None:
    """Add the rows `start[i] : stop[i]` to sum i: a difference of prefixes, and the rows of the blocks that are cut.

    `slot` and `prefix_slot`: the cell of each kind of row, and of each column of the prefixes.
    """
    for i in range(start.size):
        first, last = start[i], stop[i]
        if first >= last:
            continue
        low, high = (first + step - 1) // step, last // step
        if low > high:
            _add(limb, digit, slot, first, last, cells, i)
            continue
        for c in range(prefix.shape[1]):
            cells[i, prefix_slot[c]] += prefix[high, c] - prefix[low, c]
        _add(limb, digit, slot, first, low * step, cells, i)
        _add(limb, digit, slot, high * step, last, cells, i)


@compiled((READ_INT32, READ_INT64_2D, READ_INT64, READ_INT64, WRITE_INT64_2D))
def add_rows(limb: NDArray[np.int32], digit: IntArray, slot: IntArray, offsets: IntArray, cells: IntArray) -> None:
    """Add the rows `offsets[i] : offsets[i + 1]` to sum i."""
    for i in range(offsets.size - 1):
        _add(limb, digit, slot, offsets[i], offsets[i + 1], cells, i)


@compiled(BOOL(WRITE_INT64, INT64, INT64), inline=True)
def carry(scratch: IntArray, first: int, last: int) -> bool:
    """Make the limbs `first..last` digits from 0 to 2^32 - 1 of the sum's size; returns whether the sum is negative.

    The last two limbs must be empty: they take the carries.
    """
    over = 0
    for k in range(first, last + 1):
        total = scratch[k] + over
        scratch[k] = total & _MASK
        over = total >> 32
    if over >= 0:
        return False
    over = 1
    for k in range(first, last + 1):
        total = _MASK - scratch[k] + over
        scratch[k] = total & _MASK
        over = total >> 32
    return True


@compiled(FLOAT64(READ_INT64, INT64, INT64), inline=True)
def nearest(scratch: IntArray, first: int, last: int) -> float:
    """The double nearest to the number with these digits, ties to even; infinity beyond the greatest double."""
    top = last
    while top >= first and scratch[top] == 0:
        top -= 1
    if top < first:
        return 0.0
    head = scratch[top]
    middle = scratch[top - 1] if top > first else 0
    low = scratch[top - 2] if top > first + 1 else 0
    width = 0  # bits of the head
    while width < 32 and head >> width:
        width += 1
    # 64 bits: all of the head and what fits of the next two digits. The conversion below rounds them to 53, and the
    # lowest bit says whether anything is below. Results that are subnormal have fewer bits, so they are exact.
    kept = (np.uint64(head) << np.uint64(64 - width)) | (np.uint64(middle) << np.uint64(32 - width))
    kept |= np.uint64(low) >> np.uint64(width)
    rest = low & ((1 << width) - 1)
    k = top - 3
    while rest == 0 and k >= first:
        rest = scratch[k]
        k -= 1
    if rest:
        kept |= _ONE_BIT
    return math.ldexp(float(kept), int(32 * top - 1152 + width - 64))


@compiled((READ_INT64, READ_INT64_2D, INT64, INT64, WRITE_INT64_2D))
def fill_digits(columns: IntArray, cells: IntArray, first: int, last: int, out: IntArray) -> None:
    """The digits of each sum on the limbs `first..last`, below 2^32 in size and all of the sum's sign."""
    scratch = np.zeros(KINDS, np.int64)
    for i in range(cells.shape[0]):
        for k in range(first, last + 1):
            scratch[k] = 0
        for c in range(columns.size):
            scratch[columns[c]] = cells[i, c]
        sign = -1 if carry(scratch, first, last) else 1
        for k in range(first, last + 1):
            out[i, k - first] = sign * scratch[k]


@compiled((READ_INT64, READ_INT64_2D, INT64, INT64, WRITE_FLOAT64))
def fill_nearest(columns: IntArray, cells: IntArray, first: int, last: int, out: FloatArray) -> None:
    """The double nearest to each sum (see `ExactSums.to_floats`)."""
    scratch = np.zeros(KINDS, np.int64)
    for i in range(out.size):
        for k in range(first, last + 1):
            scratch[k] = 0
        for k in range(ROOM, KINDS):
            scratch[k] = 0
        for c in range(columns.size):
            scratch[columns[c]] = cells[i, c]
        if scratch[NOT_A_NUMBER] or (scratch[INFINITY] and scratch[NEGATIVE_INFINITY]):
            out[i] = math.nan
        elif scratch[INFINITY]:
            out[i] = math.inf
        elif scratch[NEGATIVE_INFINITY]:
            out[i] = -math.inf
        elif scratch[VALUES] and scratch[NEGATIVE_ZERO] == scratch[VALUES]:
            out[i] = -0.0
        else:
            negative = carry(scratch, first, last)
            size = nearest(scratch, first, last)
            out[i] = -size if negative else size
