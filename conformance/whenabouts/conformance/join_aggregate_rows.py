"""The output rows of a join aggregate, recomputed from scratch: all pairs of each left row by exact rationals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from whenabouts.conformance import join_aggregate_oracle, join_modes_oracle, multiset, oracle
from whenabouts.conformance.join_modes_oracle import in_order
from whenabouts.conformance.multiset import Bits, Row, Whole
from whenabouts.conformance.oracle import Event
from whenabouts.core.join_aggregate.query import JoinAggregate
from whenabouts.core.runtime.key_names import of_input
from whenabouts.core.timing_join.query import TimingJoin

SIDES = ("left", "right")


def read(query: JoinAggregate, tables: Mapping[str, pa.Table]) -> dict[str, list[Event]]:
    """The usable rows of both inputs."""
    specs = zip(SIDES, (query.left_time, query.right_time), strict=True)
    return {
        side: oracle.read(tables[side], spec, of_input(query.key_columns, input))[0]
        for input, (side, spec) in enumerate(specs)
    }


def partners(query: JoinAggregate, events: Mapping[str, Sequence[Event]]) -> list[list[Event]]:
    """By left row the right rows of its pairs, at the confidence."""
    by_key = oracle.by_key(events["right"])
    return [
        [pair.right for pair in oracle.pairs([left], by_key.get(left.key, ()) if left.key else (), query.condition)]
        for left in events["left"]
    ]


def rows(query: JoinAggregate, tables: Mapping[str, pa.Table], *, timed: bool = False) -> Counter[Row]:
    """The output rows of decided functions; `timed`: of a stream, with `event_time`."""
    return rows_of(query, tables["right"].column_names, read(query, tables), timed=timed)


def rows_of(
    query: JoinAggregate, columns: Sequence[str], events: Mapping[str, Sequence[Event]], *, timed: bool = False
) -> Counter[Row]:
    """The output rows of decided functions over these events; `columns`: those of the right input."""
    tied_by = [index for index, name in enumerate(columns) if name in query.columns]

    def order(event: Event) -> tuple[Any, ...]:
        return (event.t_min + event.t_max, event.t_max, *(in_order(event.values[at]) for at in tied_by))

    found: Counter[Row] = Counter()
    for left, matching in zip(events["left"], partners(query, events), strict=True):
        matching.sort(key=order)
        answers = []
        for each in query.aggregates:
            values = [1 if each.column is None else _plain(row.values[columns.index(each.column)]) for row in matching]
            answers.append(multiset.cell(join_aggregate_oracle.decided(each.function, values)))
        if matching or query.how == "left_outer":
            found[*left.values, *answers, *([settled_us(query, left)] if timed else [])] += 1
    return found


def settled_us(query: JoinAggregate, left: Event) -> int:
    """The watermark from which on no right row to come can be a partner of the left row."""
    if left.key is None:
        return left.t_max
    join = TimingJoin(left_time=query.left_time, right_time=query.right_time, condition=query.reach.condition)
    return left.t_max + _wait_us(join)


@lru_cache
def _wait_us(join: TimingJoin) -> int:
    """How far the watermark has to be ahead of a left row."""
    return join_modes_oracle.final_us(join, "left", 0)


def _plain(value: object) -> Any:
    return value.value if isinstance(value, Bits | Whole) else value
