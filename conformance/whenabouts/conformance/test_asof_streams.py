"""Laws of the as-of join on streams: the rows of finite input, each at the instant at which no row can change it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from whenabouts.conformance import asof_join_oracle, case_tables, expectations, multiset, oracle
from whenabouts.conformance.case_tables import SECOND, YEAR_2024
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.multiset import Row
from whenabouts.conformance.slow_engine_cases import fewer_on_slow_engines
from whenabouts.conformance.test_asof_join import OPTIONS, POINTS, UNCERTAIN, any_query, query_of, tables
from whenabouts.core import Interval, Lateness, Point, local
from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.asof_join.settings import HOWS
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.harness import Variant

STREAM = Variant(streaming=True)
BOUNDED = [name for name in OPTIONS if name.startswith("backward") or "tolerance" in name]
"""Looking ahead needs a tolerance on a stream."""
SLOTTED = [name for name in BOUNDED if "tolerance" in name]
UNCERTAIN_STREAMS = [(dataset, options) for dataset, options in UNCERTAIN if options in BOUNDED]


def _query(options: str, **more: Any) -> AsofJoin:
    return query_of(options, **({"lateness": case_tables.dataset(POINTS).query.lateness} | more))


@lru_cache
def _expected(options: str, how: str) -> Counter[Row]:
    return asof_join_oracle.rows(_query(options, how=how), tables(), timed=True)


@pytest.mark.parametrize(
    ("options", "how"),
    fewer_on_slow_engines(
        [(options, how) for options in BOUNDED for how in HOWS],
        [("backward", "left_outer"), ("nearest tolerance", "inner")],
        canary=("forward tolerance", "left_anti"),
    ),
)
def test_oracle_asof_streams(engine: Engine, options: str, how: str) -> None:
    """A stream that loses a step gives the rows of brute force, each once, with the instant at which it is settled."""
    query = _query(options, how=how)
    variant = Variant(streaming=True, parallelism=2, restart_after=1)
    outcome = engine.run(query, case_tables.stream(POINTS), variant)
    multiset.assert_same(multiset.rows(outcome.output), _expected(options, how), "rows", {"query": query})
    assert outcome.metrics["matched"] == outcome.output.num_rows
    assert outcome.metrics["rows_in"] == outcome.metrics["rows_processed"] + outcome.metrics["rows_rejected"]


@pytest.mark.parametrize(
    ("files", "seed", "options"),
    fewer_on_slow_engines(
        [((1 + 3 * (n % 4), 1 + n % 5), n, options) for n, options in enumerate(BOUNDED, 1)],
        [((7, 3), 2, BOUNDED[1])],
    ),
)
def test_differential_asof_arrival_orders(engine: Engine, files: tuple[int, int], seed: int, options: str) -> None:
    """Another order of arrival, in other files and over more buckets, gives the same rows at the same instants."""
    query = _query(options)
    usual = engine.run(query, case_tables.stream(POINTS), STREAM)
    other = engine.run(query, case_tables.stream(POINTS, files, seed), Variant(streaming=True, parallelism=4))
    multiset.assert_same(
        multiset.rows(other.output), multiset.rows(usual.output), f"files {files}, order {seed}", {"query": query}
    )


@pytest.mark.parametrize(("dataset", "options"), fewer_on_slow_engines(UNCERTAIN_STREAMS, UNCERTAIN_STREAMS[-1:]))
def test_oracle_asof_streams_of_uncertain_times(engine: Engine, dataset: str, options: str) -> None:
    """A stream gives the rows of finite input, to the last bit, each at the instant at which it is settled."""
    query = any_query(dataset, options, lateness=case_tables.dataset(dataset).query.lateness)
    finite = engine.run(query, case_tables.finite(dataset))
    variant = Variant(streaming=True, parallelism=3, restart_after=2)
    stream = engine.run(query, case_tables.stream(dataset, (6, 5)), variant)
    multiset.assert_same(
        multiset.rows(stream.output, finite.output.column_names), multiset.rows(finite.output), "stream against batch"
    )
    events = asof_join_oracle.read(query, case_tables.dataset(dataset).tables)[0]
    by_key = oracle.by_key(events["right"])
    settled = Counter(
        asof_join_oracle.settled_us(query, left, () if left.key is None else by_key.get(left.key, ()))
        for left in events["left"]
    )
    found = Counter(stream.output.column("event_time").cast(pa.int64()).to_pylist())
    assert not found - settled
    both = stream, finite
    crowded = [outcome.rejects.filter(pc.equal(outcome.rejects["code"], "WA-1053")).num_rows for outcome in both]
    assert [(settled - found).total()] * 2 == crowded
    for outcome in both:
        assert outcome.metrics["rows_in"] == outcome.metrics["rows_processed"] + outcome.metrics["rows_rejected"]


@pytest.mark.parametrize("step", fewer_on_slow_engines(range(4), [2]))
def test_oracle_asof_streams_restarted(engine: Engine, step: int) -> None:
    """A restart after any step, with other buckets' rows in flight, changes no row and no instant."""
    query = _query("nearest tolerance")
    variant = Variant(streaming=True, parallelism=3, restart_after=step)
    crashed = engine.run(query, case_tables.stream(POINTS), variant)
    expected = _expected("nearest tolerance", "left_outer")
    multiset.assert_same(multiset.rows(crashed.output), expected, f"restarted after step {step}")


@pytest.mark.parametrize(
    "options", fewer_on_slow_engines([name for name in BOUNDED if "tolerance" in name], [BOUNDED[2]])
)
def test_differential_asof_streams_in_time_slots(engine: Engine, options: str) -> None:
    """Spread over four buckets by time, with a key and without, a stream gives the same rows at the same instants."""
    for on in (case_tables.dataset(POINTS).query.on, None):
        query = _query(options, on=on)
        expected = multiset.rows(engine.run(query, case_tables.stream(POINTS), STREAM).output)
        slotted = _query(options, on=on, time_slots=2 * SECOND)
        outcome = engine.run(slotted, case_tables.stream(POINTS), Variant(streaming=True, parallelism=4))
        multiset.assert_same(multiset.rows(outcome.output), expected, "rows in slots", {"query": slotted})


@pytest.mark.parametrize("options", fewer_on_slow_engines(["backward", "nearest tolerance"], ["backward"]))
def test_oracle_asof_late_rows(engine: Engine, options: str) -> None:
    """Late rows of either side are rejected; the answers are those of the other rows, and no row is lost."""
    query = _query(options, lateness=Lateness(left=0, right=0))
    files = case_tables.late_stream(POINTS)
    outcome = engine.run(query, files, STREAM)
    whole = expectations.whole(files)
    events, _ = asof_join_oracle.read(query, whole)
    kept = expectations.accepted(outcome, whole, events)
    expected = asof_join_oracle.rows_of(query, whole["right"].column_names, kept)
    names = [name for name in outcome.output.column_names if name != "event_time"]
    multiset.assert_same(multiset.rows(outcome.output, names), expected, "rows", {"query": query})


def test_oracle_asof_crowded_rows(engine: Engine) -> None:
    """Left rows with too many candidates are rejected when they are settled, steps after they came; none is lost."""

    def rows(t: int, n: int) -> dict[str, pa.Table]:
        at = pa.array([YEAR_2024 + t * SECOND] * n)
        return {"left": pa.table({"t": at, "n": range(n)}), "right": pa.table({"a": at, "b": at})}

    crowd = pa.array([YEAR_2024 + k for k in range(3)]), pa.array([YEAR_2024 + 10 * SECOND + k for k in range(3)])
    files = [rows(10 * step, 1) for step in range(1, 5)]
    inputs = {
        "left": (rows(7, 30)["left"], *(file["left"] for file in files)),
        "right": (pa.table(dict(zip(("a", "b"), crowd, strict=True))), *(file["right"] for file in files)),
    }
    interval = Interval("a", "b", max_uncertainty="10 s")
    query = AsofJoin(left_time=Point("t"), right_time=interval, confidence=0.5, max_candidates=2, lateness="1 s")
    outcome = engine.run(query, inputs, STREAM)
    assert outcome.rejects.select(["input", "code"]).to_pylist() == [{"input": "left", "code": "WA-1053"}] * 30
    assert outcome.output.num_rows == 4
    counts = outcome.metrics
    assert (counts["rows_in"], counts["rows_processed"], counts["rows_rejected"]) == (41, 11, 30)


DAY = 86_400 * SECOND


def _years() -> dict[str, case_tables.Files]:
    """A row of key 7, then ten years of rows of other keys, then a left row of key 7."""
    right_t = [YEAR_2024, *(YEAR_2024 + 4 * DAY * n for n in range(1, 900))]
    right = pa.table({"k": pa.array([7, *(n % 5 for n in range(899))]), "t": pa.array(right_t), "v": range(900)})
    left_t = [YEAR_2024 + 400 * DAY * n for n in range(1, 10)]
    left = pa.table({"k": pa.array([1] * 8 + [7]), "t": pa.array(left_t)})
    return {"left": case_tables.cut(left, 4), "right": case_tables.cut(right, 4)}


def test_oracle_asof_rows_however_old(engine: Engine) -> None:
    """Without a tolerance the last row of a key answers ten years later; with one it does not, and leaves the state."""
    times: dict[str, Any] = {
        "left_time": Point("t"),
        "right_time": Point("t"),
        "on": "k",
        "lateness": Lateness(left="1d", right="1d"),
    }
    output = engine.run(AsofJoin(**times), _years(), STREAM).output
    assert output.filter(pc.equal(output["k"], 7)).column("v").to_pylist() == [0]
    outcome = engine.run(AsofJoin(**times, tolerance="1000 d"), _years(), STREAM)
    assert outcome.output.filter(pc.equal(outcome.output["k"], 7)).column("v").to_pylist() == [None]


@pytest.mark.parametrize("direction", ["forward", "nearest"])
def test_oracle_asof_streams_without_a_bound_are_refused(engine: Engine, direction: str) -> None:
    """Looking ahead without a tolerance, a left row could wait for ever: refused before the run."""
    query = _query(direction)
    with pytest.raises(QueryError) as raised:
        engine.run(query, case_tables.stream(POINTS), STREAM)
    assert raised.value.code is Code.UNBOUNDED_STATE


FILES, ROWS, CHANGED_AT = 8, 20, 5
"""Files of 100 s each, their left rows, and the step at which a run continues as another query."""


def _separate_files() -> dict[str, case_tables.Files]:
    """Left rows each with a key of its own, and the one right row of that key, which overlaps it."""
    files: dict[str, list[pa.Table]] = {"left": [], "right": []}
    for number in range(FILES):
        begins = [YEAR_2024 + (100 * number + 4 * row) * SECOND for row in range(ROWS)]
        key = range(ROWS * number, ROWS * (number + 1))
        files["left"].append(pa.table({"k": key, "a": begins, "b": [t + 2 * SECOND for t in begins]}))
        after = {"a": [t + SECOND for t in begins], "b": [t + 3 * SECOND for t in begins]}
        files["right"].append(pa.table({"k": key, **after, "v": key}))
    return {side: tuple(tables) for side, tables in files.items()}


@pytest.mark.parametrize("direction", fewer_on_slow_engines(["backward", "forward", "nearest"], ["nearest"]))
def test_oracle_asof_settled_in_the_first_step(engine: Engine, direction: str) -> None:
    """A row comes out in the first step whose watermark has reached its `event_time`, not before and not later.

    What shows it: at a restart the query changes its confidence from one that every row reaches to one that none
    does. Rows that come out in steps before it have a partner, rows of later steps have none. An engine's watermark
    may follow the files one step later than the files allow; rows settled in that step may have either form.
    """
    interval = Interval("a", "b", max_uncertainty="2 s")
    given: dict[str, Any] = {"tolerance": "1 s"} if direction == "nearest" else {"tolerance": "5 s"}
    query = AsofJoin(
        left_time=interval, right_time=interval, on="k", direction=direction, confidence=0.1, lateness="1 s", **given
    )
    variant = Variant(
        streaming=True, parallelism=2, restart_after=CHANGED_AT, restarted_as=replace(query, confidence=1.0)
    )
    files = _separate_files()
    outcome = engine.run(query, files, variant, remember=False)
    events, _ = asof_join_oracle.read(query, expectations.whole(files))
    by_key = oracle.by_key(events["right"])
    known = [(row.key, row) for row in events["left"] if row.key is not None]
    expected = {key: asof_join_oracle.settled_us(query, row, by_key[key]) for key, row in known}
    output = outcome.output.select(["k", "v", "event_time"])
    settled = output.column("event_time").cast(pa.int64()).to_pylist()
    assert Counter(zip(((key,) for key in output.column("k").to_pylist()), settled, strict=True)) == Counter(
        expected.items()
    )

    def watermark_us(file: int) -> int:
        """By all files up to one: the least over both sides."""
        latest: list[int] = [max(tables[file].column("b").to_pylist()) for tables in files.values()]
        return min(latest) - SECOND

    surely_before, perhaps_before = watermark_us(CHANGED_AT - 3), watermark_us(CHANGED_AT - 1)
    partners = output.column("v").to_pylist()
    assert all(v is not None for v, at in zip(partners, settled, strict=True) if at <= surely_before)
    assert all(v is None for v, at in zip(partners, settled, strict=True) if at > perhaps_before)
    assert sum(at <= surely_before for at in settled) > ROWS
    assert sum(at > perhaps_before for at in settled) > ROWS


KEYS, BLOCK, BLOCKS = 20, 150, 14


def _many_rows() -> dict[str, case_tables.Files]:
    """Right rows of twenty keys, which fall silent in the second half; rows of another key, and a left row a file."""
    random = case_tables.rng("many rows")
    files: dict[str, list[pa.Table]] = {"left": [], "right": []}
    for number in range(BLOCKS):
        times = YEAR_2024 + 60 * number * SECOND + np.sort(random.integers(0, 60 * SECOND, BLOCK))
        keys = random.integers(0, KEYS, BLOCK) if number < BLOCKS // 2 else np.full(BLOCK, KEYS)
        lengths = random.choice(np.array([0, SECOND // 10]), BLOCK)
        files["right"].append(pa.table({"k": keys, "a": times - lengths, "b": times, "v": range(BLOCK)}))
        files["left"].append(pa.table({"k": [3], "t": [int(times[-1])]}))
    return {side: tuple(tables) for side, tables in files.items()}


@pytest.mark.parametrize("tolerance", [None, "5 s"])
def test_oracle_asof_bounded_state(engine: Engine, tolerance: str | None) -> None:
    """State holds open left rows, the last files' right rows, and of older ones a key's last with those that overlap
    it; with a tolerance none older.

    What shows it is the count of rows stored and evicted at the end.
    """
    query = AsofJoin(
        left_time=Point("t"), right_time=Interval("a", "b", max_uncertainty="100 ms"), on="k", confidence=0.5,
        tolerance=tolerance, lateness="1 s",
    )  # fmt: skip
    files = _many_rows()
    outcome = engine.run(query, files, STREAM)
    whole = expectations.whole(files)
    finite = local.run(query, [whole["left"], whole["right"]])
    multiset.assert_same(
        multiset.rows(outcome.output, finite.output.column_names), multiset.rows(finite.output), "rows of a long stream"
    )
    held = outcome.metrics["rows_stored"] - outcome.metrics["rows_evicted"]
    carried = 2 * (KEYS + 1) if tolerance is None else 0
    assert 0 <= held <= carried + 3 * (BLOCK + 1), f"{held} rows are held at the end"
    assert outcome.metrics["rows_stored"] == BLOCKS * (BLOCK + 1)
    if tolerance is None:
        assert held >= KEYS
