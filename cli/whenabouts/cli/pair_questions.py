"""Answers about pairs without running the join, for `--why` and `--explain`."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from whenabouts.cli.inputs import Input
from whenabouts.cli.output_files import output_file
from whenabouts.core import chance_matches, why_not
from whenabouts.core.arrays.value_texts import json_lines
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.explain.pair_answer import PairAnswer, malformed
from whenabouts.core.local import watermarks
from whenabouts.core.timing_join.query import TimingJoin

if TYPE_CHECKING:
    from whenabouts.core.asof_join.query import AsofJoin


class _Row(NamedTuple):
    """One row of an input: its number, itself, and the file it is in (None: its time could not be read)."""

    source: Input
    number: int
    table: pa.Table
    file: int | None

    def __str__(self) -> str:
        return f"{self.source.name} row {self.number}: {json_lines(self.table)[0]}"


def why_lines(
    query: TimingJoin | AsofJoin,
    inputs: tuple[Input, ...],
    *,
    rows: tuple[int, int],
    stream: bool,
    picture: str | None = None,
) -> list[str]:
    """The two rows, and why they are a pair of the result or not; the file `picture` gets a picture of it.

    On a stream each row is judged at the watermark of the step of its file. Rows are counted from 0 over the input's
    files in order. Raises: QueryError WA-2006 for a row number beyond the input.
    """
    pair = [_row(source, number) for source, number in zip(inputs, rows, strict=True)]
    answer = _answer(query, inputs, pair, stream)
    if picture is not None:
        with output_file(picture) as file:
            answer.plot().savefig(file, format=Path(picture).suffix[1:].lower())
    return [*map(str, pair), str(answer)]


def chance_lines(query: TimingJoin, inputs: tuple[Input, ...]) -> list[str]:
    """The number of pairs to expect by chance."""
    left, right = (pa.concat_tables(source.tables) for source in inputs)
    return [f"chance: {chance_matches(left, right, query=query)}"]


def _answer(query: TimingJoin | AsofJoin, inputs: tuple[Input, ...], pair: list[_Row], stream: bool) -> PairAnswer:
    at: list[int | None] = [None, None]
    for side, row in enumerate(pair):
        if row.file is None:
            at_row = row.source.unparsable_at.index(row.number)
            return malformed(row.source.name, row.source.unparsable_codes[at_row])
        if stream:
            at[side] = watermarks(query, [source.tables for source in inputs])[row.file]
    left, right = pair
    if isinstance(query, TimingJoin):
        return why_not(left.table, right.table, query=query, left_watermark_us=at[0], right_watermark_us=at[1])
    source = right.source
    unparsable_before = bisect_right(source.unparsable_at, right.number)
    rows = pa.concat_tables(source.tables)
    number = right.number - unparsable_before
    return why_not(left.table, number, query=query, right=rows, left_watermark_us=at[0], right_watermark_us=at[1])


def _row(source: Input, number: int) -> _Row:
    if number >= source.rows_in:
        there = f"its rows are 0 to {source.rows_in - 1}" if source.rows_in else "it has none"
        raise QueryError(Code.BAD_OPTION, f"--why: the {source.name} input has no row {number}", there)
    lost_before = bisect_right(source.unparsable_at, number)
    if lost_before and source.unparsable_at[lost_before - 1] == number:
        return _Row(source, number, source.unparsable.slice(lost_before - 1, 1), None)
    at = number - lost_before
    starts = list(accumulate((table.num_rows for table in source.tables), initial=0))
    file = bisect_right(starts, at) - 1
    return _Row(source, number, source.tables[file].slice(at - starts[file], 1), file)
