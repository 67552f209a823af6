"""Schedules of failures: a seed gives a query, inputs with all kinds of faults, and an engine that is killed.

Queries are of every kind and mode, with wrappers. Inputs are out of order within the lateness, and have repeated and
malformed rows; some rows are late, some inputs fall silent. The engine is killed at random points, restored, and
rescaled. In every case the output must be the batch answer over the rows that were not rejected as late.

`python -m whenabouts.conformance.kill_schedules SEED COUNT` runs scenarios; a failure names its seed.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.conformance import multiset, templates
from whenabouts.conformance.case_tables import SECOND, YEAR_2024
from whenabouts.conformance.change_rows import applied
from whenabouts.conformance.random_policy import RandomPolicy
from whenabouts.conformance.simulated_engine import Schedule, SimulatedRun
from whenabouts.conformance.simulated_flink import SimulatedFlinkRun
from whenabouts.conformance.simulated_spark import SimulatedSparkRun
from whenabouts.core import Histogram, Interval, JsonPayload, Lateness, Point, between, possibly, within
from whenabouts.core.coalescing.columns import OP
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.errors import QueryError
from whenabouts.core.expressions.tree import Expression, column
from whenabouts.core.harness import Variant
from whenabouts.core.local import Outcome, run
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.shared_coalescing.query import SharedCoalescing
from whenabouts.core.temporal_queries.aggregate_query import TemporalAggregate
from whenabouts.core.temporal_queries.join_query import TemporalJoin
from whenabouts.core.timing_join.modes import BESTS, HOWS, TIES
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.timing_join.settings import STRATEGIES
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.wrappers.deduplication import deduplicated
from whenabouts.core.wrappers.payload_decoding import decoded
from whenabouts.core.wrappers.select_project import SelectProject
from whenabouts.core.wrappers.state_limit import SHED, StateLimit

LATE, SHED_CODE = "WA-1010", "WA-1042"

Tables = tuple[pa.Table, ...]
BatchAnswer = Callable[[Sequence[pa.Table]], Outcome]

SPAN_S, LONGEST_S = 40, 4
COLUMNS = {"id": "int64", "k": "int64", "v": "int64", "kind": "string", "t_min": "int64", "t_max": "int64"}


@dataclass(frozen=True)
class Scenario:
    """A query, the files of its inputs, and the failures of the engine that runs it.

    `plain`, `tables`: the same without payloads, and all rows of each input.
    """

    seed: int
    query: Query
    files: Mapping[str, Tables]
    plain: Query
    tables: Mapping[str, pa.Table]
    buckets: int
    late: bool
    limit: StateLimit | None
    spark: bool
    options: Mapping[str, Any]
    schedule: Schedule

    def __repr__(self) -> str:
        return (
            f"seed {self.seed}: {'Spark' if self.spark else 'Flink'}-like, {self.options}, {self.buckets} buckets, "
            f"{self.schedule}, limit {self.limit}, late rows {self.late}, {self.query!r}"
        )

    def start(self) -> SimulatedRun:
        """The run, its inputs given."""
        kind = SimulatedSparkRun if self.spark else SimulatedFlinkRun
        running: SimulatedRun = kind(self.query, Variant(streaming=True, parallelism=self.buckets), self.schedule)
        running.limit = self.limit
        for name, value in self.options.items():
            setattr(running, name, value)
        for name, tables in self.files.items():
            running.source(name, tables)
        return running


class Traits(NamedTuple):
    """The faults that a query has to handle; `slots`: whether its rows may be spread by time; `where`,
    `possibly`: of a timing join."""

    lateness_s: int
    idle: bool
    slots: bool
    where: Any = None
    possibly: bool = False

    @property
    def lateness(self) -> str:
        """As queries take it."""
        return f"{self.lateness_s} s"

    @property
    def idle_after(self) -> str | None:
        """As queries take it."""
        return "8 s" if self.idle else None


def scenario(seed: int) -> Scenario:
    """The scenario of a seed."""
    draw = Random(seed)
    spark, late, idle = draw.random() < 0.35, draw.random() < 0.45, draw.random() < 0.15
    traits = Traits(draw.choice((0, 1, 3, 6)), idle, slots=spark or not idle)
    apart = Random(f"where {seed}")
    traits = traits._replace(where=apart.choice((None, None, *WHERES)), possibly=apart.random() < 0.15)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of slides longer than the window, and buckets that stay empty
        query = _wrapped(draw, draw.choice(_QUERIES)(draw, traits))
    spread = draw.randrange(1 << 32)
    files = {name: _files(Random(f"{spread} {name}"), traits.lateness_s, late, idle) for name in query.inputs}
    plain, tables = query, {name: pa.concat_tables(each) for name, each in files.items()}
    if draw.random() < 0.1:
        query, files = (
            decoded(query, JsonPayload(COLUMNS)),
            {name: tuple(map(_as_json, f)) for name, f in files.items()},
        )
    kills = draw.choice((1, 1, 2, 3, 4, 8))
    spared = draw.choice((0, 0, 10, 30, 60))
    schedule = Schedule(draw.randrange(1 << 32), kills, draw.choice((0.3, 0.15, 0.06)), spared, free=True)
    limit = StateLimit(draw.randint(2, 12), SHED) if draw.random() < 0.3 and _can_shed(query) else None
    options = _spark_options(draw) if spark else _flink_options(draw)
    buckets = draw.choice((1, 1, 2, 3, 4, 8))
    return Scenario(seed, query, files, plain, tables, buckets, late or idle, limit, spark, options, schedule)


def late_in_slots(seed: int) -> Scenario:
    """A join in narrow time slots on tasks with watermarks of their own, many of its rows late."""
    draw = Random(seed)
    spread: dict[str, Any] = {
        "on": draw.choice(("k", None)), "time_slots": "700 ms", "lateness": f"{draw.choice((0, 1, 3))} s"
    }  # fmt: skip
    point, interval = Point("t_max"), Interval("t_min", "t_max", f"{LONGEST_S} s")
    query: Query = TimingJoin(
        left_time=point, right_time=draw.choice((point, interval)), condition=between("-3 s", "3 s", confidence=0.5),
        how=draw.choice(("inner", "left_outer", "left_semi")), **spread,
    )  # fmt: skip
    if draw.random() < 0.3:
        windows = {("a", "b"): "2 s", ("b", "c"): ("-1 s", "4 s")}
        query = WindowJoin(times=dict.fromkeys("abc", point), windows=windows, **spread)
    query = deduplicated(query, "id") if draw.random() < 0.25 else query
    files = {name: _files(draw, query.lateness_us[0] // SECOND, late=True, idle=False) for name in query.inputs}
    tables = {name: pa.concat_tables(each) for name, each in files.items()}
    schedule = Schedule(draw.randrange(1 << 32), draw.choice((0, 1, 3)), 0.1, draw.choice((0, 30)), free=True)
    options = _flink_options(draw) | {"most_tasks": draw.choice((2, 3))}
    buckets = draw.choice((2, 3, 8))
    return Scenario(seed, query, files, query, tables, buckets, True, None, False, options, schedule)


def _can_shed(query: Query) -> bool:
    """Whether shed rows have no further effect: copies cannot be shed, and the time of a shed row still moves a
    window."""
    return isinstance(query, TimingJoin | WindowJoin) and query.time_slots is None


def _spark_options(draw: Random) -> dict[str, Any]:
    return {"files_at_once": draw.choice((1, 2, 3))}


def _flink_options(draw: Random) -> dict[str, Any]:
    max_latency_ms = draw.choice((None, None, 20))
    return {
        "process_mode": draw.random() < 0.75,
        "bundle_size": draw.choice((1, 2, 5, 1000)),
        "aligned": draw.random() < 0.6,
        "packers_of_input": draw.choice((1, 1, 1, 2)),
        "most_tasks": draw.choice((1, 2, 3)),
        "max_latency_ms": max_latency_ms,
        "gathers": max_latency_ms is not None and draw.random() < 0.5,
    }


def _other_numbers(left: pa.Table, right: pa.Table) -> pa.ChunkedArray:
    return pc.not_equal(left["id"], right["id"])


WHERES = ("left.v = right.v", "id_left < right.id OR right.v IS NULL", "left.kind <> right.kind", _other_numbers)
"""Conditions on the columns of both rows of a timing join."""


# --- Queries ----------------------------------------------------------------------------------------------------------
def _timing_join(draw: Random, traits: Traits) -> Query:
    lateness = Lateness(traits.lateness, traits.lateness, traits.idle_after)
    specs = (
        Point("t_max"),
        Interval("t_min", "t_max", max_uncertainty=f"{LONGEST_S} s"),
        Histogram("t_max", template="kind", templates=templates.UP_TO_4_S),
    )
    lo = draw.randint(-6, 3)
    while True:
        options: dict[str, Any] = {
            "how": draw.choice((*HOWS, "inner")),
            "best": draw.choice((None, None, *BESTS)),
            "strategy": draw.choice(STRATEGIES),
            "block_size": draw.choice((None, 1, 3, 1000)),
            "max_latency": draw.choice((None, None, "2 s")),
            "time_slots": draw.choice((None, None, "700 ms", "9 s")) if traits.slots else None,
            "on": draw.choice(("k", "k", None)),
        }
        condition = between(f"{lo} s", f"{lo + draw.randint(1, 8)} s", confidence=draw.choice((0.2718, 0.6180, 1.0)))
        condition = possibly(condition) if traits.possibly else condition
        try:
            query = TimingJoin(
                left_time=draw.choice(specs), right_time=draw.choice(specs), condition=condition, lateness=lateness,
                where=traits.where, **options,
            )  # fmt: skip
            return replace(query, ties=draw.choice(TIES)) if query.best else query
        except QueryError:
            continue  # some modes have no slots


def _window_join(draw: Random, traits: Traits) -> Query:
    certain: dict[tuple[str, str], Any] = {("a", "b"): "2 s", ("b", "c"): ("-1 s", "4 s")}
    uncertain: dict[tuple[str, str], Any] = {
        ("a", "b"): within("4 s", confidence=0.4142),
        ("b", "c"): within("5 s", confidence=0.5772),
    }
    points = draw.random() < 0.6
    time = Point("t_max") if points else Interval("t_min", "t_max", max_uncertainty=f"{LONGEST_S} s")
    windows = certain if points else uncertain
    if draw.random() < 0.4:
        windows = windows | {("a", "c"): "3 s" if points else within("6 s", confidence=0.3183)}
    return WindowJoin(
        times=dict.fromkeys("abc", time), windows=windows, on="k", lateness=traits.lateness,
        idle_after=traits.idle_after, strategy=draw.choice(("auto", "forward")),
    )  # fmt: skip


def _window(draw: Random) -> dict[str, Any]:
    kind = draw.choice(("time", "time", "rows", "all"))
    if kind == "all":
        return {}
    given: dict[str, Any] = {"window": f"{draw.randint(2, 15)} s"}
    if kind == "rows":
        given = {"rows": draw.randint(2, 12), "per_group": draw.random() < 0.5}
    how = draw.choice(("end", "at", "slide", "slide"))
    if how == "slide":
        given["slide"] = f"{draw.randint(2, 10)} s" if kind == "time" or draw.random() < 0.5 else draw.randint(1, 6)
    elif how == "at":
        given["at"] = YEAR_2024 + draw.randint(0, SPAN_S) * SECOND
    return given


def _coalescing(draw: Random, traits: Traits) -> Coalesce:
    return Coalesce(
        time="t_max", group=draw.choice(("k", "k", ())), values=draw.choice(("v", ["v", "kind"])),
        scheme=draw.choice(("eager", "lazy")), lateness=traits.lateness, **_window(draw),
    )  # fmt: skip


def _early_coalescing(draw: Random, traits: Traits) -> Coalesce:
    while True:
        query = _coalescing(draw, traits)
        if query.scheme == "eager" and query.extents.slide_rows is None:
            return replace(query, emit="early")


def _temporal_join(draw: Random, traits: Traits) -> Query:
    given: dict[str, Any] = {}
    while "slide" not in given or (given.get("per_group") and isinstance(given["slide"], int)):
        given = _window(draw)  # groups share no instants by which a join could slide
    return TemporalJoin(
        time="t_max", group="k", values="v", on=draw.choice(("k", "v")), relation=draw.choice(("overlaps", "meets")),
        lateness=traits.lateness, idle_after=traits.idle_after, **given,
    )  # fmt: skip


def _temporal_aggregate(draw: Random, traits: Traits) -> Query:
    given: dict[str, Any] = {}
    while not given:
        given = _window(draw)
    return TemporalAggregate(
        time="t_max", group="k", values="v", lateness=traits.lateness,
        aggregates={"n": "count", "longest": "max", "middle": "median"}, **given,
    )  # fmt: skip


def _shared(draw: Random, traits: Traits) -> Query:
    queries = {name: _coalescing(draw, traits) for name in ("one", "two", "three")}
    schemes = {name: draw.choice(("eager", "lazy")) for name, query in queries.items() if query.window}
    adapting = RandomPolicy(draw.randrange(1000)) if draw.random() < 0.5 else None
    return SharedCoalescing(queries=queries, schemes=schemes, adapting=adapting)


_QUERIES: tuple[Callable[[Random, Traits], Query], ...] = (
    *[_timing_join] * 6,
    *[_window_join] * 2,
    *[_coalescing] * 3,
    *[_early_coalescing] * 2,
    _temporal_join,
    _temporal_aggregate,
    _shared,
)


def _wrapped(draw: Random, query: Query) -> Query:
    """Some queries select rows, some deduplicate them."""
    if isinstance(query, Coalesce) and type(query) is Coalesce and draw.random() < 0.3:
        some = Expression("lt", (column("v"), Expression("literal", value=2)))
        kept = ("op", "n") if query.emit == "early" else ("n",)
        columns = tuple((name, column(name)) for name in kept)
        query = SelectProject(query=query, where={query.inputs[0]: some}, derived={}, columns=columns)
    return deduplicated(query, "id") if draw.random() < 0.25 else query


# --- Inputs -----------------------------------------------------------------------------------------------------------
def _files(draw: Random, lateness_s: int, late: bool, idle: bool) -> Tables:
    """Files of one input: rows in an order in which only the intended ones are late."""
    rows: list[dict[str, Any]] = []
    key_s = draw.choice((None, None, 3, 12))  # a key may have its time, and nothing comes for it later
    for id_ in range(draw.choice((0, 3, 12, 12, 18, 18, 24, 24, 24, 24))):
        t_max = YEAR_2024 + draw.choice((SECOND, SECOND // 4)) * draw.randint(0, SPAN_S)
        length = draw.randint(0, LONGEST_S)
        row: dict[str, Any] = {"id": id_, "k": draw.choice((1, 2, 3, None)), "v": draw.choice((1, 1, 1, 2, None))}
        row |= {"kind": list(templates.UP_TO_4_S)[length], "t_min": t_max - length * SECOND, "t_max": t_max}
        if key_s is not None:
            row["k"] = 1 + (t_max - YEAR_2024) // (key_s * SECOND)
        if draw.random() < 0.04:
            row["t_max"] = None
        rows += [row] * draw.choice((1, 1, 1, 1, 1, 2))
    comes = [(row["t_max"] or YEAR_2024) + draw.randint(0, lateness_s * SECOND) for row in rows]
    if late:
        comes = [at + draw.choice((5, 15, 30)) * SECOND * (draw.random() < 0.25) for at in comes]
    if idle and draw.random() < 0.5:
        silent = YEAR_2024 + draw.randint(0, SPAN_S) * SECOND
        comes = [at if at < silent else at + 25 * SECOND for at in comes]
    order = sorted(range(len(rows)), key=lambda n: (comes[n], draw.random()))
    ends = sorted(draw.randint(0, len(rows)) for _ in range(draw.randint(0, 7)))
    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in COLUMNS.items()])
    whole = pa.Table.from_pylist([rows[n] for n in order], schema)
    return tuple(whole.slice(a, b - a) for a, b in zip([0, *ends], [*ends, len(rows)], strict=True))


def _as_json(table: pa.Table) -> pa.Table:
    """The rows as records in one column."""
    return pa.table({"value": pa.array([json.dumps(row).encode() for row in table.to_pylist()], pa.binary())})


# --- The law ----------------------------------------------------------------------------------------------------------
def check(given: Scenario) -> SimulatedRun:
    """Run a scenario, and raise AssertionError with its seed and failures unless the output is the batch answer."""
    running = given.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of rejected rows, and of queries that share no group
            _check(given, running.collect())
    except Exception as error:
        raise AssertionError(f"{given!r}\nkilled at: {running.fate.log}\n{type(error).__name__}: {error}") from error
    return running


def _check(given: Scenario, outcome: Outcome) -> None:
    codes = outcome.rejects["code"]
    refused = outcome.rejects.filter(pc.is_in(codes, pa.array([LATE, SHED_CODE])))
    if not given.late:
        assert LATE not in codes.to_pylist(), "no row is late"
    if given.limit is None:
        assert SHED_CODE not in codes.to_pylist(), "no row is shed"
    accepted = [
        _without(table, refused.filter(pc.equal(refused["input"], name))) for name, table in given.tables.items()
    ]
    want = run(given.plain, accepted)
    rows = applied if OP in want.output.column_names else multiset.rows
    output = outcome.output.select(want.output.column_names)
    multiset.assert_same(rows(output), rows(want.output), "output")
    others = outcome.rejects.filter(pc.invert(pc.is_in(codes, pa.array([LATE, SHED_CODE]))))
    columns = want.rejects.column_names
    multiset.assert_same(multiset.rows(others, columns), multiset.rows(want.rejects), "rejects")
    counts = outcome.metrics
    assert counts["rows_in"] == sum(table.num_rows for table in given.tables.values()), "rows in"
    assert counts["rows_in"] == counts["rows_processed"] + counts["rows_rejected"] + counts["rows_replayed"], "accounts"
    assert counts["rows_rejected"] == outcome.rejects.num_rows, "rows rejected"


def _without(table: pa.Table, refused: pa.Table) -> pa.Table:
    """The rows of a table without the rejected ones, with their multiplicity."""
    left = Counter(zip(*refused.select(table.column_names).to_pydict().values(), strict=True))
    keep = []
    for row in zip(*table.to_pydict().values(), strict=True):
        keep.append(not left[row])
        left[row] -= bool(left[row])
    return table.filter(pa.array(keep, pa.bool_()))


def main(first: int, count: int) -> int:
    """Run `count` scenarios from the seed `first` on; report the failures and the scenarios per second."""
    began, failed = time.perf_counter(), 0
    for seed in range(first, first + count):
        try:
            check(scenario(seed))
        except AssertionError as error:
            failed += 1
            sys.stdout.write(f"{error}\n\n")
    per_second = count / (time.perf_counter() - began)
    sys.stdout.write(f"{count} schedules, {failed} failed, {per_second:.0f} a second\n")
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:]))))
