"""The answers of left rows, from all right rows of a bucket that can matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import chunks_of, one_chunk, take_rows
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.join_aggregate.chance_functions import ChanceFunctions
from whenabouts.core.join_aggregate.decided_functions import DecidedFunctions, Values
from whenabouts.core.join_aggregate.exact_sums import Described
from whenabouts.core.join_aggregate.folded import Folded
from whenabouts.core.join_aggregate.functions import Aggregate
from whenabouts.core.join_aggregate.mark_columns import is_of_chance, parts_of
from whenabouts.core.join_aggregate.partners import Chosen, PartnerSearch
from whenabouts.core.join_aggregate.right_columns import RightColumn, RightColumns
from whenabouts.core.join_aggregate.settings import JoinAggregateSettings
from whenabouts.core.runtime.blocks import PREFIX, times
from whenabouts.core.runtime.keys import Keys


class Answers(NamedTuple):
    """The aggregates of left rows, one array each; which left rows come out; how many of these have no partner."""

    columns: list[pa.ChunkedArray]
    kept: BoolArray
    alone: int


def answers_of(
    query: JoinAggregateSettings, keys: Keys, types: pa.Schema, left: pa.Table, right: pa.Table, counts: Counter[str]
) -> Answers:
    """The aggregates of each left row; `types` are their fields. Both are tables of block columns without null keys.

    Left rows may have the marks of right rows that were folded. Adds to `counts`. Cost: that of ordering the rows, O(1)
    per left row and function, and a kernel call per right row that is neither certain nor impossible, whatever the
    number of pairs; chance functions: see `chance_pieces`.
    """
    parts: list[list[pa.Array]] = [[] for _ in types]
    kept, alone = [np.ones(0, bool)], 0
    for functions in _functions(query, keys, left, right, Folded.beside(left), counts):
        for aggregate, part in zip(query.aggregates, parts, strict=True):
            part += chunks_of(functions.of(aggregate).of(aggregate))
        partner = functions.has_partner
        out = functions.has_pair if query.how == "inner" else np.ones(len(partner), bool)
        kept.append(out)
        alone += int(np.count_nonzero(out & ~partner))
        if functions.chance is not None:
            counts[metrics.CHANCE_TERMS] += functions.chance.terms
            counts[metrics.NOT_FINITE] += int(np.count_nonzero(functions.chance.not_finite & out))
    found = [pa.chunked_array(part, field.type) for part, field in zip(parts, types, strict=True)]
    return Answers(found, np.concatenate(kept), alone)


def marks_with(
    query: JoinAggregateSettings, keys: Keys, marks: pa.Schema, left: pa.Table, right: pa.Table, counts: Counter[str]
) -> pa.RecordBatch:
    """The marks of left rows once these right rows are folded, too. Arguments and cost: as `answers_of`."""
    names = parts_of(marks)
    parts: list[list[pa.Array]] = [[] for _ in names]
    folded = Folded.beside(left) or Folded.nothing(marks, left.num_rows)
    for functions in _functions(query, keys, left, right, folded, counts):
        for name, part in zip(names, parts, strict=True):
            part += chunks_of(functions.part(name))
    arrays = [one_chunk(pa.chunked_array(part, type_)) for part, type_ in zip(parts, marks.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=marks)


class _Functions(NamedTuple):
    """The functions of a run of left rows, of each family None if none is asked."""

    decided: DecidedFunctions | None
    chance: ChanceFunctions | None

    def of(self, aggregate: Aggregate) -> DecidedFunctions | ChanceFunctions:
        """The family of an aggregate."""
        family = self.decided if aggregate.decided else self.chance
        assert family is not None, "it was asked"
        return family

    def part(self, name: str) -> Values:
        """A part of the marks."""
        family = self.chance if is_of_chance(name) else self.decided
        assert family is not None, "it was asked"
        return family.part(name)

    @property
    def has_pair(self) -> BoolArray:
        """Which left rows have a partner that reaches the confidence."""
        assert self.decided is not None, "an inner join asks for pairs"
        return self.decided.counts > 0

    @property
    def has_partner(self) -> BoolArray:
        """Which left rows have a possible partner, or if no chance function is asked, a decided one."""
        return self.has_pair if self.chance is None else self.chance.possible > 0


def _functions(
    query: JoinAggregateSettings,
    keys: Keys,
    left: pa.Table,
    right: pa.Table,
    folded: Folded | None,
    counts: Counter[str],
) -> Iterator[_Functions]:
    """The functions of all left rows, run by run; counts the pairs that are sure and those that are probed."""
    search = PartnerSearch(query, keys, left, right)
    columns = columns_of(query, right, search.position, search.right_codes)
    counts[metrics.SURE] += search.sure
    asked = [each for each in query.aggregates if not each.decided]
    clocks = _clocks(query.clock_column, right, search)
    for run in search.runs():
        counts[metrics.PROBED] += run.probed
        of_run = None if folded is None else folded[run.rows]
        decided = chance = None
        if run.decided is not None:
            decided = DecidedFunctions(columns, run.decided, _describing(left, run.rows.start), of_run)
        if run.certain is not None:
            sides = search.left, search.right
            chance = ChanceFunctions(asked, columns, sides, search.window, run, query.offsets_us, of_run, clocks)
        yield _Functions(decided, chance)


def columns_of(
    query: JoinAggregateSettings, right: pa.Table, position: NDArray[np.int32], codes: IntArray | None
) -> RightColumns:
    """The columns that the functions read, and the times; `position`, `codes`: see `PartnerSearch`."""
    names = [name for name in right.column_names if name.startswith(PREFIX) or name in query.columns]
    return RightColumns(right.select(names), position, codes)


def _clocks(name: str | None, right: pa.Table, search: PartnerSearch) -> IntArray | None:
    """The clock of each right row in the order of the search, if they are readings of several: its rank by name, so
    that neither files nor buckets decide in which order clocks are taken."""
    if name is None:
        return None
    column = right.column(name)
    ordered = take_rows(column, search.position) if len(column) else one_chunk(column)
    return RightColumn(name, ordered).ranks


def decided_answers(query: JoinAggregateSettings, left: pa.Table, columns: RightColumns, chosen: Chosen) -> Answers:
    """The answers of decided functions over these right rows of each left row."""
    functions = DecidedFunctions(columns, chosen, _describing(left, 0))
    kept = chosen.counts > 0 if query.how == "inner" else np.ones(left.num_rows, bool)
    found = [pa.chunked_array(chunks_of(functions.of(each))) for each in query.aggregates]
    return Answers(found, kept, int(np.count_nonzero(kept & (chosen.counts == 0))))


def _describing(left: pa.Table, first: int) -> Described:
    """How errors name the left rows of a run that begins with row `first`."""
    return lambda row: f"{first + row}, which ends at {int(times(left)[1][first + row])} us,"
