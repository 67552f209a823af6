"""Expands partial combinations stream by stream, in blocks, by index ranges and masks.

Rows are sorted by key and anchor, so the rows of the next stream that fit a partial combination are a range of indices.
A level takes two passes over a block of partial combinations: find and count the ranges, then fill. Remaining tests are
masks over the filled block. Blocks are split so that none exceeds `CANDIDATES_AT_ONCE`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.gather import gathered
from whenabouts.core.arrays.key_time_order import OrderedRows
from whenabouts.core.arrays.large_arrays import large_array, row_numbers
from whenabouts.core.arrays.typing import BoolArray, IntArray, Positions
from whenabouts.core.window_join.expansion_kernels import (
    count_products,
    fill_level,
    fill_periods,
    fill_positions,
    fill_products,
)
from whenabouts.core.window_join.join_orders import ANY, JoinOrder

CANDIDATES_AT_ONCE = 1 << 19
"""How many partial combinations are filled together: bounds memory, and a column of so many fills large pages."""


class StreamRows(NamedTuple):
    """Rows of one stream sorted by (key, anchor): those of key c have indices `starts[c] : starts[c + 1]`.

    `position`: each row's index in the stream's table. `key`: the row's key code, for nested loops, which sort all rows
    under one key; empty if `starts` already groups by key.
    """

    anchor: IntArray
    position: Positions
    starts: IntArray
    key: IntArray

    def at(self, indices: Positions) -> StreamRows:
        """Some of the rows, in the order of the indices, not grouped by key."""
        whole = np.array([0, len(indices)])
        key = self.key[indices] if len(self.key) else self.key
        return StreamRows(self.anchor[indices], self.position[indices], whole, key)

    def only(self, kept: BoolArray) -> StreamRows:
        """The rows where `kept` is true, in the same order. O(rows + keys)."""
        before = np.concatenate(([0], np.cumsum(kept)))
        return StreamRows(
            self.anchor[kept], self.position[kept], before[self.starts], self.key[kept] if len(self.key) else self.key
        )

    def none(self) -> StreamRows:
        """The same without rows."""
        return StreamRows(self.anchor[:0], self.position[:0], np.zeros_like(self.starts), self.key[:0])


def stream_rows(rows: OrderedRows, key: IntArray | None) -> StreamRows:
    """Sorted rows as `StreamRows`; `key`: codes by position, for nested loops."""
    empty = np.empty(0, np.int64)
    return StreamRows(rows.axis, rows.position, rows.starts, empty if key is None else key[rows.position])


@dataclass(slots=True)
class ExpansionCounters:
    """What an expansion did: periods searched, candidate tuples found in them, windows tested."""

    periods: int = 0
    tuple_tests: int = 0
    window_tests: int = 0


Chains: TypeAlias = Sequence[tuple[IntArray, IntArray]]
"""By level from 1 on, for each row of the base: the index of its first candidate among the level's rows, and how many
there are."""

Test = Callable[[int, Positions, Positions], BoolArray]
"""Whether edge number n holds, for row positions of its first and its second stream."""

PairTest = Callable[[Sequence[Positions]], BoolArray]
"""Whether a predicate holds, for row positions by level."""


@dataclass
class Expansion:
    """The combinations of one join order; `rows[l]` are the rows of the stream at level l.

    Internally a row is an index into the concatenated rows of all streams. `expect` receives the number of certain
    combinations before they are made.
    """

    join_order: JoinOrder
    rows: Sequence[StreamRows]
    test: Test
    ends: Sequence[tuple[int, int]]
    pair_tests: Sequence[Sequence[PairTest]] = ()
    counters: ExpansionCounters = field(default_factory=ExpansionCounters)
    expect: Callable[[int], None] | None = None
    _position: Positions = field(init=False)
    _offset: IntArray = field(init=False)

    def __post_init__(self) -> None:
        self._offset = np.cumsum([0, *(len(rows.anchor) for rows in self.rows)])
        out = large_array(int(self._offset[-1]), np.int32)
        self._position = np.concatenate([rows.position for rows in self.rows], out=out)

    @cached_property
    def _anchor(self) -> IntArray:
        out = large_array(int(self._offset[-1]), np.int64)
        return np.concatenate([rows.anchor for rows in self.rows], out=out)

    @cached_property
    def _base_key(self) -> IntArray:
        return np.repeat(np.arange(len(self.rows[0].starts) - 1), np.diff(self.rows[0].starts))

    def combinations(self) -> Iterator[list[Positions]]:
        """Positions in each stream's table, by level, block by block.

        O(base rows + candidates + combinations), plus one galloping search per period.
        """
        if any(not len(rows.anchor) for rows in self.rows):
            return
        yield from self._grow(1, row_numbers(len(self.rows[0].anchor))[None, :], None)

    def of_chains(self, chains: NDArray[np.int32], at: IntArray) -> Iterator[list[Positions]]:
        """As `combinations`, where base row n is joined with all rows of the chains `chains[at[n]]`, one of each other
        stream (`forward_evaluation.Admitted.chains`).

        The base rows need no order. Chains between which nothing is tested are multiplied as they are: the nested
        iteration is counted, and costs nothing where a chain is empty. O(base rows + combinations), and O(candidates)
        where there are tests between.
        """
        column = 2 * np.array(self.join_order.streams[1:])
        base = row_numbers(len(at))[None, :]
        if any(self._tests_at(level) for level in range(1, len(column))):
            yield from self._grow(1, base, self._chains(chains, at, column))
            return
        total = large_array(len(at), np.int64)
        self.counters.tuple_tests += count_products(chains, at, column, CANDIDATES_AT_ONCE, total)
        long = total > CANDIDATES_AT_ONCE
        if long.any():  # level by level, which splits them
            yield from self._grow(1, np.ascontiguousarray(base[:, long]), self._chains(chains, at, column))
            total[long] = 0
        yield from self._multiplied(chains, at, column, total)

    def _chains(self, chains: NDArray[np.int32], at: IntArray, column: IntArray) -> Chains:
        found = []
        for level, first in enumerate(column.tolist(), 1):
            begin, stop = (chains[at, end].astype(np.int64) for end in (first, first + 1))
            found.append((begin + self._offset[level], stop - begin))
        return found

    def _multiplied(
        self, chains: NDArray[np.int32], at: IntArray, column: IntArray, total: IntArray
    ) -> Iterator[list[Positions]]:
        last = len(column)
        tested = self._tests_at(last)
        if self.expect is not None and not tested:
            self.expect(int(total.sum()))
        positions = self._position[:0] if tested else self._position
        for piece in _pieces(total):
            count = int(total[piece].sum())
            out = large_array((last + 1) * count, np.int32).reshape(last + 1, count)
            fill_products(chains, at, piece.start, column, self._offset[1:], total[piece], positions, out)
            if tested:
                out = np.array(self._positions(self._tested(last, out)))
            if out.shape[1]:
                yield list(out)

    def _grow(self, level: int, at: NDArray[np.int32], chains: Chains | None) -> Iterator[list[Positions]]:
        if level == len(self.rows):
            yield self._positions(at)
            return
        if chains is None:
            first, count = self._periods(level, at)
        else:
            first, count = (values.take(at[0], mode="clip") for values in chains[level - 1])
        if self.expect is not None and level == len(self.rows) - 1 and not self._tests_at(level):
            self.expect(int(count.sum()))  # every candidate is a result
        for piece in _pieces(count):
            total = int(count[piece].sum())
            if not total:
                continue
            self.counters.tuple_tests += total
            longer = large_array((level + 1) * total, np.int32).reshape(level + 1, total)
            if level == len(self.rows) - 1 and not self._tests_at(level):
                fill_positions(at, piece.start, first[piece], count[piece], self._position, longer)
                yield list(longer)
                continue
            fill_level(at, piece.start, first[piece], count[piece], longer)
            longer = self._tested(level, longer)
            if longer.shape[1]:
                yield from self._grow(level + 1, longer, chains)

    def _periods(self, level: int, at: NDArray[np.int32]) -> tuple[IntArray, IntArray]:
        """The index of the first candidate, and the number of candidates, of each partial combination at a level."""
        n = at.shape[1]
        first, count = large_array(n, np.int64), large_array(n, np.int64)
        if not n:
            return first, count
        self.counters.periods += n
        bounds = self.join_order.bounds[level]
        bounding = [m for m, bound in enumerate(bounds) if m == 0 or bound != ANY]
        lo, hi = (np.array([bounds[m][end] for m in bounding], np.int64) for end in (0, 1))
        starts = self.rows[level].starts + self._offset[level]
        key = gathered(self._base_key, at[0])
        fill_periods(self._anchor, at, key, starts, lo, hi, np.array(bounding, np.int32), first, count)
        return first, count

    def _tests_at(self, level: int) -> bool:
        return bool(
            len(self.rows[0].key) or self.join_order.tests[level] or (self.pair_tests and self.pair_tests[level])
        )

    def _tested(self, level: int, at: NDArray[np.int32]) -> NDArray[np.int32]:
        """The partial combinations that pass this level's tests, which run one after another."""
        if len(self.rows[0].key):
            codes = [self.rows[of].key[at[of] - self._offset[of]] for of in (0, level)]
            at = _kept(at, codes[0] == codes[1])
        order = self.join_order.streams
        for number in self.join_order.tests[level]:
            self.counters.window_tests += at.shape[1]
            one, other = (order.index(stream) for stream in self.ends[number])
            at = _kept(at, self.test(number, self._position[at[one]], self._position[at[other]]))
        for pair_test in self.pair_tests[level] if self.pair_tests else ():
            if at.shape[1]:
                at = _kept(at, pair_test(self._positions(at)))
        return at

    def _positions(self, at: NDArray[np.int32]) -> list[Positions]:
        return [self._position[indices] for indices in at]


def _kept(at: NDArray[np.int32], mask: BoolArray) -> NDArray[np.int32]:
    return at if mask.all() else np.ascontiguousarray(at[:, mask])


def _pieces(count: IntArray) -> Iterator[slice]:
    """Slices with about `CANDIDATES_AT_ONCE` candidates each, but at least one partial combination."""
    total = np.cumsum(count, out=large_array(len(count), np.int64))
    start = 0
    while start < len(count):
        before = int(total[start - 1]) if start else 0
        stop = int(np.searchsorted(total, before + CANDIDATES_AT_ONCE, side="right"))
        stop = max(stop, start + 1)
        yield slice(start, stop)
        start = stop
