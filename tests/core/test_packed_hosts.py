"""Laws on hosts that behave as the engines do, without an engine: what a step is there, and what a restart forgets.

The local engine steps every bucket that has rows, under one watermark, and forgets nothing. On Spark a bucket's step is
all of a micro-batch, rows and news together, and a timer is a step of its own. On Flink every packed row is a step, the
inputs come one after the other, the watermark moves between them, and is gone after a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from whenabouts.conformance import test_shared_coalescing, test_sources
from whenabouts.conformance.engine import Engine
from whenabouts.core.harness import LocalHarness, Variant
from whenabouts.core.hosting.host import (
    END,
    OUTPUT,
    REJECTED,
    REJECTS,
    BlockPacker,
    BucketInput,
    Hosting,
    Packed,
    read_counts,
    tagged_rows,
)
from whenabouts.core.local import Outcome
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, FlushMode, Query, Step
from whenabouts.core.runtime.rejects import rejects_schema
from whenabouts.core.runtime.watermarks import watermark_of
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.state.segment_codec import decode

pytestmark = pytest.mark.slow  # in a fast run the simulated engines stand for it


@dataclass
class Bucket:
    """What an engine keeps of a bucket."""

    store: DictStore = field(default_factory=DictStore)
    timer_us: int | None = None
    watermark_us: int = NO_WATERMARK


@dataclass
class State:
    """What a checkpoint holds, and what had been given by then; `greatest_us` of each input makes the watermark."""

    buckets: list[Bucket]
    greatest_us: list[int]
    given: list[tuple[int, bytes]] = field(default_factory=list)


class PackedRun:
    """A query over packed rows, file n of every input in step n."""

    demand = FlushMode.NOTHING

    def __init__(self, query: Query, variant: Variant) -> None:
        assert variant.streaming
        self._query, self._variant = query, variant
        self._files: dict[str, Sequence[pa.Table]] = {}

    def source(self, input: str, files: Sequence[pa.Table]) -> None:
        self._files[input] = files

    def collect(self) -> Outcome:
        files = [self._files[name] for name in self._query.inputs]
        self._run(self._query)
        self.state = State([Bucket() for _ in range(self._variant.parallelism)], [NO_WATERMARK] * len(files))
        for number in range(max(map(len, files))):
            packed = [list(self._packed(input, each[number])) for input, each in enumerate(files) if number < len(each)]
            if number == self._variant.restart_after:
                before = deepcopy(self.state)
                self.take_in(number, packed)
                self.state = self.restored(before)
                self._run(self._variant.restarted_as or self._query)
            self.take_in(number, packed)
        self.end()
        return self._outcome()

    def _run(self, query: Query) -> None:
        schemas = tuple(self._files[name][0].schema for name in query.inputs)
        self.hosting = Hosting(query, schemas, self._variant.parallelism, streaming=True)
        self.operator = self.hosting.operator()

    def take_in(self, number: int, packed: list[list[Packed]]) -> None:
        raise NotImplementedError

    def end(self) -> None:
        raise NotImplementedError

    def restored(self, state: State) -> State:
        return state

    def engine_watermark_us(self) -> int:
        return watermark_of(self.state.greatest_us, self._query.lateness_us)

    def note(self, input: int, packed: Sequence[Packed]) -> None:
        """The engine sees how far an input has come."""
        clocks = [row.clock_us for row in packed if row.kind != REJECTS]
        self.state.greatest_us[input] = max(self.state.greatest_us[input], *clocks) if clocks else NO_WATERMARK

    def step(self, bucket: Bucket, packed: Sequence[Packed], watermark_us: int, demand: FlushMode) -> None:
        """A step of one bucket. The protocol: its watermark never goes back."""
        arrived = BucketInput()
        arrived.take(self.operator, ((row.kind, row.rows, row.blob) for row in packed))
        bucket.watermark_us = max(bucket.watermark_us, watermark_us)
        step = self.hosting.step(self.operator, bucket.store, arrived, bucket.watermark_us, demand)
        bucket.timer_us = step.timer_us
        self._give(step, arrived)

    def fire(self, watermark_us: int) -> None:
        """The timers that are due."""
        for bucket in self.state.buckets:
            if bucket.timer_us is not None and bucket.timer_us <= watermark_us:
                self.step(bucket, [], watermark_us, self.demand)

    def refuse(self, row: Packed) -> None:
        arrived = BucketInput()
        arrived.take(self.operator, [(row.kind, row.rows, row.blob)])
        self._give(Step(), arrived)

    def _give(self, step: Step, arrived: BucketInput) -> None:
        self.state.given += tagged_rows(step, arrived, self.operator, self._query.inputs)

    def _packed(self, input: int, table: pa.Table) -> Iterator[Packed]:
        packer = BlockPacker(self.hosting, input)
        for batch in table.combine_chunks().to_batches():
            block, refused = packer.read(batch)
            yield from refused
            yield from packer.split([block])

    def _outcome(self) -> Outcome:
        rejects = rejects_schema([reader.schema for reader in self.operator.readers])
        blobs: dict[int, list[bytes]] = {}
        for tag, blob in self.state.given:
            blobs.setdefault(tag, []).append(blob)
        schema = self.operator.output_schema
        counts = [blob for tag, each in blobs.items() if tag not in (OUTPUT, REJECTED) for blob in each]
        return Outcome(
            pa.Table.from_batches([decode(blob, schema) for blob in blobs.get(OUTPUT, [])], schema),
            pa.Table.from_batches([decode(blob, rejects) for blob in blobs.get(REJECTED, [])], rejects),
            read_counts(counts),
        )


class MicroBatches(PackedRun):
    """As Spark: all that a step brings to a bucket at once, under the watermark of the steps before; then timers."""

    demand = FlushMode.FLUSH

    def take_in(self, number: int, packed: list[list[Packed]]) -> None:
        watermark_us = self.engine_watermark_us()
        rows = [row for of_input in packed for row in of_input]
        for place, bucket in enumerate(self.state.buckets):
            mine = [row for row in rows if row.kind != REJECTS and row.bucket == place]
            if mine:
                self.step(bucket, mine, watermark_us, self.demand)
        for row in rows:
            if row.kind == REJECTS:
                self.refuse(row)
        self.fire(watermark_us)
        for input, of_input in enumerate(packed):
            self.note(input, of_input)

    def end(self) -> None:
        self.take_in(-1, [])  # Spark's micro-batch without data
        for place, bucket in enumerate(self.state.buckets):
            self.step(bucket, [Packed(place, END, 0, 0, b"")], self.engine_watermark_us(), self.demand)


class Elements(PackedRun):
    """As Flink: packed row by packed row; now the one input is first, now the other; a restart has no watermark."""

    def take_in(self, number: int, packed: list[list[Packed]]) -> None:
        inputs = list(enumerate(packed))
        for input, of_input in inputs[:: 1 if number % 2 else -1]:
            for row in of_input:
                if row.kind == REJECTS:
                    self.refuse(row)
                else:
                    self.step(self.state.buckets[row.bucket], [row], self.engine_watermark_us(), self.demand)
            self.note(input, of_input)
            self.fire(self.engine_watermark_us())

    def end(self) -> None:
        for bucket in self.state.buckets:
            self.step(bucket, [], END_OF_TIME, FlushMode.END)

    def restored(self, state: State) -> State:
        state.greatest_us = [NO_WATERMARK] * len(state.greatest_us)
        return state


class PackedHarness(LocalHarness):
    def __init__(self, run: type[PackedRun]) -> None:
        self.name, self._run = run.__name__, run

    def open(self, query: Query, variant: Variant) -> Any:
        return self._run(query, variant)


@pytest.fixture(params=[MicroBatches, Elements], ids=lambda run: run.__name__)
def host(request: pytest.FixtureRequest) -> Engine:
    return Engine(PackedHarness(request.param))


@pytest.mark.parametrize(
    ("schemes", "variant"),
    [
        ("mixed", "stream, 3 buckets, restarted"),
        ("all lazy", "stream"),
        pytest.param("all eager", "stream, 3 buckets, restarted", marks=pytest.mark.full),
    ],
)
def test_queries_that_share_extents(host: Engine, schemes: str, variant: str) -> None:
    test_shared_coalescing.test_differential_registered_together(host, schemes, variant)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.full) for n in range(1, 12))])
def test_queries_whose_schemes_are_decided_all_the_time(host: Engine, seed: int) -> None:
    test_shared_coalescing.check_decided_in_the_job(host, seed)


def test_queries_that_change_their_schemes(host: Engine) -> None:
    test_shared_coalescing.test_differential_schemes_change(host)


@pytest.mark.filterwarnings("ignore::whenabouts.core.errors.SingleBucketWarning")
def test_queries_that_share_an_extent_but_no_group(host: Engine) -> None:
    test_shared_coalescing.test_differential_registered_together_without_common_groups(host, "stream")


@pytest.mark.parametrize("buckets", [1, 3])
def test_idle_sides(host: Engine, buckets: int) -> None:
    test_sources.test_oracle_idle_side(host, buckets)


def test_idle_inputs_of_temporal_joins(host: Engine) -> None:
    test_sources.test_differential_idle_input_of_a_temporal_join(host)


@pytest.mark.parametrize("restart", [None, 3])
def test_repeats(host: Engine, restart: int | None) -> None:
    test_sources.test_oracle_repeats(host, Variant(streaming=True, parallelism=3, restart_after=restart))
