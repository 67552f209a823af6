"""Laws of the timing join on streams: watermarks, state, late rows, restarts, the end of the input."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.conformance import case_tables, expectations, multiset, templates
from whenabouts.conformance.case_tables import SECOND, YEAR_2024, Files
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.multiset import Row
from whenabouts.conformance.slow_engine_cases import fewer_on_slow_engines
from whenabouts.core import Condition, Histogram, Interval, Lateness, Point, between, within
from whenabouts.core.harness import Variant
from whenabouts.core.local import Outcome
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.timing_join.settings import STRATEGIES

STREAM = Variant(streaming=True)
MAIN = "wide"
"""The dataset on which every strategy and variant runs; its window lets state be dropped while rows still match."""

HISTOGRAMS = "histograms"
"""The same where times are histograms."""

OTHERS = ("ties", "narrow", "certain", "point and interval", "realistic", "malformed", "before 1970")

hosting = pytest.mark.hosting
"""Of like cases, slow engines run those that share a run with another law: equal runs are run once."""


def _both(outcome: Outcome) -> tuple[Counter[Row], Counter[Row]]:
    return multiset.rows(outcome.output), multiset.rows(outcome.rejects)


def _same(actual: Outcome, expected: Outcome, what: str) -> None:
    __tracebackhide__ = True
    for got, wanted, kind in zip(_both(actual), _both(expected), ("output", "rejects"), strict=True):
        multiset.assert_same(got, wanted, f"{kind} of {what}")


@pytest.mark.parametrize(
    ("dataset", "strategy"),
    fewer_on_slow_engines(
        [
            *((s, strategy) for s in (MAIN, HISTOGRAMS, "narrow histograms") for strategy in STRATEGIES),
            *((s, "auto") for s in OTHERS),
            *(
                (s, "auto")
                for s in (*case_tables.HISTOGRAMS, "few lengths")
                if s not in (HISTOGRAMS, "narrow histograms", "one-sided histograms")
            ),
        ],
        kept=[(MAIN, "lazy_lookup"), *((s, "auto") for s in ("ties", "malformed", "before 1970", HISTOGRAMS))],
        canary=(MAIN, "auto"),
    ),
)
def test_oracle_pairs_on_streams(engine: Engine, dataset: str, strategy: str) -> None:
    """With rows out of order within the lateness the pairs are those of brute force, and no row is late."""
    query = case_tables.with_strategy(case_tables.dataset(dataset).query, strategy)
    outcome = engine.run(query, case_tables.stream(dataset), STREAM)
    inputs, answer = expectations.of_dataset(dataset)
    multiset.assert_same(expectations.join_rows(outcome), answer.rows, "pairs", {"query": query})
    assert outcome.rejects.num_rows == sum(map(len, inputs.refused.values()))
    assert outcome.metrics["rows_late"] == 0


LONG_US, FILES = 28 * case_tables.DAY, 6
"""A window of four weeks, and the files of each side."""


@lru_cache
def _long_state(keys: str) -> tuple[dict[str, Files], Counter[tuple[Any, ...]]]:
    """Many rows that stay long, few that look them up by their keys; and the pairs, of a loop over each key's rows."""
    draw = case_tables.rng("long state")
    times = {name: np.sort(draw.integers(0, 42 * case_tables.DAY, n)) for name, n in (("left", 180_000), ("right", 90))}
    codes = {name: draw.integers(0, 3_000, len(t)) for name, t in times.items()}
    pairs: Counter[tuple[Any, ...]] = Counter()
    for at, (t, code) in enumerate(zip(times["right"].tolist(), codes["right"].tolist(), strict=True)):
        met = np.flatnonzero((codes["left"] == code) & (times["left"] <= t) & (times["left"] >= t - LONG_US))
        pairs.update((number, at) for number in met.tolist())
    files = {}
    for name, t in times.items():
        code = pa.array(codes[name])
        key = code if keys == "integers" else pa.array([f"user {each}" for each in codes[name].tolist()])
        table = pa.table({"k": key, "t": t, "id": np.arange(len(t))})
        size = len(t) // FILES
        files[name] = tuple(table.slice(start, size) for start in range(0, len(t), size))
    return files, pairs


@hosting
@pytest.mark.parametrize("keys", ["integers", pytest.param("texts", marks=pytest.mark.similar)])
def test_oracle_long_state(engine: Engine, keys: str) -> None:
    """Few rows find their partners among very many stored ones, of which a step takes those of its keys."""
    files, pairs = _long_state(keys)
    query = TimingJoin(
        left_time=Point("t"), right_time=Point("t"), condition=Condition(0, LONG_US, 1.0), on="k",
        lateness=Lateness("1 s", "1 s"), probability=False,
    )  # fmt: skip
    outcome = engine.run(query, files, Variant(streaming=True, restart_after=4))
    found = Counter(multiset.rows(outcome.output, ["id_left", "id_right"]))
    multiset.assert_same(found, pairs, "pairs of a long state")
    assert outcome.metrics["rows_late"] == 0


@hosting
@pytest.mark.parametrize("dataset", fewer_on_slow_engines([MAIN, "realistic", "histogram and interval"], [MAIN]))
def test_oracle_event_time(engine: Engine, dataset: str) -> None:
    """On a stream a pair's event time is the larger t_max of its two rows."""
    outcome = engine.run(case_tables.dataset(dataset).query, case_tables.stream(dataset), STREAM)
    query, tables = case_tables.dataset(dataset).query, case_tables.dataset(dataset).tables
    expected = expectations.output_schema(query, tables, streaming=True)
    multiset.assert_same_columns(outcome.output.schema, expected, "a join of streams")
    _, answer = expectations.of_dataset(dataset)
    names = [name for name in outcome.output.column_names if name not in expectations.COMPUTED]
    told = multiset.rows(outcome.output, [*names, "event_time"])
    assert told, "the dataset has no pair"
    assert {row: row[-1] for row in told} == {row: answer.event_time_us[row[:-1]] for row in told}


@pytest.mark.parametrize(
    "dataset", fewer_on_slow_engines([MAIN, "certain", HISTOGRAMS, "realistic histograms"], [MAIN])
)
def test_differential_batch_and_stream(engine: Engine, dataset: str) -> None:
    """A stream gives the rows of the finite join, to the last bit of the probability."""
    query = case_tables.dataset(dataset).query
    stream, finite = (
        engine.run(query, case_tables.stream(dataset), STREAM),
        engine.run(query, case_tables.finite(dataset)),
    )
    names = finite.output.column_names
    multiset.assert_same(multiset.rows(stream.output, names), multiset.rows(finite.output), "stream against batch")


@pytest.mark.parametrize(
    ("dataset", "strategy"),
    fewer_on_slow_engines([(MAIN, "auto"), (MAIN, "lazy_lookup"), (HISTOGRAMS, "lazy")], [(MAIN, "auto")]),
)
def test_differential_parallelism_on_streams(engine: Engine, dataset: str, strategy: str) -> None:
    """Three buckets give the rows of one."""
    query = case_tables.with_strategy(case_tables.dataset(dataset).query, strategy)
    one, many = (engine.run(query, case_tables.stream(dataset), Variant(streaming=True, parallelism=n)) for n in (1, 3))
    _same(many, one, "3 buckets against 1")


@pytest.mark.parametrize(
    ("dataset", "files", "seed"),
    fewer_on_slow_engines(
        [
            (MAIN, (1, 1), 1),
            (MAIN, (3, 6), 2),
            (HISTOGRAMS, (6, 3), 1),
            ("many templates", (1, 1), 2),
            ("narrow ties of histograms", (2, 5), 3),
        ],
        kept=[(MAIN, (3, 6), 2)],
    ),
)
def test_differential_arrival_orders(engine: Engine, dataset: str, files: tuple[int, int], seed: int) -> None:
    """Another order of arrival within the lateness, split into other files, gives the same rows."""
    query = case_tables.dataset(dataset).query
    usual, other = (engine.run(query, case_tables.stream(dataset, *how), STREAM) for how in ((), (files, seed)))
    _same(other, usual, f"files {files}, order {seed}")


@pytest.mark.parametrize(
    ("dataset", "strategy", "block_size", "max_latency"),
    fewer_on_slow_engines(
        [
            (MAIN, "lazy", 7, None),
            (MAIN, "lazy", 10**6, None),
            (MAIN, "lazy", 400, "2 s"),
            (MAIN, "lazy_lookup", 150, None),
            (MAIN, "auto", 400, "2 s"),
            (HISTOGRAMS, "lazy", 7, None),
            (HISTOGRAMS, "lazy_lookup", 150, "2 s"),
            ("narrow histograms", "lazy_lookup", 10**6, None),
        ],
        kept=[(MAIN, "lazy", 10**6, None), (MAIN, "lazy", 400, "2 s")],
    ),
)
def test_differential_block_sizes(
    engine: Engine, dataset: str, strategy: str, block_size: int, max_latency: str | None
) -> None:
    """However many rows wait, and however long, the output is that of `eager`, for which none waits."""
    query = case_tables.dataset(dataset).query
    lazy = case_tables.with_strategy(query, strategy, block_size=block_size, max_latency=max_latency)
    waiting = engine.run(lazy, case_tables.stream(dataset), STREAM)
    eager = engine.run(case_tables.with_strategy(query, "eager"), case_tables.stream(dataset), STREAM)
    _same(waiting, eager, "waiting against eager")


@hosting
@pytest.mark.parametrize(
    ("dataset", "strategy", "step"),
    fewer_on_slow_engines(
        [
            *(("malformed", *how) for how in (("auto", 0), ("auto", 2), ("lazy", 1), ("eager", 3))),
            *(("malformed histograms", *how) for how in (("lazy", 1), ("auto", 2))),
        ],
        kept=[("malformed", "auto", 0), ("malformed", "auto", 2)],
    ),
)
def test_differential_restart(engine: Engine, dataset: str, strategy: str, step: int) -> None:
    """A crash in the middle of an uncommitted step and a replay give the same rows and rejects, each once."""
    query, files = case_tables.dataset(dataset).query, case_tables.stream(dataset)
    crashing = case_tables.with_strategy(query, strategy)
    crashed = engine.run(crashing, files, Variant(streaming=True, restart_after=step))
    _same(crashed, engine.run(query, files, STREAM), f"a restart in step {step}")


@hosting
def test_oracle_end_of_input(engine: Engine) -> None:
    """When the input ends, rows that still wait for a full block are joined."""
    query = case_tables.with_strategy(case_tables.dataset(MAIN).query, "lazy", block_size=10**6)
    outcome = engine.run(query, case_tables.stream(MAIN), STREAM)
    multiset.assert_same(expectations.join_rows(outcome), expectations.of_dataset(MAIN)[1].rows, "pairs at the end")


@hosting
@pytest.mark.parametrize(
    ("dataset", "strategy"),
    fewer_on_slow_engines(
        [(MAIN, "auto"), ("malformed", "lazy"), ("malformed histograms", "eager")], [("malformed", "lazy")]
    ),
)
def test_oracle_late_rows(engine: Engine, dataset: str, strategy: str) -> None:
    """Late rows are rejected as WA-1010, never lost; the pairs are those of the rows that were not rejected."""
    query, files = (
        case_tables.with_strategy(case_tables.dataset(dataset).query, strategy),
        case_tables.late_stream(dataset),
    )
    tables = expectations.whole(files)
    outcome = engine.run(query, files, STREAM)
    accepted = expectations.accepted(outcome, tables, expectations.read(query, tables).events)
    expected = expectations.answer(query, tables, accepted).rows
    multiset.assert_same(expectations.join_rows(outcome), expected, "pairs of the rows that were accepted")


LATE_S, FAR_S = 10, 100
EDGES = {
    "half": within("6 s", confidence=0.5),
    "certain": between("-12 s", "15 s", confidence=1.0),
    "narrow": between("-1 s", "2 s", confidence=0.25),
}


INTERVAL = Interval("t_min", "t_max", max_uncertainty="4 s")
HISTOGRAM = Histogram("t_max", template="kind", templates=templates.UP_TO_4_S)
TIMES: dict[str, tuple[TimeSpec, TimeSpec]] = {
    "intervals": (INTERVAL, INTERVAL),
    "histograms": (HISTOGRAM, HISTOGRAM),
    "both": (INTERVAL, HISTOGRAM),
}
"""What the rows of the two sides are; in either form of the rows below an event happens up to 4 s before its end."""


def _condition(edge: Condition, times: str) -> Condition:
    """Templates give round probabilities: a confidence that is none keeps them out of the kernel's guard band."""
    return edge if times == "intervals" or edge.confidence == 1.0 else replace(edge, confidence=edge.confidence * 0.97)


def _rows(t_max: Any, seconds: Any, columns: dict[str, Any]) -> pa.Table:
    """Rows that are `seconds` long, as an interval and as a histogram (0 s: of a microsecond)."""
    kinds, length = list(templates.UP_TO_4_S), np.asarray(seconds, np.int64)
    end = np.asarray(t_max, np.int64)
    named = pa.array([kinds[n] for n in length.tolist()], pa.string())
    return pa.table({"t_min": end - length * SECOND, "t_max": end, "kind": named} | columns)


@lru_cache
def _edge_stream() -> dict[str, Files]:
    """Partners that come at the last moment at which they are not late, and are as long as may be.

    t_max    60. . . . . . . . . . . . . . 90 . . . . . 100 s
    file 0   |||||||||||||||||||||||||||||||||||||||||||||    both sides, four rows a second
    1 to 3                                         |          nothing new: time for any engine to drop rows
    file 4                               ===|                 ends at the watermark, 100 s - 10 s
    """

    def rows(t_max: Any, seconds: Any, first_id: int) -> pa.Table:
        ids = np.arange(first_id, first_id + len(t_max))
        return _rows(YEAR_2024 + np.asarray(t_max, np.int64), seconds, {"k": ids * 0, "id": ids})

    dense = np.arange(60 * SECOND, FAR_S * SECOND + 1, SECOND // 4)
    quiet = [rows([(FAR_S - 5) * SECOND], [0], 1000 + n) for n in range(3)]
    last = rows([(FAR_S - LATE_S) * SECOND] * 5, range(5), 2000)
    files = (rows(dense, np.zeros(len(dense)), 0), *quiet, last)
    return {"left": files, "right": files}


@pytest.mark.parametrize(
    ("edge", "strategy", "times"),
    fewer_on_slow_engines(
        [
            *((edge, "auto", times) for times in ("intervals", "histograms") for edge in EDGES),
            ("half", "lazy", "intervals"),
            *((edge, "eager", "both") for edge in EDGES),
        ],
        kept=[("certain", "auto", "intervals")],
    ),
)
def test_oracle_latest_partners(engine: Engine, edge: str, strategy: str, times: str) -> None:
    """No row is dropped while a partner may still arrive; here the partners arrive at the last moment."""
    left, right = TIMES[times]
    query = TimingJoin(
        left_time=left, right_time=right, condition=_condition(EDGES[edge], times), on="k", strategy=strategy,
        lateness=Lateness(left=f"{LATE_S} s", right=f"{LATE_S} s"), block_size=1,
    )  # fmt: skip
    tables = expectations.whole(_edge_stream())
    answer = expectations.answer(query, tables, expectations.read(query, tables).events)
    outcome = engine.run(query, _edge_stream(), STREAM)
    multiset.assert_same(expectations.join_rows(outcome), answer.rows, "pairs with the latest partners")
    assert outcome.rejects.num_rows == 0


LONG_FILES, ROWS_PER_SECOND, FILE_S = 8, 2, 60


@lru_cache
def _long_stream() -> dict[str, Files]:
    """A long stream at a steady rate: one file a minute, two rows a second on each side."""
    files = {}
    for side in expectations.SIDES:
        random, n = case_tables.rng("long", side), LONG_FILES * FILE_S * ROWS_PER_SECOND
        t_max = YEAR_2024 + np.arange(n) * (SECOND // ROWS_PER_SECOND)
        length = random.integers(0, 5, n)
        table = _rows(t_max, length, {"k": random.integers(0, 30, n), "id": np.arange(n)})
        size = FILE_S * ROWS_PER_SECOND
        files[side] = tuple(table.slice(start, size) for start in range(0, n, size))
    return files


@lru_cache
def _long_answer(condition: Condition, times: str) -> Counter[Row]:
    left, right = TIMES[times]
    query = TimingJoin(left_time=left, right_time=right, condition=condition, on="k")
    tables = expectations.whole(_long_stream())
    return expectations.answer(query, tables, expectations.read(query, tables).events).rows


@hosting
@pytest.mark.parametrize(
    ("strategy", "times"),
    fewer_on_slow_engines(
        [("auto", "intervals"), ("lazy", "intervals"), ("auto", "histograms"), ("lazy", "both")],
        kept=(),
    ),
)
def test_oracle_bounded_state(engine: Engine, strategy: str, times: str) -> None:
    """State holds only rows that can still match, however long the stream, and dropping the others loses no pair.

    Per side, what an engine may still hold at the end are the rows inside the reach of the condition and its slots
    (under 30 s), of the lateness (3 s), and of the last files: the watermark follows the files with a delay.
    """
    left, right = TIMES[times]
    query = TimingJoin(
        left_time=left, right_time=right, condition=_condition(within("6 s", confidence=0.5), times), on="k",
        strategy=strategy, lateness=Lateness(left="3 s", right="3 s"), block_size=50,
    )  # fmt: skip
    outcome = engine.run(query, _long_stream(), STREAM)
    expected = _long_answer(query.condition, times)
    multiset.assert_same(expectations.join_rows(outcome), expected, "pairs of a long stream")
    held = outcome.metrics["rows_stored"] - outcome.metrics["rows_evicted"]
    assert 0 <= held <= 2 * ROWS_PER_SECOND * (33 + 3 * FILE_S), f"{held} rows are held at the end"
