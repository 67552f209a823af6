"""Inputs of the laws on window joins: small random cases under one query, distinguished by the key column `case`.

Together the datasets have every form of graph, directed and symmetric windows, windows of length 0, streams that run
far ahead of others, equal times, rows that repeat, null keys, faulty rows, and exact and uncertain times side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from whenabouts.conformance import expectations, oracle, window_join_oracle
from whenabouts.conformance.case_tables import SECOND, YEAR_2024, Files, cut, payload, reordered, rng
from whenabouts.conformance.templates import MIXED, TemplateSet
from whenabouts.core import Interval, Point, between, from_clock, within
from whenabouts.core.runtime.key_names import of_input
from whenabouts.core.times.clock_errors import Clock
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.window_join.query import WindowJoin

Kind = tuple[int, int] | TemplateSet | Clock | None
"""Intervals of lengths from the least to the greatest (in seconds), histograms, readings of a clock, or points."""

LATENESS_S = 3


@dataclass(frozen=True)
class WindowJoinProfile:
    """A dataset: its windows, and for each stream its kind of times and how far it runs ahead (seconds)."""

    windows: Mapping[tuple[str, str], Any]
    kinds: Mapping[str, Kind]
    ahead: Mapping[str, int] | None = None
    cases: int = 150
    rows: int = 5
    span: int = 18
    bad: float = 0.0
    keyed: bool = True


def _points(names: str) -> dict[str, Kind]:
    return dict.fromkeys(names)


PROFILES: dict[str, WindowJoinProfile] = {
    "binary": WindowJoinProfile({("a", "b"): "3 s"}, _points("ab")),
    "path": WindowJoinProfile({("a", "b"): "2 s", ("b", "c"): "4 s"}, _points("abc")),
    "directed path": WindowJoinProfile(
        {("a", "b"): ("1 s", "4 s"), ("c", "b"): ("-6 s", "-1 s"), ("c", "d"): ("0 s", "3 s")},
        _points("abcd"), ahead={"d": 6}, rows=6, cases=80,
    ),
    "graph": WindowJoinProfile(
        {("a", "b"): "3 s", ("b", "c"): "5 s", ("c", "d"): ("-2 s", "6 s"), ("d", "a"): "4 s",
         ("b", "a"): ("-1 s", "9 s")},
        _points("abcd"), ahead={"c": 2},
    ),
    "clique": WindowJoinProfile(
        {("a", "b"): "2 s", ("c", "b"): ("-1 s", "7 s"), ("a", "c"): "4 s"}, _points("abc"), rows=6
    ),
    "uniform clique": WindowJoinProfile(
        dict.fromkeys((("a", "b"), ("a", "c"), ("d", "a"), ("b", "c"), ("d", "b"), ("c", "d")), "5 s"),
        _points("abcd"),
    ),
    "same time": WindowJoinProfile({("a", "b"): 0, ("c", "b"): 0, ("a", "c"): "1 s"}, _points("abc"), span=5),
    "no key": WindowJoinProfile(
        {("a", "b"): "2 s", ("b", "c"): ("0 s", "5 s")}, _points("abc"), cases=1, rows=40, span=120, keyed=False
    ),
    "malformed": WindowJoinProfile({("a", "b"): "4 s", ("b", "c"): "4 s"}, _points("abc"), bad=0.2, rows=8),
    "uncertain path": WindowJoinProfile(
        {("a", "b"): within("5 s", confidence=0.5), ("b", "c"): between("-1 s", "8 s", confidence=0.6180339887)},
        {"a": (0, 6), "b": None, "c": MIXED}, cases=100, rows=6,
    ),
    "uncertain clique": WindowJoinProfile(
        {
            ("a", "b"): within("4 s", confidence=0.25), ("b", "c"): within("12 s", confidence=1.0),
            ("a", "c"): between("0 s", "6 s", confidence=0.4), ("c", "a"): between("0 s", "6 s", confidence=0.3),
        },
        {"a": (2, 8), "b": (0, 3), "c": (0, 9)}, cases=120, rows=7,
    ),
    "shared clock": WindowJoinProfile(
        {
            ("a", "b"): between("-1 s", "4 s", confidence=0.3), ("b", "c"): within("3 s", confidence=0.2),
            ("a", "c"): between("-4 s", "2 s", confidence=0.15),
        },
        {
            "a": from_clock("t", offset="2 s", jitter="1 s", domain="camera"), "c": (0, 2),
            "b": from_clock("t", offset="2 s", domain="camera"),
        }, cases=60, rows=6,
    ),
}  # fmt: skip

EXACT = tuple(name for name, profile in PROFILES.items() if not any(profile.kinds.values()))
"""Datasets in which all times are exact."""


@dataclass(frozen=True, eq=False)
class WindowJoinDataset:
    """A query and its inputs, rows in no particular order."""

    name: str
    query: WindowJoin
    tables: Mapping[str, pa.Table]


@lru_cache
def dataset(name: str) -> WindowJoinDataset:
    """The dataset of a profile."""
    profile = PROFILES[name]
    query = WindowJoin(
        times={stream: _spec(kind) for stream, kind in profile.kinds.items()},
        windows=profile.windows,
        on=("case", "k") if profile.keyed else None,
        lateness=f"{LATENESS_S} s",
    )
    return WindowJoinDataset(name, query, {stream: _table(name, stream, profile) for stream in profile.kinds})


def _spec(kind: Kind) -> TimeSpec:
    if kind is None:
        return Point("t")
    if isinstance(kind, TemplateSet):
        return kind.spec(SECOND)
    if isinstance(kind, Clock):
        return kind
    return Interval("t_min", "t_max", max_uncertainty=kind[1] * SECOND, min_uncertainty=kind[0] * SECOND)


def _table(name: str, stream: str, profile: WindowJoinProfile) -> pa.Table:
    random = rng("window join", name, stream)
    case = np.repeat(np.arange(profile.cases), random.integers(0, profile.rows + 1, profile.cases))
    if not profile.keyed:
        case = np.zeros(profile.rows, np.int64)
    start = rng("window join", name).integers(0, 200, profile.cases)[case]
    t = YEAR_2024 + SECOND * (start + random.integers(0, profile.span + 1, len(case)))
    t += SECOND * (profile.ahead or {}).get(stream, 0)
    kind, n = profile.kinds[stream], len(case)
    columns: dict[str, Any] = {"case": case, "k": pa.array(1 + (random.random(n) < 0.15), mask=random.random(n) < 0.05)}
    if kind is None or isinstance(kind, Clock):
        columns["t"] = pa.array(t, mask=random.random(n) < profile.bad)
    elif isinstance(kind, TemplateSet):
        columns |= kind.columns(random, t, profile.bad, pa.int64())
    else:
        columns |= {"t_min": t - SECOND * random.integers(kind[0], kind[1] + 1, n), "t_max": t}
    columns |= {"id": np.arange(n)} | payload(random, n, "left" if stream in "ac" else "right")
    again = random.integers(0, n, n // 10)  # rows that agree in every column
    return pa.table(columns).take(pa.array(random.permutation(np.append(np.arange(n), again))))


def finite(name: str, seed: int = 0) -> dict[str, Files]:
    """A dataset as files of a batch, rows in any order."""
    return _finite(name, seed)


@lru_cache
def _finite(name: str, seed: int) -> dict[str, Files]:
    return {
        stream: (table.take(pa.array(rng(name, stream, seed).permutation(table.num_rows))),)
        for stream, table in dataset(name).tables.items()
    }


@lru_cache
def stream(name: str, files: tuple[int, ...] = (4, 3, 5), seed: int = 0) -> dict[str, Files]:
    """A dataset as files of a stream: rows out of order within the lateness, inputs in different numbers of files."""
    source, cuts = dataset(name), {}
    for index, (input, table) in enumerate(source.tables.items()):
        arriving = reordered(table, source.query.spec(input), LATENESS_S * SECOND, name, input, seed)
        cuts[input] = cut(arriving, files[index % len(files)], name, input, seed)
    return cuts


@lru_cache
def late_stream(name: str) -> dict[str, Files]:
    """A stream whose last files also hold rows of the first ones: far behind any watermark."""
    files = {}
    for input, tables in stream(name, (1,)).items():
        whole = pa.concat_tables(tables)
        parts = [whole.slice(start, len(whole) // 5) for start in range(0, len(whole), len(whole) // 5)]
        files[input] = (parts[0].slice(12), *parts[1:-1], pa.concat_tables([parts[0].slice(0, 12), parts[-1]]))
    return files


def read(query: WindowJoin, tables: Mapping[str, pa.Table]) -> expectations.Inputs:
    """All inputs through the oracle's eyes."""
    keys = {name: of_input(query.key_columns, index) for index, name in enumerate(query.inputs)}
    both = {name: oracle.read(tables[name], query.spec(name), keys[name]) for name in query.inputs}
    return expectations.Inputs({n: both[n][0] for n in both}, {n: both[n][1] for n in both})


@lru_cache
def of_dataset(name: str) -> tuple[expectations.Inputs, window_join_oracle.WindowJoinAnswer]:
    """The answer of a dataset, whatever files its rows are in."""
    source = dataset(name)
    inputs = read(source.query, source.tables)
    return inputs, window_join_oracle.answer(source.query, source.tables, inputs.events)


def rows_of(outcome: Any, query: WindowJoin) -> Any:
    """Output rows without computed columns, as a multiset."""
    from whenabouts.conformance import multiset

    computed = len(computed_columns(query))
    return multiset.rows(outcome.output, outcome.output.column_names[:-computed])


def computed_columns(query: WindowJoin) -> list[str]:
    """Names of the computed columns."""
    asked = [f"probability_{e.first}_{e.second}" for e in query.edges if e.confidence is not None]
    return ["t_first", "t_last", *asked]


def with_options(query: WindowJoin, **options: Any) -> WindowJoin:
    """The query under another algorithm."""
    return replace(query, **options)
