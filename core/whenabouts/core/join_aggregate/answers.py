"""The answers of left rows, from all right rows of a bucket that can matter."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core import metrics
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.join_aggregate.chance_functions import ChanceFunctions
from whenabouts.core.join_aggregate.decided_functions import DecidedFunctions
from whenabouts.core.join_aggregate.exact_sums import Described
from whenabouts.core.join_aggregate.partners import Chosen, PartnerSearch, Run
from whenabouts.core.join_aggregate.right_columns import RightColumns
from whenabouts.core.join_aggregate.settings import JoinAggregateSettings
from whenabouts.core.runtime.blocks import PREFIX, times
from whenabouts.core.runtime.keys import Keys


class Answers(NamedTuple):
    """The aggregates of left rows, one array each; which left rows come out; how many of these have no partner."""

    columns: list[pa.Array]
    kept: BoolArray
    alone: int


def answers_of(
    query: JoinAggregateSettings, keys: Keys, types: pa.Schema, left: pa.Table, right: pa.Table, counts: Counter[str]
) -> Answers:
    """The aggregates of each left row; `types` are their fields. Both are tables of block columns without null keys.

    Adds to `counts`. Cost: that of ordering the rows, O(1) per left row and function, and a kernel call per right row
    that is neither certain nor impossible, whatever the number of pairs; chance functions: see `chance_pieces`.
    """
    search = PartnerSearch(query, keys, left, right)
    columns = columns_of(query, right, search.position, search.right_codes)
    parts: list[list[pa.Array]] = [[] for _ in types]
    kept, alone = [np.ones(0, bool)], 0
    counts[metrics.SURE] += search.sure
    for run in search.runs():
        counts[metrics.PROBED] += run.probed
        decided = (
            None if run.decided is None else DecidedFunctions(columns, run.decided, _describing(left, run.rows.start))
        )
        chance = None
        if run.certain is not None:
            asked = [each for each in query.aggregates if not each.decided]
            sides = search.left, search.right
            chance = ChanceFunctions(asked, columns, sides, search.window, run, query.offsets_us)
        for aggregate, part in zip(query.aggregates, parts, strict=True):
            of = decided if aggregate.decided else chance
            assert of is not None, "it was asked"
            part.append(of.of(aggregate))
        out = _kept(query, run)
        kept.append(out)
        alone += int(np.count_nonzero(out & ~_has_partner(run)))
        if chance is not None:
            counts[metrics.CHANCE_TERMS] += chance.terms
            counts[metrics.NOT_FINITE] += int(np.count_nonzero(chance.not_finite & out))
    found = [_joined(part, field.type) for part, field in zip(parts, types, strict=True)]
    return Answers(found, np.concatenate(kept), alone)


def columns_of(
    query: JoinAggregateSettings, right: pa.Table, position: NDArray[np.int32], codes: IntArray | None
) -> RightColumns:
    """The columns that the functions read, and the times; `position`, `codes`: see `PartnerSearch`."""
    names = [name for name in right.column_names if name.startswith(PREFIX) or name in query.columns]
    return RightColumns(right.select(names), position, codes)


def decided_answers(query: JoinAggregateSettings, left: pa.Table, columns: RightColumns, chosen: Chosen) -> Answers:
    """The answers of decided functions over these right rows of each left row."""
    functions = DecidedFunctions(columns, chosen, _describing(left, 0))
    kept = chosen.counts > 0 if query.how == "inner" else np.ones(left.num_rows, bool)
    return Answers(
        [functions.of(each) for each in query.aggregates], kept, int(np.count_nonzero(kept & (chosen.counts == 0)))
    )


def _joined(parts: list[pa.Array], type_: pa.DataType) -> pa.Array:
    return parts[0] if len(parts) == 1 else pa.concat_arrays([pa.array([], type_), *parts])


def _describing(left: pa.Table, first: int) -> Described:
    """How errors name the left rows of a run that begins with row `first`."""
    return lambda row: f"{first + row}, which ends at {int(times(left)[1][first + row])} us,"


def _kept(query: JoinAggregateSettings, run: Run) -> BoolArray:
    rows = run.rows.stop - run.rows.start
    if query.how == "inner":
        assert run.decided is not None, "an inner join asks for pairs"
        return run.decided.counts > 0
    return np.ones(rows, bool)


def _has_partner(run: Run) -> BoolArray:
    """Which left rows have a possible partner, or if no chance function is asked, a decided one."""
    if run.certain is None:
        assert run.decided is not None, "something is asked"
        return run.decided.counts > 0
    found: BoolArray = run.certain.counts + np.diff(run.uncertain.offsets) > 0
    return found
