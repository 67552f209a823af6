"""Our timing join on Flink against Flink's own SQL interval join on the same rows: CPU of JVM and Python per row.

    python benchmarks/flink_join.py [--form NAME]... [--rounds 2] [--no-latency]
    python benchmarks/flink_join.py --latency [--seconds 30]

All forms process the same rows in one JVM, alternately: `native` is Flink's SQL interval join on exact times, with rows
generated inside the JVM, the cheapest source there is, the sides in turn: of two sources one may run ahead, and then
Flink's join looks through all rows that wait. `table` gets the same Tables, and both end in the same sink;
`blocks` reads the rows from Parquet files with `read_files` (Flink's pip package cannot read these); `native-csv` and
`blocks-csv` read the same text files. `eager` gets a DataStream with `max_latency="100 ms"`, with Python in the JVM's
threads. Ours use exact times too, so that all give the same pairs: a first run of each counts and hashes them, and the
hashes must agree; `intervals` is `blocks` with uncertain times and the probability predicate. The other runs discard
the pairs.

Each form runs with two numbers of rows, once to warm up and then in each round. Reported are CPU-seconds per million
rows of input, of the JVM (with its compiler, JIT) and of Python: of the smaller run with the start of its job, and of
each further row, which is what a stream costs that runs for long.

Then latency: rows arrive one by one, 1,000 per second and side. The latency of a pair is the time from the creation of
its later row until Python receives it after the join. The first seconds, in which Flink and the kernels start, are left
out.
"""

from __future__ import annotations

import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from latency_plot import draw_waits
from measuring import RESULTS, SEPARATOR, DisagreementError, Suite
from process_cpu import cpu_of_tree, cpu_since
from pyarrow import csv
from pyflink.common import Row, Types, WatermarkStrategy
from pyflink.datastream import DataStream, MapFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors import Sink
from pyflink.java_gateway import get_gateway
from pyflink.table import StreamTableEnvironment, TableResult

from whenabouts.core import Interval, Lateness, Point, within
from whenabouts.core.state.segment_codec import decode
from whenabouts.flink_plugin import timing_join
from whenabouts.flink_plugin.file_source import read_files
from whenabouts.flink_plugin.mini_cluster import PROCESS, THREAD, local_environment

KEYS = 1_000
STRIDES = {"left": 7919, "right": 104_729}
"""Row `id` of a side has key `id * stride mod KEYS` and the time of `id` milliseconds."""
PRIME = 1_000_003
LATENESS = Lateness(left="1 s", right="1 s")
CONDITION = within("1 s", confidence=1)
JOIN: Any = {
    "on": "k",
    "left_time": Point("t"),
    "right_time": Point("t"),
    "condition": CONDITION,
    "probability": False,
}


@dataclass(frozen=True)
class Form:
    """`rows` of a side, and how many they are in the longer run."""

    name: str
    rows: int
    more: int
    mode: str = PROCESS


FORMS = {
    form.name: form
    for form in (
        Form("native", 400_000, 2_400_000),
        Form("blocks", 400_000, 2_400_000),
        Form("intervals", 400_000, 2_400_000),
        Form("table", 400_000, 2_400_000),
        Form("native-csv", 400_000, 2_400_000),
        Form("blocks-csv", 400_000, 2_400_000),
        Form("eager", 100_000, 600_000, THREAD),  # fewer, since each costs more
    )
}


def side_table(side: str, rows: int) -> pa.Table:
    """The rows of a side, as `VIEW` makes them."""
    number = np.arange(rows)
    t_us = number * 1000
    columns = {"id": number, "k": number * STRIDES[side] % KEYS, "t": t_us, "t_min": t_us - number % 100 * 1000}
    return pa.table(columns)


TABLE = """
    CREATE TEMPORARY TABLE rows_of_both (
        id BIGINT, t AS TO_TIMESTAMP_LTZ(id / 2, 3), WATERMARK FOR t AS t - INTERVAL '1' SECOND
    ) WITH ('connector' = 'datagen', 'rows-per-second' = '1000000000', 'fields.id.kind' = 'sequence',
            'fields.id.start' = '0', 'fields.id.end' = '{last}')
"""
VIEW = """
    CREATE TEMPORARY VIEW {side}_rows AS
    SELECT id / 2 AS id, MOD(id / 2 * {stride}, {keys}) AS k, t FROM rows_of_both WHERE MOD(id, 2) = {parity}
"""
CSV_TABLE = """
    CREATE TEMPORARY TABLE {side}_rows (
        mark BIGINT, id BIGINT, k BIGINT, us BIGINT, t AS TO_TIMESTAMP_LTZ(us / 1000, 3),
        WATERMARK FOR t AS t - INTERVAL '1' SECOND
    ) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv', 'csv.allow-comments' = 'true')
"""
NATIVE = """
    SELECT l.id AS id_left, r.id AS id_right FROM left_rows AS l JOIN right_rows AS r
    ON l.k = r.k AND l.t BETWEEN r.t - INTERVAL '1' SECOND AND r.t + INTERVAL '1' SECOND
"""
HASH = "COUNT(*), SUM(CAST(MOD(id_left * 31 + id_right * 17, {prime}) AS BIGINT))"


def environment(form: Form, rows: int) -> StreamTableEnvironment:
    """Tables of both sides in a job of one slot."""
    env = local_environment(1, mode=form.mode)
    tables = StreamTableEnvironment.create(env)
    tables.execute_sql(TABLE.format(last=2 * rows - 1))
    for parity, (side, stride) in enumerate(STRIDES.items()):
        tables.execute_sql(VIEW.format(side=side, stride=stride, keys=KEYS, parity=parity))
    return tables


def discard(stream: DataStream) -> None:
    """End a stream in a sink that discards it."""
    stream.sink_to(Sink(get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()))


def run_native(form: Form, rows: int, *, check: bool) -> tuple[int, int] | None:
    """Flink's own join."""
    return run_sql(environment(form, rows), NATIVE, check=check)


def run_native_csv(form: Form, rows: int, folder: Path, *, check: bool) -> tuple[int, int] | None:
    """Flink's own join of rows in text files."""
    tables = StreamTableEnvironment.create(local_environment(1, mode=form.mode))
    for side in STRIDES:
        tables.execute_sql(CSV_TABLE.format(side=side, path=_folder(folder, side, rows, "csv").as_uri()))
    return run_sql(tables, NATIVE, check=check)


def run_sql(tables: StreamTableEnvironment, pairs: str, *, check: bool) -> tuple[int, int] | None:
    """Run a job to its end. `check`: count and hash the pairs instead of discarding them."""
    if check:
        tables.get_config().set("table.exec.mini-batch.enabled", "true")
        tables.get_config().set("table.exec.mini-batch.allow-latency", "1 s")
        tables.get_config().set("table.exec.mini-batch.size", "100000")
        with tables.execute_sql(f"SELECT {HASH.format(prime=PRIME)} FROM ({pairs})").collect() as found:
            last = [tuple(row) for row in found][-1]
        return int(last[0]), int(last[1])
    discard_sql(tables, pairs).wait()
    return None


def discard_sql(tables: StreamTableEnvironment, pairs: str) -> TableResult:
    """Start a job whose pairs end in a sink that discards them."""
    tables.execute_sql("CREATE TEMPORARY TABLE gone (id_left BIGINT, id_right BIGINT) WITH ('connector' = 'blackhole')")
    return tables.execute_sql(f"INSERT INTO gone {pairs}")


def run_blocks(form: Form, rows: int, folder: Path, *, check: bool) -> tuple[int, int] | None:
    """Ours from files, exact or (`intervals`) uncertain times."""
    env = local_environment(1, mode=form.mode)
    kind = "csv" if form.name.endswith("csv") else "parquet"
    schema = pa.schema([(name, pa.int64()) for name in ("id", "k", "t")]) if kind == "csv" else None
    left, right = (read_files(env, _folder(folder, side, rows, kind), name=side, schema=schema) for side in STRIDES)
    uncertain = form.name == "intervals"
    spec = Interval("t_min", "t", max_uncertainty="100 ms") if uncertain else Point("t")
    condition = within("1 s", confidence=0.8) if uncertain else CONDITION
    pairs = timing_join(
        left,
        right,
        on="k",
        left_time=spec,
        right_time=spec,
        condition=condition,
        lateness=LATENESS,
        probability=uncertain,
    )
    if not check:
        discard(pairs.stream)
        env.execute("ours")
        return None
    schema = pairs.schema
    told = pairs.stream.map(lambda blob: _hash(blob, schema), Types.TUPLE([Types.LONG(), Types.LONG()]))
    with told.execute_and_collect() as found:
        parts = list(found)
    return sum(int(part[0]) for part in parts), sum(int(part[1]) for part in parts)


def _hash(blob: Any, schema: pa.Schema) -> tuple[int, int]:
    block = decode(bytes(blob), schema)
    left, right = (np.asarray(block.column(f"id_{side}")) for side in STRIDES)
    return block.num_rows, int(((left * 31 + right * 17) % PRIME).sum())


def run_table(form: Form, rows: int, *, check: bool) -> tuple[int, int] | None:
    """Ours from Tables to a Table."""
    tables = environment(form, rows)
    sides = [tables.sql_query(f"SELECT id, k, t FROM {side}_rows") for side in STRIDES]
    pairs = timing_join(*sides, **JOIN, lateness=LATENESS)
    tables.create_temporary_view("pairs", pairs)
    return run_sql(tables, "SELECT id_left, id_right FROM pairs", check=check)


def run_eager(form: Form, rows: int, *, check: bool) -> tuple[int, int] | None:
    """Ours from a DataStream, with rows that wait at most 100 ms."""
    tables = environment(form, rows)
    chosen = "SELECT id, k, id * 1000 AS t FROM {}_rows"
    sides = [tables.to_data_stream(tables.sql_query(chosen.format(side))) for side in STRIDES]
    pairs = timing_join(*sides, **JOIN, lateness=LATENESS, max_latency="100 ms")
    if not check:
        discard(pairs)
        pairs.get_execution_environment().execute("ours")
        return None
    tables.create_temporary_view("pairs", tables.from_data_stream(pairs))
    return run_sql(tables, "SELECT id_left, id_right FROM pairs", check=True)


def expected(rows: int) -> tuple[int, int]:
    """Number and hash of the pairs, by sorting each key."""
    count = total = 0
    sides = [side_table(side, rows) for side in STRIDES]
    for key in range(KEYS):
        left, right = (np.asarray(side.filter(pc.field("k") == key)["id"]) for side in sides)
        first, last = np.searchsorted(right, left - 1000), np.searchsorted(right, left + 1000, "right")
        for a, i, j in zip(left.tolist(), first.tolist(), last.tolist(), strict=True):
            count += j - i
            total += int(((a * 31 + right[i:j] * 17) % PRIME).sum())
    return count, total


def cpu_of(work: Callable[[], Any]) -> Cpu:
    """CPU-seconds by process while `work` runs."""
    before = cpu_of_tree()
    work()
    return cpu_since(before)


def measure(suite: Suite, names: tuple[str, ...]) -> None:
    """All forms alternately, after one run each that counts and hashes the pairs, and one that warms up."""
    with tempfile.TemporaryDirectory(prefix="whenabouts-") as folder:
        runs = {name: runner_of(FORMS[name], Path(folder)) for name in names}
        answers = {name: run(FORMS[name].rows, check=True) for name, run in runs.items()}
        for name, answer in answers.items():
            click.echo(f"{name}: {answer} pairs and hash")
            if name != "intervals" and answer != expected(FORMS[name].rows):
                raise DisagreementError(f"{name} gave {answer}, not {expected(FORMS[name].rows)} (pairs, hash)")
        for name, run in runs.items():
            run(FORMS[name].more, check=False)
        spent: dict[str, list[tuple[Cpu, Cpu]]] = {name: [] for name in names}
        for number in range(suite.rounds):
            for name, run in runs.items():
                form = FORMS[name]
                few, many = (cpu_of(partial(run, rows, check=False)) for rows in (form.rows, form.more))
                spent[name].append((few, many))
                click.echo(f"round {number}, {name}: {few}, {many}")
    for name, costs in spent.items():
        tell(suite, FORMS[name], costs, answers[name])


def tell(suite: Suite, form: Form, costs: list[tuple[Cpu, Cpu]], answer: tuple[int, int]) -> None:
    """Record what a row costs with the start of the job, and what each further row costs, in microseconds."""
    rows, further = 2 * form.rows, 2 * (form.more - form.rows)
    whole = [sum(few.values()) / rows * 1e6 for few, _ in costs]
    parts = {part: statistics.median(few.get(part, 0.0) for few, _ in costs) for part in costs[0][0]}
    facts = {"rows_out": answer[0], "hash": f"{answer[1]:x}"}
    suite.record(WORKLOAD + SEPARATOR + form.name, whole, rows_in=rows, **facts, **parts)
    slope = [(sum(many.values()) - sum(few.values())) / further * 1e6 for few, many in costs]
    each = {
        part: statistics.median((many.get(part, 0.0) - few.get(part, 0.0)) / further * 1e6 for few, many in costs)
        for part in costs[0][1]
    }
    suite.record(FURTHER + SEPARATOR + form.name, slope, rows_in=further, **each)
    told = ", ".join(f"{part} {us:.2f}" for part, us in each.items())
    click.echo(
        f"{form.name}: us of CPU a row: {statistics.median(whole):.2f} with the start of the job, "
        f"{statistics.median(slope):.2f} each further row ({told})"
    )


Cpu = dict[str, float]
"""CPU-seconds by process."""

WORKLOAD = "a million rows into a join"
FURTHER = "a million further rows into a join"


def _folder(folder: Path, side: str, rows: int, kind: str) -> Path:
    """Where the rows of a side are, written if they are not there yet."""
    path = folder / f"{side}-{rows}-{kind}" / f"rows.{kind}"
    if not path.exists():
        path.parent.mkdir()
        table = side_table(side, rows)
        if kind == "parquet":
            pq.write_table(table, path, row_group_size=ROW_GROUP)
        else:  # the first line is a comment to Flink, and the names of the columns to Arrow
            marked = table.select(["id", "k", "t"]).add_column(0, "#", pa.array(np.zeros(rows, np.int8)))
            with path.open("wb") as file:
                file.write(b"#,id,k,t\n")
                csv.write_csv(marked, file, csv.WriteOptions(include_header=False))
    return path.parent


ROW_GROUP = 1 << 20
"""pyarrow's own choice."""


def runner_of(form: Form, folder: Path) -> Callable[..., Any]:
    """A function that runs a form, given the rows of a side, and `check`."""
    files = {"native-csv": run_native_csv}
    if form.name in files or form.name in ("blocks", "intervals", "blocks-csv"):
        run = files.get(form.name, run_blocks)
        for side in STRIDES:
            for rows in (form.rows, form.more):
                _folder(folder, side, rows, "csv" if form.name.endswith("csv") else "parquet")
        return lambda rows, *, check: run(form, rows, folder, check=check)
    return partial({"native": run_native, "table": run_table, "eager": run_eager}[form.name], form)


@dataclass(frozen=True)
class Pace:
    """A way to run the join at a given pace; `bound_ms`: what its `max_latency` promises."""

    name: str
    mode: str
    strategy: str
    bound_ms: int
    buckets: int | None = None


PACES = (
    Pace("eager", THREAD, "auto", 100, buckets=1),  # one task does the work: fewer steps of few rows
    Pace("lazy", THREAD, "lazy", 500),
    Pace("eager, processes", PROCESS, "auto", 500, buckets=1),  # five bundles on the way: more than 100 ms
)


def latencies(suite: Suite, seconds: int) -> None:
    """The latency of pairs at 2,000 rows per second on both sides together."""
    measured: dict[str, tuple[np.ndarray[Any, Any], float | None]] = {}
    told = []
    for pace in PACES:
        waited = waits(pace, seconds)
        measured[f"{pace.name}, {pace.bound_ms} ms"] = waited, pace.bound_ms
        p50, p90, p99 = np.percentile(waited, [50, 90, 99])
        told.append(
            f"{pace.name}, max_latency {pace.bound_ms} ms: p50 {p50:.0f} ms, p90 {p90:.0f} ms, p99 {p99:.0f} ms, "
            f"greatest {max(waited):.0f} ms of {len(waited):,} pairs"
        )
        click.echo(told[-1])
        for name, ms in (("p50", p50), ("p99", p99), ("greatest", max(waited)), ("max_latency", pace.bound_ms)):
            workload = f"wait at 2,000 rows/s, {pace.name}, {pace.bound_ms} ms"
            suite.record(workload + SEPARATOR + name, [float(ms) / 1000], rows_out=len(waited))
        draw_waits(measured, RESULTS / PLOT)
        suite.finding("Latency on Flink at 2,000 rows a second", "; ".join(told) + ".", plots=[PLOT])
        suite.save()


PLOT = "flink_latency.svg"


def waits(pace: Pace, seconds: int) -> np.ndarray[Any, Any]:
    """The latency of each pair after the warm-up, in milliseconds."""
    env = local_environment(1, mode=pace.mode)
    sides = [steady_rows(env, side, 1000 * seconds) for side in STRIDES]
    bound = f"{pace.bound_ms} ms"
    pairs = timing_join(
        *sides, **JOIN, lateness=LATENESS, strategy=pace.strategy, block_size=10**5, max_latency=bound,
        buckets=pace.buckets,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="whenabouts-") as folder:
        told = Path(folder) / "waits"
        discard(pairs.map(Tell(str(told)), Types.DOUBLE()))
        env.execute("waits")
        found = np.frombuffer(told.read_bytes(), np.dtype([("us", "<i8"), ("ms", "<f8")]))
    return found["ms"][found["us"] > WARM_UP_US]


def steady_rows(env: StreamExecutionEnvironment, side: str, rows: int) -> DataStream:
    """The rows of a side, one per millisecond; `made` is when Python first sees them.

    (The `datagen` of Flink's SQL generates all rows of a second at once.)
    """
    jvm = get_gateway().jvm.org.apache.flink
    numbers, long = get_gateway().jvm.java.util.ArrayList(), jvm.api.common.typeinfo.Types.INT
    for number in range(rows):
        numbers.add(number)
    source = jvm.connector.datagen.source.DataGeneratorSource(
        jvm.connector.datagen.functions.IndexLookupGeneratorFunction(long, numbers),
        rows,
        jvm.api.connector.source.util.ratelimit.RateLimiterStrategy.perSecond(1000.0),
        long,
    )
    untimed = WatermarkStrategy.no_watermarks()._j_watermark_strategy
    ids = DataStream(env._j_stream_execution_environment.fromSource(source, untimed, side))
    types = Types.ROW_NAMED(["id", "k", "t", "made"], [Types.LONG(), Types.INT(), Types.LONG(), Types.LONG()])
    stride = STRIDES[side]
    return ids.map(lambda id_: Row(id_, id_ * stride % KEYS, id_ * 1000, int(time.time() * 1e6)), types)


class Tell(MapFunction):
    """Writes the time of the earlier row and the latency of the pair to a file.

    (Returning a pair to the client costs more than the join itself.)
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called by Flink in every task before anything else."""
        self._file = open(self._path, "ab")  # noqa: SIM115  # closed when Flink says so

    def close(self) -> None:
        """Called by Flink when the task ends."""
        self._file.close()

    def map(self, value: Any) -> float:
        """The latency of the pair, in milliseconds."""
        waited: float = time.time() * 1000 - max(value["made_left"], value["made_right"]) / 1000
        self._file.write(struct.pack("<qd", min(value["t_left"], value["t_right"]), waited))
        return waited


WARM_UP_US = 8_000_000


@click.command(help=__doc__)
@click.option("--form", "forms", multiple=True, type=click.Choice(list(FORMS)), help="All of them unless given.")
@click.option("--rounds", default=2, show_default=True)
@click.option("--latency/--no-latency", default=None, help="Measure latencies alone, or none.")
@click.option("--seconds", default=30, show_default=True, help="How long each latency is measured.")
def main(forms: tuple[str, ...], rounds: int, latency: bool | None, seconds: int) -> None:
    """Both."""
    suite = Suite("flink_join", rounds)
    if latency is not True:
        measure(suite, forms or tuple(FORMS))
    if latency is not False:
        latencies(suite, seconds)
    suite.save()


if __name__ == "__main__":
    main()
