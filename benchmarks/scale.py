"""The resources of a growing timing join: a model of CPU, state and network, checked on 1, 2 and 4 worker processes.

    python benchmarks/scale.py [--rows 120000] [--steps 6]

The workers are tasks of a cluster without an engine: each packs its part of every micro-batch, blobs go to the worker
that has their bucket, and this worker runs the step. CPU is measured in the workers; network is the bytes exchanged,
whether or not they would leave a machine. The model's prices come from one worker at two sizes of a micro-batch; it
predicts runs on two and four workers. `hot`: one key has half of all rows, spread by time slots. `no key`: time slots
alone.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, NamedTuple

import click
import numpy as np
import pyarrow as pa
from measuring import Suite
from tabulate import tabulate

from whenabouts.core import Interval, Lateness, within
from whenabouts.core.costs.choices import Workload
from whenabouts.core.hosting.host import BlockPacker, BucketInput, Hosting, Packed
from whenabouts.core.runtime.protocol import NO_WATERMARK, FlushMode
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.state.segment_codec import encode
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.planner.state_forecast import expected_state, row_bytes

SECOND = 1_000_000
WORKERS = (1, 2, 4)
BUCKETS = 8
WARM = 2
"""Steps before anything is counted: kernels are compiled, buffers fill."""


@dataclass(frozen=True)
class Case:
    """A stream. `per_second`: rows of a side; `hot`: the share of them that has one key; `slots`: the option
    `time_slots`."""

    name: str
    keys: int
    per_second: float
    within: str = "1 s"
    hot: float = 0.0
    slots: str | None = None

    @property
    def query(self) -> TimingJoin:
        """The join: intervals of 20 to 200 ms."""
        return TimingJoin(
            left_time=Interval("a", "b", max_uncertainty="200 ms"),
            right_time=Interval("a", "b", max_uncertainty="200 ms"),
            condition=within(self.within, confidence=0.8),
            on="k" if self.keys else (), time_slots=self.slots, lateness=Lateness(),
        )  # fmt: skip

    def batch(self, side: int, step: int, rows: int) -> pa.RecordBatch:
        """A side of a micro-batch, in the order of its times."""
        random = np.random.default_rng([side, step])
        first, last = (int(at * rows / self.per_second * SECOND) for at in (step, step + 1))
        end = np.sort(random.integers(first, last, rows))
        key = np.where(random.random(rows) < self.hot, 0, random.integers(0, max(self.keys, 1), rows))
        start = end - random.integers(SECOND // 50, SECOND // 5, rows)
        return pa.record_batch({"k": key, "a": start, "b": end, "id": np.arange(rows)})


CASES = {
    case.name: case
    for case in (
        Case("10,000 keys", 10_000, 12_000.0),
        Case("hot", 1_000, 600.0, within="100 ms", hot=0.5, slots="2 s"),
        Case("no key", 0, 60.0, within="500 ms", slots="auto"),
    )
}


class Spent(NamedTuple):
    """The cost of a step: CPU-seconds of each worker, bytes exchanged, pairs, bytes of state after it."""

    cpu: tuple[float, ...]
    network: int
    pairs: int
    state: int


@dataclass
class Work:
    """A worker and the buckets that it hosts."""

    hosting: Hosting
    stores: dict[int, DictStore] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.operator = self.hosting.operator()
        self.packers = [BlockPacker(self.hosting, input) for input in (0, 1)]

    def pack(self, blobs: list[bytes]) -> list[Packed]:
        """Pack a part of each side, by bucket."""
        found = []
        for packer, blob in zip(self.packers, blobs, strict=True):
            with pa.ipc.open_stream(blob) as reader:
                blocks = [packer.read(batch)[0] for batch in reader]
            found += list(packer.split(blocks))
        return found

    def step(self, arrived: dict[int, list[Packed]], watermark_us: int) -> tuple[int, int, int]:
        """Run a step; returns pairs, their bytes, and bytes of state."""
        operator, pairs, size = self.operator, 0, 0
        for bucket, packed in arrived.items():
            rows = BucketInput()
            rows.take(operator, ((each.kind, each.rows, each.blob) for each in packed))
            store = self.stores.setdefault(bucket, DictStore())
            step = self.hosting.step(operator, store, rows, watermark_us, FlushMode.FLUSH)
            pairs += sum(batch.num_rows for batch in step.output)
            size += sum(len(encode(batch, operator.output_schema)) for batch in step.output)
        return pairs, size, sum(store.bytes_held for store in self.stores.values())


def serve(connection: Connection, hosting: Hosting) -> None:
    """The loop of a worker: calls by name, each answered with its result and its CPU-seconds."""
    work = Work(hosting)
    while (call := connection.recv()) is not None:
        begun = time.process_time()
        given = getattr(work, call[0])(*call[1:])
        connection.send((given, time.process_time() - begun))


@contextmanager
def workers(number: int, hosting: Hosting) -> Iterator[list[Connection]]:
    """Worker processes, as connections to them."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for _ in range(number):
        here, there = context.Pipe()
        process = context.Process(target=serve, args=(there, hosting), daemon=True)
        process.start()
        pipes.append(here)
        processes.append(process)
    try:
        yield pipes
    finally:
        for pipe in pipes:
            pipe.send(None)
        for process in processes:
            process.join()


def called(pipes: list[Connection], calls: list[tuple[Any, ...]]) -> list[tuple[Any, float]]:
    """The same kind of call to each worker, one after the other: on few cores parallel calls would compete."""
    answers = []
    for pipe, call in zip(pipes, calls, strict=True):
        pipe.send(call)
        answers.append(pipe.recv())
    return answers


def run(case: Case, number: int, rows: int, steps: int) -> list[Spent]:
    """Steps of `rows` per side on the given number of workers, without the first ones."""
    schema = case.batch(0, 0, 1).schema
    hosting = Hosting(case.query, (schema, schema), BUCKETS, streaming=True)
    spent, watermark_us, latest = [], NO_WATERMARK, [NO_WATERMARK, NO_WATERMARK]
    with workers(number, hosting) as pipes:
        for step in range(WARM + steps):
            sides = [case.batch(side, step, rows) for side in (0, 1)]
            parts = [[_part(side, at, number) for side in sides] for at in range(number)]
            packed = called(pipes, [("pack", part) for part in parts])
            owned: list[dict[int, list[Packed]]] = [{} for _ in pipes]
            for each in (row for found, _ in packed for row in found):
                owned[each.bucket % number].setdefault(each.bucket, []).append(each)
            done = called(pipes, [("step", mine, watermark_us) for mine in owned])
            shuffled = sum(len(row.blob) for found, _ in packed for row in found)
            spent.append(
                Spent(
                    tuple(one[1] + other[1] for one, other in zip(packed, done, strict=True)),
                    shuffled + sum(size for (_, size, _), _ in done),
                    sum(pairs for (pairs, _, _), _ in done),
                    sum(held for (_, _, held), _ in done),
                )
            )
            latest = [max(us, int(side["b"][-1].as_py())) for us, side in zip(latest, sides, strict=True)]
            watermark_us = min(latest)
    return spent[WARM:]


def _part(side: pa.RecordBatch, at: int, number: int) -> bytes:
    first, last = (side.num_rows * place // number for place in (at, at + 1))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, side.schema) as writer:
        writer.write_batch(side.slice(first, last - first))
    return sink.getvalue().to_pybytes()


@dataclass(frozen=True)
class Model:
    """CPU-seconds per row with its pairs, and per step of a bucket; from one worker at two sizes of a step."""

    row: float
    step: float

    @classmethod
    def of(cls, case: Case, rows: int, steps: int) -> Model:
        """Measured."""
        sizes = (rows // 8, rows)
        small, large = (median(sum(each.cpu) for each in run(case, 1, size, steps)) for size in sizes)
        row = (large - small) / (2 * (sizes[1] - sizes[0]))
        return cls(row, max(large - 2 * sizes[1] * row, 0.0) / BUCKETS)

    def cpu(self, rows: int, number: int) -> float:
        """CPU-seconds of a micro-batch with `rows` per side. (Each worker packs separately; the number of buckets is
        the same.)"""
        return 2 * rows * self.row + BUCKETS * self.step


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(CASES)))
@click.option("--rows", default=120_000, show_default=True, help="rows of a side in a micro-batch")
@click.option("--steps", default=6, show_default=True)
def main(names: tuple[str, ...], rows: int, steps: int) -> None:
    """Model and runs, side by side."""
    suite = Suite("scale", steps)
    for name in names or CASES:
        case = CASES[name]
        model, table = Model.of(case, rows, steps), []
        schema = case.batch(0, 0, 1).schema
        load = Workload(
            rates=dict.fromkeys(("left", "right"), case.per_second), every=f"{int(rows / case.per_second * SECOND)} us",
            row_bytes=row_bytes(case.query, [schema, schema]),
        )  # fmt: skip
        foretold = sum(each.bytes for each in expected_state(case.query, load).values())
        for number in WORKERS:
            spent = run(case, number, rows, steps)
            total, busiest = (median(of(each.cpu) for each in spent) for of in (sum, max))
            state, network = (median(getattr(each, what) for each in spent) for what in ("state", "network"))
            pairs = median(each.pairs for each in spent)
            suite.record(
                f"{name} / {number} workers", [sum(each.cpu) for each in spent], rows_in=2 * rows, rows_out=pairs
            )
            suite.record(f"{name}, busiest / {number} workers", [max(each.cpu) for each in spent], rows_in=2 * rows)
            table.append(
                [
                    number, f"{1e6 * total / (2 * rows):.2f}", f"{total / model.cpu(rows, number):.2f}",
                    f"{busiest * number / total:.2f}", f"{pairs / (2 * rows):.2f}", f"{network / (2 * rows):.0f}",
                    f"{state / foretold:.2f}",
                ]
            )  # fmt: skip
        head = [
            "workers", "CPU-us a row", "over the model", "busiest over the mean", "pairs a row", "bytes moved a row",
            "state over the forecast",
        ]  # fmt: skip
        told = tabulate(table, head, tablefmt="github", disable_numparse=True)
        about = f"A row costs {1e6 * model.row:.2f} us, a step of a bucket {1e3 * model.step:.2f} ms."
        suite.finding(f"Scale: {name}", f"{about}\n\n{told}")
    suite.save()


if __name__ == "__main__":
    main()
