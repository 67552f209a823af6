"""What engines show of a query: one line with its kind, its keys and its conditions."""

from __future__ import annotations

from typing import Any

import pytest

from whenabouts.core import Interval, Lateness, Point, QueryError, between, within
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.errors import Code
from whenabouts.core.hosting.host import require_lateness
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.shared_coalescing.query import SharedCoalescing
from whenabouts.core.temporal_queries.aggregate_query import TemporalAggregate
from whenabouts.core.temporal_queries.join_query import TemporalJoin
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.wrappers.deduplication import deduplicated

PAIRS: Any = {"left_time": Interval("a", "b"), "right_time": Point("t"), "condition": within("2 s", confidence=0.6)}
RUNS: Any = {"time": "t", "group": "room", "values": "lamp"}
PAIR = "-2 s <= right - left <= 2 s with confidence 0.6"

DESCRIBED: list[tuple[Query, str]] = [
    (TimingJoin(**PAIRS), f"inner timing join: {PAIR}"),
    (TimingJoin(**PAIRS, on=["k", "j"], how="left_anti"), f"left_anti timing join on k, j: {PAIR}"),
    (deduplicated(TimingJoin(**PAIRS, on="k"), {"left": "a", "right": "t"}), f"inner timing join on k: {PAIR}"),
    (
        WindowJoin.of(("a", "b"), Point("t"), windows={("a", "b"): between("0 s", "5 s", confidence=1)}, on="k"),
        "window join of a, b on k: 0 us <= b - a <= 5 s with confidence 1",
    ),
    (Coalesce(**RUNS), "coalescing of lamp by room"),
    (Coalesce(**RUNS, rows=5, slide=1), "coalescing of lamp by room, window 5 rows, slide 1"),
    (
        TemporalAggregate(**RUNS, window="1h", slide="5m", aggregates={"n": "count"}),
        "temporal aggregate of lamp by room, window 1 h, slide 5 min",
    ),
    (
        TemporalJoin(**RUNS, window="1h", at=0, on="room"),
        "temporal join of lamp by room, window 1 h, at 0 on room, overlaps",
    ),
    (SharedCoalescing(queries={"mine": Coalesce(**RUNS)}), "mine: coalescing of lamp by room"),
]


@pytest.mark.parametrize(("query", "line"), DESCRIBED, ids=[line for _, line in DESCRIBED])
def test_a_query_is_described_in_a_line(query: Query, line: str) -> None:
    assert query.described == line


def test_lateness_is_one_duration_or_one_for_each_side() -> None:
    forms: list[Any] = ["5 s", 5_000_000, {"left": "5 s", "right": "5 s"}, Lateness("5 s", "5 s")]
    assert len({TimingJoin(**PAIRS, lateness=form) for form in forms}) == 1
    assert TimingJoin(**PAIRS, lateness="5 s").lateness_us == (5_000_000, 5_000_000)
    assert TimingJoin(**PAIRS).lateness is None
    for wrong, code in (({"top": "5 s"}, Code.BAD_OPTION), ("soon", Code.BAD_DURATION), (-1, Code.NEGATIVE_DURATION)):
        with pytest.raises(QueryError) as refused:
            TimingJoin(**PAIRS, lateness=wrong)
        assert refused.value.code == code


def test_lateness_is_required_of_whoever_hosts_a_stream() -> None:
    require_lateness(TimingJoin(**PAIRS, lateness=0))
    with pytest.raises(QueryError, match="WA-2051"):
        require_lateness(TimingJoin(**PAIRS))
