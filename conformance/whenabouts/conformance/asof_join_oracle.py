"""The as-of join of exact times, recomputed from scratch: for each left row a sort of all right rows of its key.

Nothing is shared with the core's algorithms. Right rows of a key are in one total order: time, then `order_by`, then
all columns. Of the eligible ones the greatest prevails looking backward and the least looking forward.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from whenabouts.conformance import multiset, oracle
from whenabouts.conformance.join_modes_oracle import in_order
from whenabouts.conformance.multiset import Row
from whenabouts.conformance.oracle import Event
from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.runtime.key_names import of_input, shared

SIDES = ("left", "right")


class Answer(NamedTuple):
    """A left row and the right row that prevails, None if none does."""

    left: Event
    right: Event | None


def read(query: AsofJoin, tables: Mapping[str, pa.Table]) -> tuple[dict[str, list[Event]], int]:
    """The events of both inputs, and how many rows are refused."""
    events, refused = {}, 0
    for input, (side, spec) in enumerate(zip(SIDES, (query.left_time, query.right_time), strict=True)):
        events[side], bad = oracle.read(tables[side], spec, of_input(query.key_columns, input))
        refused += len(bad)
    return events, refused


def answers(query: AsofJoin, right_columns: Sequence[str], events: Mapping[str, Sequence[Event]]) -> list[Answer]:
    """The answer of each left row. All times must be points."""
    at = [right_columns.index(name) for name in query.ordered_by]

    def order(event: Event) -> tuple[Any, ...]:
        return (event.t_max, *(in_order(event.values[i]) for i in at), *map(in_order, event.values))

    by_key = {key: sorted(rows, key=order) for key, rows in oracle.by_key(events["right"]).items()}
    return [
        Answer(row, None if row.key is None else prevailing(query, row.t_max, by_key.get(row.key, ())))
        for row in events["left"]
    ]


def prevailing(query: AsofJoin, t: int, ordered: Sequence[Event]) -> Event | None:
    """The one of the rows, given in their total order, that prevails at `t`."""
    farthest = float("inf") if query.tolerance_us is None else query.tolerance_us
    eligible = [row for row in ordered if abs(row.t_max - t) <= farthest]
    if not query.allow_exact_matches:
        eligible = [row for row in eligible if row.t_max != t]
    before = next((row for row in reversed(eligible) if row.t_max <= t), None)
    after = next((row for row in eligible if row.t_max >= t), None)
    if query.direction != "nearest":
        return before if query.direction == "backward" else after
    if before is None or after is None:
        return before or after
    return before if t - before.t_max <= after.t_max - t else after


def settled_us(query: AsofJoin, left: Event, right: Sequence[Event]) -> int:
    """The watermark from which on no right row to come can be an answer of the left row. `right`: rows of its key."""
    if left.key is None:
        return left.t_max
    if query.direction == "backward":
        latest = left.t_max
    else:
        assert query.tolerance_us is not None
        exact = left.t_min == left.t_max and not query.allow_exact_matches
        others = [(row.t_min, row.t_max) for row in right if not (exact and row.t_min == row.t_max == left.t_max)]
        if query.direction == "forward":
            surely_after = [end for begin, end in others if begin >= left.t_max]
        else:
            surely_after = [max(end, 2 * left.t_max - begin) for begin, end in others]
        latest = min([*surely_after, left.t_max + query.tolerance_us])
    longest = query.right_time.max_uncertainty_us
    assert longest is not None
    return latest + longest + 1


def rows(query: AsofJoin, tables: Mapping[str, pa.Table], *, timed: bool = False) -> Counter[Row]:
    """The output rows of a join of exact times, with `probability` and `none_probability` if the query has them.

    `timed`: of a stream, with `event_time`.
    """
    return rows_of(query, tables["right"].column_names, read(query, tables)[0], timed=timed)


def rows_of(
    query: AsofJoin, columns: Sequence[str], events: Mapping[str, Sequence[Event]], *, timed: bool = False
) -> Counter[Row]:
    """The output rows for these events; `columns`: those of the right input."""
    found: list[Row] = []
    kept = [index for index, name in enumerate(columns) if name not in shared(query.key_columns)]
    by_key = oracle.by_key(events["right"])
    for left, right in answers(query, columns, events):
        if query.how == ("inner" if right is None else "left_anti"):
            continue
        of_key = () if left.key is None else by_key.get(left.key, ())
        computed: list[Any] = [multiset.cell(0.0 if right else 1.0)] * query.probability
        computed += [settled_us(query, left, of_key)] if timed else []
        partner: Row = tuple(None if right is None else right.values[index] for index in kept)
        if query.how == "left_anti":
            found.append((*left.values, *computed))
        else:
            found.append((*left.values, *partner, *[multiset.cell(right and 1.0)] * query.probability, *computed))
    return Counter(found)
