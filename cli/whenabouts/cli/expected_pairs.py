"""An upper bound on the pairs of a join, counted before it runs, as a guard against accidental cross joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.cli.inputs import Input
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.runtime.key_names import Key
from whenabouts.core.runtime.keys import NULL_KEY, Keys
from whenabouts.core.runtime.option_checks import counted
from whenabouts.core.times.conditions import Condition
from whenabouts.core.times.time_specs import TimeSpec


class AtMost(NamedTuple):
    """Upper bounds: all pairs, the pairs of the row that has most, and of the left row that has most."""

    pairs: int
    per_row: int
    per_left_row: int


class KeyedTimes(NamedTuple):
    """The times of an input in microseconds, and codes of its keys, without rows whose key has a null."""

    t_min: IntArray
    t_max: IntArray
    code: IntArray


def at_most(inputs: Sequence[Input], specs: Sequence[TimeSpec], condition: Condition, on: tuple[Key, ...]) -> AtMost:
    """Count the pairs of equal keys whose times can meet the condition with any probability.

    A pair can if and only if `min2 - max1 <= hi` and `max2 - min1 >= lo`. Since `max2 < min1 + lo` implies
    `min2 <= max1 + hi`,
    the count is the difference of two positions in sorted times. Cost: O(n log n) for n rows, no pair is formed.
    """
    left, right = keyed_times(inputs, specs, on)
    right_rows = _count(right.t_min, right.code, left.t_max + condition.hi_us, left.code, "right")
    right_rows -= _count(right.t_max, right.code, left.t_min + condition.lo_us, left.code, "left")
    left_rows = _count(left.t_min, left.code, right.t_max - condition.lo_us, right.code, "right")
    left_rows -= _count(left.t_max, left.code, right.t_min - condition.hi_us, right.code, "left")
    per_left_row = int(right_rows.max(initial=0))
    return AtMost(int(right_rows.sum()), max(per_left_row, int(left_rows.max(initial=0))), per_left_row)


def refuse_over(bound: AtMost, max_pairs: int | None, max_pairs_per_row: int | None) -> None:
    """Raise QueryError WA-2006 if a limit is exceeded."""
    pairs = f"{counted(bound.pairs, 'pair')} {'is' if bound.pairs == 1 else 'are'}"
    partners = counted(bound.per_row, "partner")
    for limit, number, option, what in (
        (max_pairs, bound.pairs, "--max-pairs", f"at most {pairs} expected"),
        (max_pairs_per_row, bound.per_row, "--max-pairs-per-row", f"one row can have {partners}"),
    ):
        if limit is not None and number > limit:
            raise QueryError(
                Code.BAD_OPTION,
                f"{what}, over {option} {limit:,}",
                "join --on a key, narrow the condition, or raise the limit",
            )


def keyed_times(inputs: Sequence[Input], specs: Sequence[TimeSpec], on: tuple[Key, ...]) -> list[KeyedTimes]:
    """The times and keys of both inputs; equal codes mean equal keys."""
    blocks, codes = _keyed_blocks(inputs, specs, on)
    sides = [KeyedTimes(*times(block), code) for block, code in zip(blocks, codes, strict=True)]
    return [KeyedTimes(*(values[side.code != NULL_KEY] for values in side)) for side in sides]


def keyed_blocks(inputs: Sequence[Input], specs: Sequence[TimeSpec], on: tuple[Key, ...]) -> list[pa.Table]:
    """The rows of both inputs with their times in microseconds, without those that have a null in a key."""
    blocks, codes = _keyed_blocks(inputs, specs, on)
    kept = [block.filter(pa.array(code != NULL_KEY)) for block, code in zip(blocks, codes, strict=True)]
    return [block.combine_chunks() for block in kept]


def _keyed_blocks(
    inputs: Sequence[Input], specs: Sequence[TimeSpec], on: tuple[Key, ...]
) -> tuple[list[pa.Table], list[IntArray]]:
    blocks = []
    for index, (source, spec) in enumerate(zip(inputs, specs, strict=True)):
        reader = EventReader(index, source.name, source.schema, spec)
        read = [reader.read(batch).block for table in source.tables for batch in table.to_batches()]
        blocks.append(pa.Table.from_batches(read, reader.block_schema).combine_chunks())
    if not on:
        return blocks, [np.zeros(block.num_rows, np.int64) for block in blocks]
    keys = Keys(on, [block.schema for block in blocks], [source.name for source in inputs])
    return blocks, list(keys.codes(blocks))


def _count(values: IntArray, codes: IntArray, asked: IntArray, asked_codes: IntArray, side: str) -> IntArray:
    """For each time in `asked`, how many `values` of its key are below it (side "left") or not above it ("right").

    Keys and times are combined into one sorted axis; ranks replace times, so that nothing overflows.
    """
    distinct = np.unique(values)
    width = len(distinct) + 1
    axis = np.sort(codes * width + np.searchsorted(distinct, values, side="left") + 1)
    ranks = np.searchsorted(distinct, asked, side=side)  # type: ignore[call-overload]  # "left" or "right"
    found = np.searchsorted(axis, asked_codes * width + ranks, side="right")
    before = np.searchsorted(axis, asked_codes * width, side="right")
    return np.asarray(found - before, np.int64)
