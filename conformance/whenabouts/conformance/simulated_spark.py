"""An engine that works in micro-batches, as Spark does: all rows of a bucket at once, then timers, then a commit.

A micro-batch has one watermark, which depends on the earlier micro-batches. Its plan, with its files, is written to the
checkpoint before it runs; each partition commits its state as a version; the sink receives the rows with the number of
the micro-batch; then the micro-batch is committed. After a failure in between it runs again as planned, from the
previous state. A restart forgets the progress of each input: only the watermark is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

from whenabouts.conformance import multiset
from whenabouts.conformance.simulated_engine import KilledError, Segments, SimulatedHarness, SimulatedRun, outcome
from whenabouts.core.hosting.bucket_labels import least_labels, murmur3
from whenabouts.core.hosting.host import Packed, Tagged, tagged_rows
from whenabouts.core.hosting.micro_batch_host import CONTROL, MicroBatchHost
from whenabouts.core.hosting.micro_batch_watermark import delay_ms
from whenabouts.core.hosting.out_of_core import Timed, take_in
from whenabouts.core.hosting.packed_kinds import END, PRESENT, REJECTS
from whenabouts.core.hosting.query_identity import check_checkpoint


@lru_cache
def labels(buckets: int) -> tuple[int, ...]:
    """The label of each bucket."""
    return least_labels(range(buckets), lambda label: murmur3(label, 42) % buckets)


@dataclass
class Group:
    """The engine's storage for a label; `micro_batch_host.MicroBatchState`."""

    segments: Segments = field(default_factory=lambda: Segments({}))
    record: tuple[int, ...] | None = None
    identity: str | None = None
    timers: frozenset[int] = frozenset()

    def copy(self) -> Group:
        """An independent group of the same bytes."""
        return Group(Segments(dict(self.segments.data)), self.record, self.identity, self.timers)

    def read_record(self) -> Sequence[int] | None:
        """The record, None for a new bucket."""
        return self.record

    def write_record(self, record: Sequence[int]) -> None:
        """Replace the record."""
        self.record = tuple(record)

    def read_identity(self) -> str | None:
        """The identity of the query that owns the state."""
        return self.identity

    def write_identity(self, text: str) -> None:
        """Keep the identity of the query."""
        self.identity = text

    def set_timer(self, ms: int) -> None:
        """Set a timer."""
        self.timers |= {ms}

    def delete_timer(self, ms: int) -> None:
        """Delete a timer."""
        self.timers -= {ms}


Version = dict[int, Group]
"""The state of a partition after a micro-batch: its groups by label."""


@dataclass(frozen=True)
class Planned:
    """The plan of a micro-batch: the files of each input, the watermark, and whether all inputs end."""

    files: tuple[range, ...]
    watermark_ms: int
    ended: bool


@dataclass
class Checkpoint:
    """Everything that survives a failure: the plans, the state after each micro-batch by partition, and the next
    watermark of each committed micro-batch; and the sink's rows, by micro-batch."""

    plans: list[Planned] = field(default_factory=list)
    versions: dict[tuple[int, int], Version] = field(default_factory=dict)
    commits: list[int] = field(default_factory=list)
    sink: dict[int, list[Tagged]] = field(default_factory=dict)


class SimulatedSparkRun(SimulatedRun):
    """One query being run in micro-batches."""

    checkpoint: Checkpoint | None = None
    files_at_once = 1
    """The most files of an input in a micro-batch, if the schedule is free."""

    def life(self) -> Iterable[Tagged]:
        """One driver, from its start to the end of the input or a failure."""
        if not self.variant.streaming:
            return self._batch()
        if self.checkpoint is None:
            self.checkpoint = Checkpoint()
        kept = self.checkpoint
        self._check(kept)
        clocks = [0] * len(self.files)  # a new driver does not know the progress of the inputs
        watermark_ms = kept.commits[-1] if kept.commits else 0
        if len(kept.plans) > len(kept.commits):
            watermark_ms = kept.plans[-1].watermark_ms
        while not (kept.plans and kept.plans[-1].ended and len(kept.commits) == len(kept.plans)):
            if len(kept.plans) == len(kept.commits):
                self.fate.perhaps_fail("before a micro-batch is planned")
                kept.plans.append(self._plan(kept, watermark_ms))
                self.fate.perhaps_fail("a micro-batch is planned")
            watermark_ms = self._micro_batch(kept, clocks, watermark_ms)
            self.fate.perhaps_fail("a micro-batch is committed")
        return chain.from_iterable(kept.sink[number] for number in sorted(kept.sink))

    def _check(self, kept: Checkpoint) -> None:
        """Refuse a checkpoint of another query, as the adapter does before it starts."""
        last = len(kept.commits) - 1
        versions = [version for (number, _), version in kept.versions.items() if number == last]
        found = {group.identity for version in versions for group in version.values() if group.identity}
        check_checkpoint(found, [self.hosting.identity])

    def _plan(self, kept: Checkpoint, watermark_ms: int) -> Planned:
        """The next micro-batch: with new files, without data if the watermark has moved, or the last one."""
        begun = [files.stop for files in kept.plans[-1].files] if kept.plans else [0] * len(self.files)
        ends = [len(files) for files in self.files]
        nothing = tuple(range(at, at) for at in begun)
        moved = bool(kept.plans) and kept.plans[-1].watermark_ms != watermark_ms
        if begun == ends:
            return Planned(nothing, watermark_ms, ended=not moved)
        if moved and self.fate.free and self.fate.happens(0.2):
            return Planned(nothing, watermark_ms, ended=False)
        while True:
            files = tuple(range(at, min(at + self._admitted(), end)) for at, end in zip(begun, ends, strict=True))
            if any(files):
                return Planned(files, watermark_ms, ended=False)

    def _admitted(self) -> int:
        return self.fate.between(0, self.files_at_once) if self.fate.free else 1

    def _micro_batch(self, kept: Checkpoint, clocks: list[int], watermark_ms: int) -> int:
        """Run the last plan and commit it. Returns the next watermark."""
        number, plan = len(kept.commits), kept.plans[-1]
        rows = self._rows(plan, clocks)
        given: list[Tagged] = []
        for partition in self._order(range(self.hosting.buckets)):
            given += self._task(kept, number, partition, rows, plan.watermark_ms)
        self.fate.perhaps_fail("all state of a micro-batch is committed", times=2)
        self._sink(kept, number, given)
        self.fate.perhaps_fail("the sink has a micro-batch", times=5)
        begun = max((files.stop for files in plan.files if files), default=0)
        if begun:
            self.fail_if_asked(begun - 1)
        watermark_ms = max(watermark_ms, min(clocks))
        kept.commits.append(watermark_ms)
        return watermark_ms

    def _sink(self, kept: Checkpoint, number: int, given: list[Tagged]) -> None:
        """The sink identifies micro-batches by number: a replayed one replaces the first, or is ignored. Either
        is right only if its rows are the same again. (Their order may differ, and counts of work: both depend on what
        the process has in memory.)"""
        again = number in kept.sink and self.variant.restarted_as is None
        if again:
            before, now = (outcome(self._operator, rows) for rows in (kept.sink[number], given))
            multiset.assert_same(multiset.rows(now.output), multiset.rows(before.output), "a replayed micro-batch")
            multiset.assert_same(multiset.rows(now.rejects), multiset.rows(before.rejects), "its rejects")
        if not again or self.fate.happens(0.5):
            kept.sink[number] = given

    def _rows(self, plan: Planned, clocks: list[int]) -> dict[int, list[Packed]]:
        """The packed rows of a micro-batch by label; moves the clocks of the inputs."""
        chunks: list[list[Packed]] = []
        names, lateness = labels(self.hosting.buckets), self.query.lateness_us
        for input, files in enumerate(plan.files):
            for number in files:
                packed = self.packed(input, number)
                chunk = [row._replace(bucket=CONTROL if row.kind == REJECTS else names[row.bucket]) for row in packed]
                if self.files[input][number].num_rows:
                    chunk.append(Packed(CONTROL, PRESENT, 0, 0, b""))
                chunks.append(chunk)
                for row in chunk:
                    clocks[input] = max(clocks[input], row.clock_us // 1000 - delay_ms(lateness[input]))
        if plan.ended:
            chunks.append([Packed(label, END, 0, 0, b"") for label in names])
        rows: dict[int, list[Packed]] = {}
        for row in chain.from_iterable(self._order(chunks) if self.fate.free else chunks):
            rows.setdefault(row.bucket, []).append(row)
        return rows

    def _task(
        self, kept: Checkpoint, number: int, partition: int, rows: dict[int, list[Packed]], watermark_ms: int
    ) -> list[Tagged]:
        """The work of a partition; one that fails is tried again, or the whole query is started again."""
        while True:
            try:
                return self._attempt(kept, number, partition, rows, watermark_ms)
            except KilledError:
                if self.fate.happens(0.5):
                    raise

    def _attempt(
        self, kept: Checkpoint, number: int, partition: int, rows: dict[int, list[Packed]], watermark_ms: int
    ) -> list[Tagged]:
        before = kept.versions.get((number - 1, partition), {})
        groups = {label: group.copy() for label, group in before.items()}
        buckets = self.hosting.buckets
        mine = [label for label in rows if murmur3(label, 42) % buckets == partition]
        host = MicroBatchHost(self.hosting)
        given: list[Tagged] = []
        for label in self._order(mine):
            group = groups.setdefault(label, Group())
            packed = ((row.kind, row.rows, row.blob) for row in rows[label])
            given += host.rows(label, packed, group, watermark_ms)
            self.fate.perhaps_fail("a bucket has worked")
        for group in groups.values():
            for expired_ms in sorted(ms for ms in group.timers if ms < watermark_ms):
                given += host.expired(expired_ms, group, watermark_ms)
                group.delete_timer(expired_ms)
                self.fate.perhaps_fail("a timer has fired")
        self.fate.perhaps_fail("before a partition commits")
        kept.versions[number, partition] = groups
        kept.versions.pop((number - 3, partition), None)
        self.fate.perhaps_fail("a partition has committed")
        return given

    def _order(self, values: Iterable[object]) -> list:  # type: ignore[type-arg]
        return self.fate.shuffled(values)

    def _batch(self) -> Iterable[Tagged]:
        """A batch job: the buckets one after the other, each piece by piece in the order of its first times."""
        operator = self.hosting.operator()
        by_bucket: dict[int, list[Timed]] = {bucket: [] for bucket in range(self.hosting.buckets)}
        given: list[Tagged] = []
        for input, files in enumerate(self.files):
            for table in files:
                for batch in table.combine_chunks().to_batches():
                    block, refused = self.packers[input].read(batch)
                    timed = [(row, 0) for row in refused] + list(self.packers[input].split_by_time([block]))
                    for row, first_us in timed:
                        by_bucket[row.bucket].append(Timed(first_us, row.kind, row.rows, row.blob))
        for bucket in self._order(by_bucket):
            self.fate.perhaps_fail("before a bucket")
            rows = sorted(by_bucket[bucket], key=lambda row: row.first_us)
            if rows:
                given += take_in(self.hosting, operator, rows, tagged_rows)
        return given


class SimulatedSparkHarness(SimulatedHarness):
    """A simulated engine of micro-batches."""

    name = "simulated-spark"
    run: Callable[..., SimulatedRun] = SimulatedSparkRun  # type: ignore[assignment]
