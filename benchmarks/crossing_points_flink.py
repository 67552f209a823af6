"""Where Flink's own interval join is the cheaper one: our timing join of Tables beside it by rate, keys and state.

    python benchmarks/crossing_points_flink.py [--rate N]... [--keys N]... [--lateness TEXT]... [--rounds N]

Both get the same Tables, whose rows arrive by the clock (`paced_rows.py`) from one source that both sides share, and
discard their pairs in the same sink. They run one after the other in one JVM, each in a Flink with one slot, with the
reuse of objects, its state on the JVM's heap, and no checkpoints; ours has one bucket, since there is one slot. Times
are exact, and the condition is that of `flink_join.py`. First each counts and hashes the pairs of finite rows that more
than fill its state, and the hashes must agree.

Varied are the rows of each side in a second, the number of keys, and how late rows may come, which is how long rows
stay in state. As in `crossing_points.py` a key has 1.2 events of each side in a second of event time, at all rates:
event time is the faster, the more rows arrive, and neither the state nor the pairs of a row depend on the rate.

A job first takes as many rows as state holds, at least `WARMING`, then the highest rate to warm up, then all rates in
turn, in each round. A point is the ratio of the medians of CPU-seconds a second of all processes, the source and all
threads of Flink included, without the JVM's compiler, which is idle in a job that has run for long. A line above 1 is
where ours costs less; where it crosses 1, the answer changes. Rates at which one of both cannot keep pace are left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import click
from crossings import KEYS, LATE, PER_SECOND, ROWS, picture, rows_held, verdict
from curves import Curve
from flink_join import JOIN, NATIVE, STRIDES, VIEW, discard_sql, run_sql
from measuring import SEPARATOR, DisagreementError, Suite
from paced_rows import Paced, Phase
from process_cpu import cpu_of_tree, cpu_since
from pyflink.table import Schema, StreamTableEnvironment

from whenabouts.core import Lateness
from whenabouts.core.durations import parse_duration
from whenabouts.flink_plugin import timing_join
from whenabouts.flink_plugin.mini_cluster import local_environment

OWN, UNIT = "Flink's", "rows a second"
RATES = (*ROWS, 128_000)
OURS, NATIVE_JOIN = "ours", "native"
WARMING, WARM_S, SETTLING_S = 200_000, 8, 2
"""Rows of a side before the clock begins, seconds at the highest rate before anything is measured, and seconds at each
rate before it is measured."""
ANSWERED = 50_000
"""Rows of a side over full state, whose pairs are counted and hashed."""
FEW_WATERMARKS = {"pipeline__auto_watermark_interval": "10 s"}
"""While pairs are counted: with each watermark Flink tells the client a new number."""


@dataclass(frozen=True)
class Case:
    """What varies besides the rate."""

    keys: int
    lateness: str

    @property
    def name(self) -> str:
        """The name of its line."""
        return f"{self.keys:,} keys, {self.lateness} late"

    @property
    def filling(self) -> int:
        """Rows of a side that fill state and warm up the JVM, as fast as they are taken."""
        return max(WARMING, rows_held(self.keys, PER_SECOND, self.lateness))

    def phases(self, rates: Sequence[int], rounds: int, seconds: float) -> list[Phase]:
        """Rows of both sides: those before the clock begins, those that warm up, then each rate."""
        fastest = Phase(2 * max(rates) * WARM_S, 2 * max(rates))
        each = [Phase(round(2 * rate * (SETTLING_S + seconds)), 2 * rate) for rate in rates]
        return [Phase(2 * self.filling), fastest, *each * rounds]


def cases(keys: Sequence[int], late: Sequence[str]) -> Iterator[Case]:
    """All combinations."""
    return (Case(count, lateness) for lateness in late for count in keys)


def tables_of(case: Case, paced: Paced, **conf: object) -> StreamTableEnvironment:
    """Tables of both sides in a job of one slot: number `n` is a row of one side, `n + 1` one of the other."""
    env = local_environment(1, pipeline__object_reuse="true", **conf)
    tables = StreamTableEnvironment.create(env)
    at_ms = f"f0 / 2 * 10000 / {round(case.keys * PER_SECOND * 10)}"
    schema = (
        Schema.new_builder().column("f0", "BIGINT").column_by_expression("id", "f0")
        .column_by_expression("t", f"TO_TIMESTAMP_LTZ({at_ms}, 3)")
        .watermark("t", f"t - INTERVAL '{parse_duration(case.lateness) // 1_000_000}' SECOND(3)").build()
    )  # fmt: skip
    tables.create_temporary_view("rows_of_both", tables.from_data_stream(paced.stream(env), schema))
    for parity, (side, stride) in enumerate(STRIDES.items()):
        tables.execute_sql(VIEW.format(side=side, stride=stride, keys=case.keys, parity=parity))
    return tables


def pairs_of(who: str, case: Case, tables: StreamTableEnvironment) -> str:
    """The query for the pairs."""
    if who == NATIVE_JOIN:
        return NATIVE
    sides = [tables.sql_query(f"SELECT id, k, t FROM {side}_rows") for side in STRIDES]
    pairs = timing_join(*sides, **JOIN, lateness=Lateness(case.lateness, case.lateness), buckets=1)
    tables.create_temporary_view("pairs", pairs)
    return "SELECT id_left, id_right FROM pairs"


def answer(case: Case) -> int:
    """The number of pairs. Raises DisagreementError unless both give the same, by number and hash."""
    rows = 2 * (rows_held(case.keys, PER_SECOND, case.lateness) + ANSWERED)
    found: dict[str, Any] = {}
    for who in (NATIVE_JOIN, OURS):
        tables = tables_of(case, Paced([Phase(rows)]), **FEW_WATERMARKS)
        found[who] = run_sql(tables, pairs_of(who, case, tables), check=True)
    if found[OURS] != found[NATIVE_JOIN] or not found[OURS][0]:
        raise DisagreementError(f"{case.name}: the pairs differ (number, hash): {found}")
    return int(found[OURS][0])


def spent(who: str, case: Case, rates: list[int], rounds: int, seconds: float) -> dict[int, list[dict[str, float]]]:
    """CPU-seconds a second of each process in each round, by rate, without rates at which rows came too late."""
    paced = Paced(case.phases(rates, rounds, seconds))
    tables = tables_of(case, paced)
    job = discard_sql(tables, pairs_of(who, case, tables))
    costs: dict[int, list[dict[str, float]]] = {rate: [] for rate in rates}
    for phase, rate in enumerate(rates * rounds, 2):
        paced.wait_for(phase, job)
        time.sleep(SETTLING_S)
        costs[rate].append(cost := cost_of(0.95 * seconds))  # it ends before the next rate begins
        click.echo(f"{case.name}, {rate:,} {UNIT}, {who}: {hot(cost):.4f} CPU-s a second, {told(cost)}")
    job.wait()
    for rate in {rate for rate, behind in zip(rates * rounds, paced.behind()[2:], strict=True) if behind}:
        click.secho(f"{case.name}, {rate:,} {UNIT}, {who}: rows came too late, left out", fg="red")
        del costs[rate]
    return costs


def cost_of(seconds: float) -> dict[str, float]:
    """CPU-seconds a second of each process, without this thread's, which does nothing but look."""
    looking, before, started = time.thread_time(), cpu_of_tree(), time.perf_counter()
    time.sleep(seconds)
    looked, lasted = time.thread_time() - looking, time.perf_counter() - started
    cost = cpu_since(before)
    cost["driver"] = max(cost["driver"] - looked, 0.0)
    return {part: cpu / lasted for part, cpu in cost.items()}


def hot(cost: dict[str, float]) -> float:
    """Without the JVM's compiler."""
    return sum(cost.values()) - cost.get("JIT", 0.0)


def told(cost: dict[str, float]) -> str:
    """The parts in words."""
    return ", ".join(f"{part} {cpu:.4f}" for part, cpu in sorted(cost.items()))


def line(suite: Suite, case: Case, rates: Sequence[int], rounds: int, seconds: float) -> list[tuple[float, float]]:
    """The ratio Flink's own over ours by rate."""
    pairs, points = answer(case), []
    native, ours = (spent(who, case, sorted(rates, reverse=True), rounds, seconds) for who in (NATIVE_JOIN, OURS))
    for rate in sorted(native.keys() & ours.keys()):
        for who, costs in ((OURS, ours[rate]), (NATIVE_JOIN, native[rate])):
            parts = {part: median(cost.get(part, 0.0) for cost in costs) for part in costs[0]}
            name = f"{case.name}, {rate:,} {UNIT}" + SEPARATOR + who
            suite.record(name, list(map(hot, costs)), rows_in=2 * rate, rows_out=pairs, **parts)
        ratio = median(map(hot, native[rate])) / median(map(hot, ours[rate]))
        points.append((float(rate), ratio))
        click.echo(f"{case.name}, {rate:,} {UNIT}: {ratio:.2f}")
    if not points:
        raise click.ClickException(f"{case.name}: rows came too late at every rate")
    return points


@click.command(help=__doc__)
@click.option(
    "--rate", "rates", multiple=True, type=int, default=RATES, show_default=True, help="rows of a side a second"
)
@click.option("--keys", multiple=True, type=int, default=KEYS, show_default=True)
@click.option("--lateness", multiple=True, default=LATE, show_default=True, help="whole seconds")
@click.option("--rounds", default=2, show_default=True, help="measurements of each rate")
@click.option("--seconds", default=5.0, show_default=True, help="how long each one takes")
def main(rates: tuple[int, ...], keys: tuple[int, ...], lateness: tuple[str, ...], rounds: int, seconds: float) -> None:
    """All combinations, and the picture."""
    suite, found = Suite("crossing_points_flink", rounds), {}
    for case in cases(keys, lateness):
        found[case.name] = line(suite, case, rates, rounds, seconds)
        suite.save()
    tell(suite, found)


def tell(suite: Suite, found: Curve) -> None:
    """The picture, and where each line crosses 1."""
    plot = picture(suite.name, found, OWN, "rows of a side in a second", (0.2, 0.5, 1, 2, 5))
    crossed = "; ".join(verdict(label, points, OWN, UNIT) for label, points in found.items())
    said = "CPU-seconds of a second without the JVM's compiler, exact times, rows of Tables to a Table"
    suite.finding("Flink's own join and ours", f"{said}: {crossed}.", plots=[plot])
    suite.save()


if __name__ == "__main__":
    main()
