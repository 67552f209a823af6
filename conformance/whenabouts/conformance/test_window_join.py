"""Laws of the window join: one set of combinations, whatever the algorithm, the order of arrival or of arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.conformance import expectations, multiset, window_join_oracle
from whenabouts.conformance import window_join_case_tables as case_tables
from whenabouts.conformance.case_tables import SECOND, YEAR_2024, Files
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.forward_evaluation_oracle import WindowJoinCounts
from whenabouts.conformance.oracle import Event
from whenabouts.conformance.slow_engine_cases import fewer_on_slow_engines
from whenabouts.conformance.window_join_case_tables import with_options
from whenabouts.conformance.window_join_oracle import Counting
from whenabouts.core import Interval, Point, within
from whenabouts.core.harness import Variant
from whenabouts.core.local import Outcome
from whenabouts.core.runtime.key_names import shared
from whenabouts.core.window_join.graph import Edge
from whenabouts.core.window_join.query import WindowJoin

STREAM = Variant(streaming=True)
ALGORITHMS = [(s, c, m) for s in ("backward", "forward") for c in ("none", "lca", "gca") for m in ("hash", "nested")]
UNIFORM = ("binary", "uniform clique")
"""Graphs with one window, which forward evaluation needs if it is not conservative."""
EVERYWHERE = {
    ("uniform clique", "forward", "none", "hash"), ("graph", "backward", "lca", "nested"),
    ("uncertain clique", "forward", "gca", "hash"),
}  # fmt: skip
"""Cases that run on every engine; the others are similar to them."""


def _algorithm(name: str, *how: str) -> Any:
    return pytest.param(name, *how, marks=[] if (name, *how) in EVERYWHERE else [pytest.mark.similar])


def _exists(name: str, strategy: str, conservative: str) -> bool:
    return strategy == "backward" or conservative != "none" or name in UNIFORM


def _of(how: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(("strategy", "conservative", "method"), how, strict=True))


@pytest.mark.parametrize(
    ("dataset", "strategy", "conservative", "method"),
    [
        _algorithm(name, *how)
        for name in case_tables.PROFILES
        for how in ALGORITHMS
        if (how[2] == "hash" or how[1] != "lca" or name == "graph") and _exists(name, *how[:2])
    ],
)
def test_oracle_combinations(engine: Engine, dataset: str, strategy: str, conservative: str, method: str) -> None:
    """Every algorithm gives the combinations of brute force, with their multiplicity and all columns."""
    query = with_options(
        case_tables.dataset(dataset).query, strategy=strategy, conservative=conservative, method=method
    )
    outcome = engine.run(query, case_tables.finite(dataset))
    _, answer = case_tables.of_dataset(dataset)
    assert answer.rows, "the dataset has no combination"
    multiset.assert_same(case_tables.rows_of(outcome, query), answer.rows, "combinations", {"query": query})


@pytest.mark.parametrize(
    ("dataset", "strategy"),
    [
        pytest.param("directed path", "backward", marks=pytest.mark.canary),
        *(
            pytest.param(name, strategy, marks=pytest.mark.similar)
            for name in case_tables.PROFILES
            for strategy in ("backward", "forward")
            if (name, strategy) != ("directed path", "backward")
        ),
    ],
)
def test_oracle_combinations_on_streams(engine: Engine, dataset: str, strategy: str) -> None:
    """With rows out of order within the lateness the combinations are those of brute force, and no row is late."""
    query = with_options(case_tables.dataset(dataset).query, strategy=strategy)
    outcome = engine.run(query, case_tables.stream(dataset), STREAM)
    inputs, answer = case_tables.of_dataset(dataset)
    multiset.assert_same(case_tables.rows_of(outcome, query), answer.rows, "combinations", {"query": query})
    assert outcome.rejects.num_rows == sum(map(len, inputs.refused.values()))
    assert outcome.metrics["rows_late"] == 0


@pytest.mark.parametrize("dataset", fewer_on_slow_engines(case_tables.PROFILES, ["uncertain path"]))
def test_oracle_combination_columns(engine: Engine, dataset: str) -> None:
    """Columns come in the promised order; the first and last instant and each edge's probability are right."""
    query, tables = case_tables.dataset(dataset).query, case_tables.dataset(dataset).tables
    outcome = engine.run(query, case_tables.finite(dataset))
    _, answer = case_tables.of_dataset(dataset)
    computed = case_tables.computed_columns(query)
    multiset.assert_same_columns(outcome.output.schema, _schema(query, tables, computed), "a window join")
    names = outcome.output.column_names[: -len(computed)]
    keys = zip(*(multiset.cells(outcome.output.column(name)) for name in names), strict=True)
    values = zip(*(multiset.cells(outcome.output.column(name)) for name in computed), strict=True)
    for row, (first, last, *probabilities) in zip(keys, values, strict=True):
        assert (first, last) == (answer.first_us[row], answer.last_us[row])
        for value, exact in zip(probabilities, answer.probabilities[row], strict=True):
            assert abs(Fraction(value.value) - exact.exact) <= Fraction(1, 10**12)


def _schema(query: WindowJoin, tables: Mapping[str, pa.Table], computed: list[str]) -> pa.Schema:
    """Every stream's columns, keys once, clashing names with the stream's name behind them."""
    kept = {
        name: [f for f in tables[name].schema if index == 0 or f.name not in shared(query.key_columns)]
        for index, name in enumerate(query.inputs)
    }
    owners = Counter(field.name for fields in kept.values() for field in fields)
    fields = [
        field.with_name(field.name + (f"_{name}" if owners[field.name] > 1 else ""))
        for name, of_stream in kept.items()
        for field in of_stream
    ]
    time = pa.timestamp("us", "UTC")
    types = [time if name in ("t_first", "t_last") else pa.float64() for name in computed]
    return pa.schema([*fields, *map(pa.field, computed, types)])


@pytest.mark.parametrize(
    "dataset", fewer_on_slow_engines(["uncertain path", "uncertain clique", "shared clock"], ["uncertain clique"])
)
def test_oracle_joint_probability(engine: Engine, dataset: str) -> None:
    """The probability that all windows hold is within 1e-6 of exact rationals, of a clock's readings within 1e-12 of
    the mixture over its offset, and at most that of each window."""
    query, tables = replace(case_tables.dataset(dataset).query, joint=True), case_tables.dataset(dataset).tables
    outcome = engine.run(query, case_tables.finite(dataset))
    exact: dict[tuple[Any, ...], Fraction] = {}
    for combination in window_join_oracle.combinations(query, case_tables.read(query, tables).events):
        placed = dict(zip(query.inputs, combination, strict=True))
        ids = tuple(tables[name].column_names.index("id") for name in query.inputs)
        key = tuple(event.values[at] for event, at in zip(combination, ids, strict=True))
        exact.setdefault(key, window_join_oracle.probability_of_all(query, placed, SECOND))
    columns = [*(f"id_{name}" for name in query.inputs), *case_tables.computed_columns(query)[2:], "probability"]
    seen = set()
    error, above = (1e-12, 1e-3) if dataset == "shared clock" else (1e-6, 1e-9)  # the tolerance of a clock's template
    for row in zip(*(outcome.output.column(name).to_pylist() for name in _few(columns)), strict=True):
        ids_of_row, windows, p = row[:3], row[3:5], row[5]
        seen.add(ids_of_row)
        assert abs(Fraction(p) - exact[ids_of_row]) <= Fraction(error)
        assert p <= min(windows) + above
    assert seen == set(exact)


@pytest.mark.parametrize("streaming", [pytest.param(False, marks=pytest.mark.similar), True])
def test_oracle_pair_predicates(engine: Engine, streaming: bool) -> None:
    """A SQL condition on two streams' columns keeps the combinations of brute force for which it is true."""
    asked = {("a", "b"): "a.id < b.id OR b.id IN (1, 2)", ("c", "a"): "c.id / 2 <> a.id - 1"}
    query = with_options(case_tables.dataset("path").query, predicates=asked)
    files = case_tables.stream("path") if streaming else case_tables.finite("path")
    outcome = engine.run(query, files, Variant(streaming=streaming))
    tables = case_tables.dataset("path").tables
    at = [tables[name].column_names.index("id") for name in query.inputs]
    found = window_join_oracle.combinations(query, case_tables.read(query, tables).events)
    ids = [tuple(event.values[index] for event, index in zip(of, at, strict=True)) for of in found]
    expected = Counter((a, b, c) for a, b, c in ids if (a < b or b in (1, 2)) and c != 2 * (a - 1))
    assert 0 < expected.total() < len(ids)
    columns = [outcome.output.column(f"id_{name}").to_pylist() for name in query.inputs]
    assert Counter(zip(*columns, strict=True)) == expected


def _few(columns: list[str]) -> list[str]:
    """The ids, two of the windows' probabilities and the joint one."""
    return [*columns[:5], columns[-1]]


@pytest.mark.parametrize(
    ("dataset", "streaming"),
    [
        ("uncertain path", False),
        *(pytest.param(name, True, marks=pytest.mark.similar) for name in case_tables.PROFILES),
    ],
)
def test_differential_argument_orders(engine: Engine, dataset: str, streaming: bool) -> None:
    """The order of the streams, of the windows and of the two names in a window changes no bit of a row."""
    query = case_tables.dataset(dataset).query
    files = case_tables.stream(dataset) if streaming else case_tables.finite(dataset)
    pairs = {(edge.first, edge.second) for edge in query.edges}
    flipped = [
        edge if (edge.second, edge.first) in pairs
        else Edge(edge.second, edge.first, -edge.hi_us, -edge.lo_us, edge.confidence)
        for edge in reversed(query.edges)
    ]  # fmt: skip
    other = replace(query, times=tuple(reversed(query.times)), windows=tuple(flipped))
    variant = Variant(streaming=streaming)
    usual = engine.run(query, files, variant).output
    turned = engine.run(other, {name: files[name] for name in other.inputs}, variant).output
    names = {name: name if name in turned.column_names else _turned(name) for name in usual.column_names}
    multiset.assert_same(
        multiset.rows(turned, list(names.values())), multiset.rows(usual, list(names)), "turned arguments"
    )


def _turned(name: str) -> str:
    parts = name.split("_")
    return "_".join((parts[0], parts[2], parts[1])) if parts[0] == "probability" else name


@pytest.mark.parametrize(
    ("dataset", "files", "seed", "strategy"),
    [
        ("graph", (2, 6, 3), 2, "forward"),
        *(pytest.param(name, (1, 5), 1, "backward", marks=pytest.mark.similar) for name in case_tables.PROFILES),
        *(pytest.param(name, (7, 3, 2), 3, "forward", marks=pytest.mark.similar) for name in case_tables.PROFILES),
    ],
)
def test_differential_arrivals_of_combinations(
    engine: Engine, dataset: str, files: tuple[int, ...], seed: int, strategy: str
) -> None:
    """Another order of arrival within the lateness, split into other files, in three buckets, gives the same rows."""
    query = with_options(case_tables.dataset(dataset).query, strategy=strategy)
    usual = engine.run(query, case_tables.finite(dataset)).output
    other = engine.run(query, case_tables.stream(dataset, files, seed), Variant(streaming=True, parallelism=3)).output
    multiset.assert_same(multiset.rows(other), multiset.rows(usual), f"{files} files in order {seed}")


@pytest.mark.hosting
@pytest.mark.parametrize(
    ("dataset", "strategy", "step"),
    [
        pytest.param("malformed", "forward", 2, marks=pytest.mark.similar),
        *(
            pytest.param("malformed", s, step, marks=pytest.mark.similar)
            for s in ("backward", "forward")
            for step in (0, 1, 3)
        ),
        pytest.param("uncertain path", "backward", 2, marks=pytest.mark.similar),
    ],
)
def test_differential_restart_of_combinations(engine: Engine, dataset: str, strategy: str, step: int) -> None:
    """A crash in the middle of an uncommitted step and a replay give the same rows and rejects, each once."""
    query, files = with_options(case_tables.dataset(dataset).query, strategy=strategy), case_tables.stream(dataset)
    crashed = engine.run(query, files, Variant(streaming=True, restart_after=step))
    usual = engine.run(query, case_tables.finite(dataset))
    multiset.assert_same(multiset.rows(crashed.output), multiset.rows(usual.output), f"a restart in step {step}")
    multiset.assert_same(multiset.rows(crashed.rejects), multiset.rows(usual.rejects), f"rejects, restart in {step}")


@pytest.mark.parametrize(
    ("dataset", "strategy"),
    [("malformed", "backward"), pytest.param("uncertain clique", "forward", marks=pytest.mark.similar)],
)
def test_oracle_late_rows_of_combinations(engine: Engine, dataset: str, strategy: str) -> None:
    """Late rows are rejected as WA-1010, never lost; the combinations are those of the rows that were accepted."""
    query, files = with_options(case_tables.dataset(dataset).query, strategy=strategy), case_tables.late_stream(dataset)
    tables = expectations.whole(files)
    outcome = engine.run(query, files, STREAM)
    accepted = expectations.accepted(outcome, tables, case_tables.read(query, tables).events)
    expected = window_join_oracle.answer(query, tables, accepted).rows
    multiset.assert_same(case_tables.rows_of(outcome, query), expected, "combinations of the rows that were accepted")


@pytest.mark.parametrize("streaming", [False, pytest.param(True, marks=pytest.mark.similar)])
def test_oracle_empty_streams(engine: Engine, streaming: bool) -> None:
    """An empty stream gives no combination but all columns; the rows of the others are processed."""
    query, tables = case_tables.dataset("path").query, case_tables.dataset("path").tables
    files = {name: (table.slice(0, 0) if name == "b" else table,) for name, table in tables.items()}
    outcome = engine.run(query, files, Variant(streaming=streaming))
    expected = _schema(query, tables, case_tables.computed_columns(query))
    multiset.assert_same_columns(outcome.output.schema, expected, "the columns of no rows")
    assert outcome.output.num_rows == 0
    assert outcome.metrics["rows_processed"] == sum(table.num_rows for (table,) in files.values())


def _counted(outcome: Outcome) -> WindowJoinCounts:
    return WindowJoinCounts(**{each.name: outcome.metrics[each.name] for each in fields(WindowJoinCounts)})


def _counting(query: WindowJoin) -> Counting:
    return Counting(query, query.strategy, query.conservative)


@lru_cache
def _expected_counts(dataset: str, *algorithm: str) -> WindowJoinCounts:
    """By hand: slow, and the same for every engine."""
    counts = WindowJoinCounts()
    query = with_options(case_tables.dataset(dataset).query, **_of(algorithm))
    _counting(query).block(case_tables.of_dataset(dataset)[0].events, counts)
    return counts


@pytest.mark.parametrize(
    ("dataset", "strategy", "conservative", "method"),
    [
        _algorithm(name, *how) if (name, *how) != ("graph", "backward", "lca", "nested") else (name, *how)
        for name in case_tables.EXACT
        for how in ALGORITHMS
        if how[2] == "hash" or name == "same time" or (name == "graph" and how[0] == "backward")  # slow by hand
        if _exists(name, *how[:2])
    ],
)
def test_oracle_combination_counters(
    engine: Engine, dataset: str, strategy: str, conservative: str, method: str
) -> None:
    """On finite input each algorithm tests exactly the periods, tuples and windows that its paper says."""
    query = with_options(
        case_tables.dataset(dataset).query, strategy=strategy, conservative=conservative, method=method
    )
    expected = _expected_counts(dataset, strategy, conservative, method)
    assert _counted(engine.run(query, case_tables.finite(dataset))) == expected


def test_oracle_algorithms_differ(engine: Engine) -> None:
    """The names are algorithms: each avoids the work that the paper says, and none changes the result."""
    found = {}
    for dataset in ("uniform clique", "clique"):
        for how in ALGORITHMS:
            if not _exists(dataset, *how[:2]):
                continue
            query = with_options(case_tables.dataset(dataset).query, **_of(how))
            found[(dataset, *how)] = _counted(engine.run(query, case_tables.finite(dataset)))
    assert len({count.matched for key, count in found.items() if key[0] == "clique"}) == 1
    few, bew = found["uniform clique", "forward", "none", "hash"], found["uniform clique", "backward", "none", "hash"]
    assert few.window_tests == bew.window_tests == 0
    assert bew.period_tests == 0 < few.period_tests
    assert few.tuples_admitted + few.tuples_dropped > 0
    for strategy, approaches in (("backward", ("none", "lca", "gca")), ("forward", ("lca", "gca"))):
        tests = [found["clique", strategy, how, "hash"].tuple_tests for how in approaches]
        assert tests == sorted(tests)
        assert tests[0] < tests[-1]
        assert found["clique", strategy, "gca", "hash"].window_tests > 0
    nested, hashed = (found["clique", "backward", "none", method].tuple_tests for method in ("nested", "hash"))
    assert nested > hashed


@pytest.mark.parametrize(
    ("dataset", "strategy", "streaming", "width"),
    [
        ("no key", "backward", False, "auto"),
        *(
            pytest.param(name, strategy, streaming, width, marks=pytest.mark.similar)
            for name, width in (("no key", "3 s"), ("graph", "700 ms"), ("uncertain path", "40 s"))
            for strategy in ("backward", "forward")
            for streaming in (False, True)
        ),
    ],
)
def test_oracle_time_slots_of_combinations(
    engine: Engine, dataset: str, strategy: str, streaming: bool, width: str
) -> None:
    """Spread over four buckets by time, each combination is found once and each row counted once."""
    query = with_options(case_tables.dataset(dataset).query, strategy=strategy, time_slots=width)
    assert query.slots is not None
    files = case_tables.stream(dataset) if streaming else case_tables.finite(dataset)
    outcome = engine.run(query, files, Variant(streaming=streaming, parallelism=4))
    multiset.assert_same(
        case_tables.rows_of(outcome, query), case_tables.of_dataset(dataset)[1].rows, "slots", {"query": query}
    )
    assert outcome.metrics["rows_in"] == sum(table.num_rows for table in case_tables.dataset(dataset).tables.values())
    assert outcome.metrics["rows_in"] == outcome.metrics["rows_processed"] + outcome.metrics["rows_rejected"]


LATE_S, FAR_S = 10, 100
EDGES: dict[str, dict[tuple[str, str], Any]] = {
    "path": {("a", "b"): "3 s", ("b", "c"): ("-2 s", "5 s")},
    "before": {("a", "b"): ("-6 s", "-1 s"), ("a", "c"): "4 s"},
    "uncertain": {("a", "b"): within("3 s", confidence=0.3), ("b", "c"): within("2 s", confidence=1.0)},
}


@lru_cache
def _edge_stream() -> dict[str, Files]:
    """Partners that come at the last moment at which they are not late, and are as long as may be.

    t_max    80. . . . . . . . . 90 . . . . . 100 s
    file 0   |||||||||||||||||||||||||||||||||||       all streams, two rows a second
    1 to 3                              |              nothing new: time for any engine to drop rows
    file 4                    ===|                     one stream after another, ends at the watermark, 100 s - 10 s
    """

    def rows(t_max: Any, length: Any, first_id: int) -> pa.Table:
        end = YEAR_2024 + np.asarray(t_max, np.int64)
        ids = np.arange(first_id, first_id + len(end))
        return pa.table({"t_min": end - np.asarray(length, np.int64), "t_max": end, "k": ids * 0, "id": ids})

    dense = np.arange(80 * SECOND, FAR_S * SECOND + 1, SECOND // 2)
    quiet = [rows([(FAR_S - 5) * SECOND], [0], 1000 + n) for n in range(3)]
    files = {}
    for name in "abc":
        last = rows([(FAR_S - LATE_S) * SECOND] * 3, np.arange(3) * SECOND, 2000)
        files[name] = (rows(dense, np.zeros(len(dense)), 0), *quiet, last)
    return files


@pytest.mark.parametrize(
    ("edges", "strategy"),
    [
        ("path", "backward"),
        *(
            pytest.param(e, s, marks=pytest.mark.similar)
            for e in EDGES
            for s in ("backward", "forward")
            if (e, s) != ("path", "backward")
        ),
    ],
)
def test_oracle_latest_members(engine: Engine, edges: str, strategy: str) -> None:
    """No row is dropped while a combination may still arise; here one arises at the last moment."""
    spec = Interval("t_min", "t_max", max_uncertainty="2 s") if edges == "uncertain" else Point("t_max")
    query = WindowJoin(
        times=dict.fromkeys("abc", spec), windows=EDGES[edges], on="k", strategy=strategy, lateness=f"{LATE_S} s"
    )
    tables = expectations.whole(_edge_stream())
    answer = window_join_oracle.answer(query, tables, case_tables.read(query, tables).events)
    outcome = engine.run(query, _edge_stream(), STREAM)
    multiset.assert_same(case_tables.rows_of(outcome, query), answer.rows, "combinations with the latest rows")
    assert outcome.rejects.num_rows == 0


LONG_FILES, ROWS_PER_SECOND, FILE_S = 8, 2, 60


@lru_cache
def _long_stream() -> dict[str, Files]:
    """A long stream at a steady rate: one file a minute, two rows a second in each of three streams."""
    files = {}
    for index, name in enumerate("abc"):
        n = LONG_FILES * FILE_S * ROWS_PER_SECOND
        t = YEAR_2024 + np.arange(n) * (SECOND // ROWS_PER_SECOND)
        table = pa.table({"t": t, "k": np.arange(n) * (7 + index) % 20, "id": np.arange(n)})
        size = FILE_S * ROWS_PER_SECOND
        files[name] = tuple(table.slice(start, size) for start in range(0, n, size))
    return files


@pytest.mark.parametrize("strategy", fewer_on_slow_engines(["backward", "forward"], ["forward"]))
def test_oracle_bounded_state_of_combinations(engine: Engine, strategy: str) -> None:
    """State holds only what the tightened graph requires, however long the stream, and dropping the rest loses nothing.

    What may be held at the end per stream: the reach of the graph and a slot (under 20 s), the lateness (3 s), and the
    last files, since the watermark follows them with a delay.
    """
    query = WindowJoin(
        times=dict.fromkeys("abc", Point("t")), windows={("a", "b"): "4 s", ("b", "c"): "6 s"}, on="k",
        strategy=strategy, lateness="3 s",
    )  # fmt: skip
    tables = expectations.whole(_long_stream())
    answer = window_join_oracle.answer(query, tables, case_tables.read(query, tables).events)
    outcome = engine.run(query, _long_stream(), STREAM)
    multiset.assert_same(case_tables.rows_of(outcome, query), answer.rows, "combinations of a long stream")
    held = outcome.metrics["rows_stored"] - outcome.metrics["rows_evicted"]
    assert 0 <= held <= 3 * ROWS_PER_SECOND * (23 + 3 * FILE_S), f"{held} rows are held at the end"


ARRIVALS = [
    ("clique", "backward", "gca", "hash"),
    ("clique", "forward", "gca", "nested"),
    ("clique", "backward", "none", "hash"),
    ("clique", "backward", "lca", "hash"),
    ("clique", "backward", "gca", "nested"),
    ("clique", "forward", "lca", "hash"),
    ("uniform clique", "backward", "none", "hash"),
    ("uniform clique", "forward", "none", "hash"),
]


@pytest.mark.parametrize(
    ("dataset", "strategy", "conservative", "method"), fewer_on_slow_engines(ARRIVALS, ARRIVALS[:2])
)
def test_oracle_counters_of_arrivals(
    engine: Engine, dataset: str, strategy: str, conservative: str, method: str
) -> None:
    """On a stream in blocks of many rows every algorithm forms and tests the periods, tuples and windows of its paper:
    backward evaluation joins each row with earlier arrivals only, and forward evaluation waits for the watermark."""
    how = (strategy, conservative, method)
    query = with_options(case_tables.dataset(dataset).query, **_of(how), lateness="1 day")
    assert _counted(engine.run(query, _in_turn(dataset), STREAM)) == _counts_in_turn(dataset, how)


@lru_cache
def _in_turn(name: str) -> dict[str, tuple[pa.Table, ...]]:
    """Six files with rows of one stream each, so that no engine's batches change which row came first."""
    query, whole = case_tables.dataset(name).query, case_tables.finite(name)
    return {
        stream: tuple(
            _half(whole[stream][0], number // len(query.inputs)) if number % len(query.inputs) == index
            else whole[stream][0].slice(0, 0)
            for number in range(2 * len(query.inputs))
        )
        for index, stream in enumerate(query.inputs)
    }  # fmt: skip


def _half(table: pa.Table, which: int) -> pa.Table:
    size = table.num_rows // 2
    return table.slice(which * size, size)


@lru_cache
def _counts_in_turn(name: str, how: tuple[str, ...]) -> WindowJoinCounts:
    query, files = with_options(case_tables.dataset(name).query, **_of(how)), _in_turn(name)
    events: dict[str, list[Event]] = {stream: [] for stream in query.inputs}
    counts = WindowJoinCounts()
    for number in range(2 * len(query.inputs)):
        stream = query.inputs[number % len(query.inputs)]
        new = case_tables.read(query, {s: files[s][number] for s in query.inputs}).events[stream]
        for event in new if how[0] == "backward" else ():
            _counting(query).row(stream, event, events, counts)
        events[stream] += new
    if how[0] == "forward":
        _counting(query).block(events, counts)
    return counts
