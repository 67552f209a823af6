"""An engine that works element by element, as Flink does: tasks with keyed state and timers, channels, and barriers.

Files become packed rows and watermarks, which are sent to every task through a channel per packer; the seed decides
which channel is read next. A barrier in every channel separates the elements before a checkpoint from those after it. A
checkpoint contains state and timers as bytes and numbers, and the positions in the inputs; the output since the
previous checkpoint is committed with it. A restored job has new tasks, their number chosen by the seed, and no
watermark.

As in PyFlink's process mode, timers that a bundle of elements sets reach the engine some time after the bundle, or
before a watermark; a checkpoint ends the bundle and does not wait for its timers. Therefore every bucket is called when
its task starts (decisions 0020 and 0021).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from whenabouts.conformance.simulated_engine import SimulatedHarness, SimulatedRun
from whenabouts.conformance.simulated_flink_batch import BatchTask
from whenabouts.conformance.simulated_flink_buckets import (
    GROUPS,
    Blob,
    Bucket,
    BucketState,
    Clock,
    Element,
    key_group,
    labels,
)
from whenabouts.core.hosting.element_host import CONTROL, ElementHost, Here
from whenabouts.core.hosting.element_watermark import LAST_MS, LEAST_MS, delay_ms
from whenabouts.core.hosting.host import BlockPacker, clock_of
from whenabouts.core.hosting.packed_kinds import PRESENT

BUNDLE_SIZE = 5


class Barrier(NamedTuple):
    """Separates the elements before a checkpoint from those after it."""


class Mark(NamedTuple):
    """A watermark."""

    ms: int


Item = Element | Mark | Barrier


@dataclass
class Checkpoint:
    """Everything that survives a failure: the files read of each input, buckets by label, elements in flight in each
    channel, and all output."""

    read: list[int]
    buckets: dict[int, Bucket] = field(default_factory=dict)
    on_the_way: dict[int, list[Item]] = field(default_factory=dict)
    given: list[Blob] = field(default_factory=list)
    tasks: int = 0


class Task:
    """A task: the buckets of its key groups, the host of their operator, and its timer service."""

    def __init__(self, run: SimulatedFlinkRun, channels: int, buckets: dict[int, Bucket], mine: list[int]) -> None:
        self.run, self.buckets, self.mine = run, buckets, mine
        self.host = ElementHost(run.hosting, Here(), _ignore, run.max_latency_ms, gathers=run.gathers)
        self.channels: list[deque[Item]] = [deque() for _ in range(channels)]
        self.marks = [LEAST_MS] * channels
        self.at_barrier: set[int] = set()
        self.watermark_ms = LEAST_MS
        self.given: list[Blob] = []
        self.bundle = 0
        self.held: list[int] = []
        self.sent: list[tuple[Bucket, Clock, int, bool]] = []
        self.called = not run.calls

    def storage(self, label: int) -> Bucket:
        """What the engine has stored for a bucket."""
        return self.buckets.setdefault(label, Bucket())

    @property
    def now_ms(self) -> int:
        """The processing time."""
        return self.run.now_ms

    @property
    def ended(self) -> bool:
        """Whether all channels have ended."""
        return self.watermark_ms == LAST_MS

    def ready(self) -> list[int]:
        """The channels that can be read."""
        return [n for n, items in enumerate(self.channels) if items and n not in self.at_barrier]

    def call_once(self) -> None:
        """Call every bucket before anything else arrives."""
        if not self.called:
            self.called = True
            for label in self.mine:
                self.element(Element(label, (PRESENT, 0, b"")))

    def element(self, element: Element) -> None:
        """An element, in the open bundle."""
        self.run.fate.perhaps_fail("before an element")
        state = BucketState(self, element.label)
        self.given += self.host.element(element.packed, state)
        self.bundle += 1
        if not self.run.process_mode or self.bundle >= self.run.bundle_size:
            self.end_bundle()

    def mark(self, channel: int, ms: int) -> None:
        """A watermark of a channel. The minimum counts, and waits for the end of the bundle."""
        self.marks[channel] = max(self.marks[channel], ms)
        least = min(self.marks)
        if least > max(self.held, default=self.watermark_ms):
            self.held.append(least)
            if not self.bundle:
                self.end_bundle()

    def end_bundle(self) -> None:
        """The bundle is done: watermarks that waited for it are processed."""
        self.bundle = 0
        while self.held:
            self.advance(self.held.pop(0))

    def advance(self, ms: int) -> None:
        """The watermark advances and fires timers. Timers that these set are waited for, unless a bundle is full."""
        self.take_sent()
        self.watermark_ms = ms
        while due := [(at, label) for label, at in self._timers("event") if at <= ms]:
            self.fire("event", *min(due))
            if not self.run.fate.happens(0.2) or not self.run.process_mode:
                self.take_sent()

    def tick(self) -> None:
        """Processing-time timers that are due."""
        while due := [(at, label) for label, at in self._timers("clock") if at <= self.run.now_ms]:
            self.fire("clock", *min(due))

    def fire(self, clock: Clock, at: int, label: int) -> None:
        """One timer."""
        self.run.fate.perhaps_fail("before a timer")
        bucket = self.buckets[label]
        bucket.timers -= {(clock, at)}
        self.given += self.host.timer(at, BucketState(self, label))

    def send(self, label: int, clock: Clock, ms: int, there: bool) -> None:
        """Python has set or deleted a timer."""
        self.sent.append((self.storage(label), clock, ms, there))
        if not self.run.process_mode:
            self.take_sent()

    def take_sent(self) -> None:
        """The engine takes the timers that Python has sent."""
        for bucket, clock, ms, there in self.sent:
            bucket.timers = bucket.timers | {(clock, ms)} if there else bucket.timers - {(clock, ms)}
        self.sent.clear()

    def _timers(self, clock: Clock) -> list[tuple[int, int]]:
        return [(label, at) for label, bucket in self.buckets.items() for kind, at in bucket.timers if kind == clock]


class SimulatedFlinkRun(SimulatedRun):
    """One query being run element by element."""

    own_watermarks = True
    checkpoint: Checkpoint | None = None
    now_ms = 1_000
    calls = True
    process_mode = True
    bundle_size = BUNDLE_SIZE
    aligned = True
    packers_of_input = 1
    max_latency_ms: int | None = None
    gathers = False
    most_tasks = 2

    def life(self) -> Iterable[Blob]:
        """One job, from its start to the end of the input or a failure."""
        if not self.variant.streaming:
            return self._batch()
        self._restore()
        while not all(task.ended for task in self.tasks):
            self._act()
        self.fate.perhaps_fail("before the last commit")
        return [*self.kept.given, *chain.from_iterable(task.given for task in self.tasks)]

    def _restore(self) -> None:
        """Tasks from the last checkpoint; the seed decides their number."""
        self.kept = kept = self.checkpoint or Checkpoint([0] * len(self.files))
        most = min(self.most_tasks, self.hosting.buckets)
        tasks = self.fate.between(1, most) if self.fate.free else most
        self.read = list(kept.read)
        self.told_end = False
        self._packers_of_input = of = self.packers_of_input
        if self.fate.free and self.aligned:  # elements in flight are those of a channel
            self._packers_of_input = of = self.fate.between(1, of)
        self.packers = [
            BlockPacker(self.hosting, input, self._operator, number=number, packers=of)
            for input in range(len(self.files))
            for number in range(of)
        ]
        self.greatest_ms = [LEAST_MS] * self._channels()
        owned = {label: key_group(label) * tasks // GROUPS for label in (*labels(self.hosting.buckets), CONTROL)}
        self.owner = {label: owned[label] for label in owned}
        self.tasks: list[Task] = []
        for number in range(tasks):
            mine = [label for label in owned if owned[label] == number]
            buckets = {label: kept.buckets[label].copy() for label in mine if label in kept.buckets}
            self.tasks.append(Task(self, self._channels(), buckets, mine))
        for channel, items in kept.on_the_way.items():
            for item in items:
                if isinstance(item, Element):
                    self.tasks[self.owner[item.label]].channels[channel].append(item)
                elif tasks == kept.tasks == 1:  # which task a watermark was for, does not say where there are more
                    self.tasks[0].channels[channel].append(item)
        self.barriers: list[int] | None = None
        self.cut = Checkpoint([])
        self.fate.perhaps_fail("tasks have started")

    def _channels(self) -> int:
        return len(self.files) * self._packers_of_input

    def _channel(self, input: int, number: int) -> int:
        """The packer, and its channel to every task, of a file."""
        return input * self._packers_of_input + number % self._packers_of_input

    def packer(self, input: int, number: int) -> BlockPacker:
        """Who packs file `number` of an input: as long as the job lives."""
        return self.packers[self._channel(input, number)]

    def _act(self) -> None:
        """One random event."""
        actions: list[Callable[[], None]] = []
        for task in self.tasks:
            if task.ready():
                actions += [partial(self._deliver, task)] * 3
            if task.bundle:
                actions.append(task.end_bundle)
            if task.sent and self.fate.happens(0.3):
                actions.append(task.take_sent)
        if self.max_latency_ms is not None:
            actions.append(self._tick)
        quiet = not any(task.ready() for task in self.tasks)
        if self.fate.free or quiet:
            actions += self._sources(quiet)
        if actions:
            self.fate.choice(actions)()

    def _sources(self, quiet: bool) -> list[Callable[[], None]]:
        """The possible actions of sources and of the checkpoint coordinator. Unless the schedule is free, a step is all
        files of one number, and there is a checkpoint between two steps."""
        behind = min(self.read)
        waiting = [n for n in range(len(self.files)) if self.read[n] < self.steps()]
        if not self.fate.free:
            if self.barriers is not None:
                return []
            steps = [n for n in waiting if self.read[n] == behind]
            if self.read and max(self.read) == behind and behind > sum(self.kept.read) // len(self.kept.read):
                self.fail_if_asked(behind - 1)
                return [self._cut]
            return [partial(self._emit, n) for n in steps] or [self._end]
        actions: list[Callable[[], None]] = [partial(self._emit, n) for n in waiting if not self._is_pressed(n)]
        if self.barriers is None and not self.told_end and self.read != self.kept.read:
            actions += [self._cut] * 2
        if not waiting and not self.told_end:
            actions.append(self._end)
        return actions

    def _is_pressed(self, input: int) -> bool:
        """Whether a channel of an input is full, so that its source waits."""
        n = self._packers_of_input
        return any(len(items) > 4 for task in self.tasks for items in task.channels[input * n : (input + 1) * n])

    def _emit(self, input: int) -> None:
        """A source reads a file, and sends its rows and a watermark."""
        number = self.read[input]
        self.read[input] += 1
        channel = self._channel(input, number)
        names = labels(self.hosting.buckets)
        packed = self.packed(input, number)
        for row in packed:
            label = names[row.bucket]
            element = Element(label, (row.kind, row.rows, row.blob))
            self.tasks[self.owner[label]].channels[channel].append(element)
        clock_us = clock_of(packed)
        if clock_us is not None:
            self.greatest_ms[channel] = max(self.greatest_ms[channel], clock_us // 1000)
        if self.greatest_ms[channel] > LEAST_MS:
            self._send_mark(channel, self.greatest_ms[channel] - delay_ms(self.query.lateness_us[input]) - 1)
        self.fate.perhaps_fail("a file is read")

    def _send_mark(self, channel: int, ms: int) -> None:
        for task in self.tasks:
            task.channels[channel].append(Mark(ms))

    def _end(self) -> None:
        """All files are read."""
        self.told_end = True
        for channel in range(self._channels()):
            self._send_mark(channel, LAST_MS)

    def _cut(self) -> None:
        """The sources send barriers and record their positions."""
        self.cut = Checkpoint(list(self.read), tasks=len(self.tasks))
        self.barriers = [0] * len(self.tasks)
        for task in self.tasks:
            for channel in task.channels:
                channel.append(Barrier())

    def _deliver(self, task: Task) -> None:
        """A task reads one item of a channel."""
        task.call_once()
        channel = self.fate.choice(task.ready())
        item = task.channels[channel].popleft()
        if isinstance(item, Element):
            task.element(item)
        elif isinstance(item, Mark):
            task.mark(channel, item.ms)
        elif self.aligned:
            task.at_barrier.add(channel)
            if len(task.at_barrier) == len(task.channels):
                self._snapshot(task)
        else:
            self._overtake(task, channel)

    def _overtake(self, task: Task, first: int) -> None:
        """An unaligned barrier overtakes the elements in flight, which become part of the checkpoint."""
        for number, items in enumerate(task.channels):
            if number != first:
                at = items.index(Barrier())
                before = [items[n] for n in range(at)]
                self.cut.on_the_way.setdefault(number, []).extend(before)
                del items[at]
        self._snapshot(task)

    def _snapshot(self, task: Task) -> None:
        """The bundle ends; its writes are in the checkpoint, timers that have not reached the engine are not."""
        task.call_once()
        task.end_bundle()
        self.fate.perhaps_fail("before a task takes its part of a checkpoint", times=2)
        self.cut.buckets |= {label: bucket.copy() for label, bucket in task.buckets.items()}
        self.cut.given += task.given
        task.given = []
        task.at_barrier.clear()
        assert self.barriers is not None
        self.barriers[self.tasks.index(task)] = 1
        self.fate.perhaps_fail("a task has taken its part of a checkpoint")
        if all(self.barriers):
            self.cut.given = [*self.kept.given, *self.cut.given]
            self.kept = self.checkpoint = self.cut
            self.barriers = None
            self.fate.perhaps_fail("a checkpoint is complete", times=5)

    def _tick(self) -> None:
        """Processing time advances."""
        self.now_ms += self.fate.between(1, 30)
        for task in self.tasks:
            task.call_once()
            task.tick()

    def _batch(self) -> Iterator[Blob]:
        """A batch job. Flink sorts the rows of each task by key; those of one key stay in the order of the inputs."""
        self._restore()
        tasks = [self._batch_task() for _ in self.tasks]
        names = labels(self.hosting.buckets)
        elements = [
            Element(names[row.bucket], (row.kind, row.rows, row.blob))
            for input, files in enumerate(self.files)
            for number in range(len(files))
            for row in self.packed(input, number)
        ]
        for element in sorted(elements, key=attrgetter("label")):
            tasks[self.owner[element.label]].take(element)
        for task in tasks:
            task.end()
        return chain.from_iterable(task.given for task in tasks)

    def _batch_task(self) -> BatchTask:
        host = ElementHost(self.hosting, Here(), _ignore)
        return BatchTask(host, self.fate, self.bundle_size if self.process_mode else 1, self.now_ms)


def _ignore(_: Counter[str], __: int | None) -> None:
    """Counts are not added to any metrics."""


class SimulatedFlinkHarness(SimulatedHarness):
    """A simulated engine that works element by element."""

    name = "simulated-flink"
    run: Callable[..., SimulatedRun] = SimulatedFlinkRun  # type: ignore[assignment]
