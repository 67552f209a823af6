"""Laws of forward evaluation (FEW): it does what the W-join paper's two modes do, counted tuple by tuple.

    fast  a aa aaa  aa  aa a aaa aa       a slow stream: mode 1 drops what lies in no period with a row of it
    slow        b            b

Rows come in blocks of many, out of order within the lateness: what is counted depends on the rows alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.conformance import case_tables, expectations, multiset, window_join_case_tables, window_join_oracle
from whenabouts.conformance.case_tables import SECOND, YEAR_2024, Files
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.forward_evaluation_oracle import WindowJoinCounts
from whenabouts.conformance.slow_engine_cases import fewer_on_slow_engines
from whenabouts.core import Point
from whenabouts.core.harness import Variant
from whenabouts.core.window_join.query import WindowJoin

LATENESS_S, KEYS = 3, 4


@dataclass(frozen=True)
class StreamKind:
    """Windows, and of each stream the rows per second.

    `tick_s`: times are multiples of it. `gap_s`: streams are silent in turn for so long.
    """

    windows: Mapping[tuple[str, str], Any]
    rates: Mapping[str, float]
    tick_s: float = 0.0
    gap_s: int = 0
    seconds: int = 60
    conservative: str = "auto"
    method: str = "hash"


def _uniform(names: str, width: str) -> dict[tuple[str, str], str]:
    return dict.fromkeys(combinations(names, 2), width)


PATH = {("a", "b"): "1 s", ("b", "c"): ("-2 s", "5 s")}
CASES = {
    "even": StreamKind(_uniform("abc", "2 s"), dict.fromkeys("abc", 4.0)),
    "one slow stream": StreamKind(_uniform("abc", "2 s"), {"a": 8.0, "b": 0.1, "c": 6.0}, method="nested"),
    "all slow": StreamKind(_uniform("abcd", "6 s"), {"a": 0.5, "b": 0.2, "c": 0.3, "d": 0.4}, seconds=240),
    "two": StreamKind(_uniform("ab", "1500 ms"), {"a": 6.0, "b": 3.0}),
    "four": StreamKind(_uniform("abcd", "1 s"), dict.fromkeys("abcd", 5.0)),
    "equal times": StreamKind(_uniform("abc", "2 s"), {"a": 2.0, "b": 1.0, "c": 3.0}, tick_s=1.0),
    "silent in turn": StreamKind(_uniform("abc", "3 s"), dict.fromkeys("abc", 5.0), gap_s=9),
    "at once": StreamKind(_uniform("abc", "0 s"), dict.fromkeys("abc", 3.0), tick_s=0.5),
    "path": StreamKind(PATH, {"a": 5.0, "b": 0.3, "c": 3.0}, conservative="gca"),
    "path, local": StreamKind(PATH, {"a": 5.0, "b": 0.4, "c": 3.0}, conservative="lca"),
    "clique": StreamKind(
        {("a", "b"): "1 s", ("b", "c"): "3 s", ("a", "c"): ("0 s", "9 s")},
        {"a": 3.0, "b": 3.0, "c": 1.0},
        gap_s=7,
        conservative="gca",
    ),
}


def _query(case: str) -> WindowJoin:
    streams = CASES[case]
    return WindowJoin(
        times=dict.fromkeys(streams.rates, Point("t")), windows=streams.windows, on="k", strategy="forward",
        lateness=f"{LATENESS_S} s", conservative=streams.conservative, method=streams.method,
    )  # fmt: skip


@lru_cache
def _files(case: str, seed: int) -> dict[str, Files]:
    streams, files = CASES[case], {}
    for index, (name, rate) in enumerate(streams.rates.items()):
        random = case_tables.rng("forward evaluation", case, name, seed)
        t = random.uniform(0, streams.seconds, random.poisson(rate * streams.seconds) + 1)
        if streams.tick_s:
            t = np.round(t / streams.tick_s) * streams.tick_s
        if streams.gap_s:
            t = t[(t // streams.gap_s).astype(int) % len(streams.rates) != index]
        n = len(t)
        keys = pa.array(random.integers(0, KEYS, n), mask=random.random(n) < 0.02)
        table = pa.table({"k": keys, "t": YEAR_2024 + (t * SECOND).astype(np.int64), "id": np.arange(n)})
        arriving = case_tables.reordered(table, Point("t"), LATENESS_S * SECOND, case, name, seed)
        files[name] = case_tables.cut(arriving, 4 + index, case, name, seed)
    return files


@lru_cache
def _expected(case: str, seed: int) -> WindowJoinCounts:
    counts, query = WindowJoinCounts(), _query(case)
    events = window_join_case_tables.read(query, expectations.whole(_files(case, seed))).events
    conservative = "none" if query.conservative == "auto" else query.conservative
    window_join_oracle.Counting(query, "forward", conservative).block(events, counts)
    return counts


def _counted(outcome: Any) -> WindowJoinCounts:
    return WindowJoinCounts(**{each.name: outcome.metrics[each.name] for each in fields(WindowJoinCounts)})


DENSE = ("even", "two", "four")
"""Cases in which no tuple is older than a period: another one is always near."""

EVERYWHERE = {("one slow stream", 0), ("path, local", 0)}
RUNS = [(case, seed) for case in CASES for seed in range(4)]


@pytest.mark.parametrize(
    ("case", "seed"), [pytest.param(*run, marks=() if run in EVERYWHERE else pytest.mark.similar) for run in RUNS]
)
def test_oracle_counters_of_forward_evaluation(engine: Engine, case: str, seed: int) -> None:
    """On streams both modes of forward evaluation form, shrink, drop, admit and test what the paper's do."""
    outcome = engine.run(_query(case), _files(case, seed), Variant(streaming=True))
    expected = _expected(case, seed)
    assert min(expected.periods_shrunk, expected.tuples_admitted, expected.matched) > 0
    assert expected.tuples_dropped > 0 or case in DENSE
    assert _counted(outcome) == expected


@pytest.mark.parametrize("case", fewer_on_slow_engines(CASES, ["one slow stream"]))
def test_oracle_counters_of_forward_evaluation_on_finite_input(engine: Engine, case: str) -> None:
    """On finite input they count the same as on a stream."""
    whole = {name: (table,) for name, table in expectations.whole(_files(case, 9)).items()}
    assert _counted(engine.run(_query(case), whole)) == _expected(case, 9)


@pytest.mark.parametrize(
    ("case", "step"),
    [("silent in turn", 2), *(pytest.param(case, 1, marks=pytest.mark.similar) for case in CASES)],
)
def test_differential_restart_of_forward_evaluation(engine: Engine, case: str, step: int) -> None:
    """A crash while tuples wait in either mode, in three buckets, changes no combination."""
    query, files = _query(case), _files(case, 1)
    crashed = engine.run(query, files, Variant(streaming=True, parallelism=3, restart_after=step))
    whole = {name: (table,) for name, table in expectations.whole(files).items()}
    multiset.assert_same(
        multiset.rows(crashed.output), multiset.rows(engine.run(query, whole).output), f"a restart in step {step}"
    )
