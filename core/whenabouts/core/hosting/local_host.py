"""The host of the local engine: one operator for each bucket, over dict stores in this process."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.threads import each
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.callers import users_level
from whenabouts.core.errors import Code, EngineError, NotFiniteWarning, QueryError
from whenabouts.core.hosting.host import warn_of_two_zones
from whenabouts.core.hosting.query_identity import identity_of
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.option_checks import counted
from whenabouts.core.runtime.protocol import (
    END_OF_TIME,
    NO_WATERMARK,
    Arrival,
    Copied,
    FlushMode,
    Operator,
    Query,
    Reader,
    Rejected,
    Step,
)
from whenabouts.core.runtime.rejects import reject_rows, rejects_schema
from whenabouts.core.runtime.time_columns import times_cut, warn_of_digits
from whenabouts.core.runtime.watermarks import began, watermark_of, watermark_past_idle
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.wrappers.state_limit import StateLimit, limited


@dataclass(slots=True)
class Outcome:
    """All that a run gave: output rows, rejected rows with their reasons, and the counts of `metrics.py`."""

    output: pa.Table
    rejects: pa.Table
    metrics: Counter[str] = field(default_factory=Counter)


class _Commit(NamedTuple):
    """All that a checkpoint would hold, and what had been given out by then."""

    stores: list[DictStore]
    timers: list[int | None]
    greatest: list[int]
    began: list[int]
    output: list[pa.RecordBatch]
    rejected: list[Rejected]
    metrics: Counter[str]


class LocalHost:
    """Drives one operator per bucket, as `protocol` asks of every engine."""

    def __init__(
        self,
        query: Query,
        schemas: Sequence[pa.Schema],
        buckets: int,
        *,
        streaming: bool,
        state_limit: StateLimit | None = None,
        operator: Operator | None = None,
    ) -> None:
        """`operator`: the query's, if there is one already."""
        self._query = self._first_query = query
        self._state_limit, self._schemas = state_limit, schemas
        self.operator = limited(operator or query.operator(schemas, streaming=streaming), state_limit)
        warn_of_two_zones(query, self.operator, schemas)
        self._notes_times = streaming or self.operator.needs_latest
        self._stores = [DictStore() for _ in range(buckets)]
        self._timers: list[int | None] = [None] * buckets
        self._greatest = [NO_WATERMARK] * len(schemas)
        self._began = [NO_WATERMARK] * len(schemas)
        self.watermark_us = NO_WATERMARK
        self._output: list[pa.RecordBatch] = []
        self._rejected: list[Rejected] = []
        self.metrics: Counter[str] = Counter()

    def arrivals(self, batches: Sequence[Sequence[pa.RecordBatch]]) -> Iterator[list[Arrival]]:
        """Raw batches of every input, read and sent to buckets: the arrivals of each bucket in turn."""
        per_bucket: list[list[Arrival]] = [[] for _ in self._stores]
        readers = self.operator.readers
        doubtful = [reader.units.rows for reader in readers]
        events = each(
            lambda input: [readers[input].read(batch) for batch in batches[input]],
            range(len(readers)),
            sum(batch.num_rows for raw in batches for batch in raw),
        )
        for reader, raw, before, read in zip(readers, batches, doubtful, events, strict=True):
            blocks = []
            for batch, (block, rejected) in zip(raw, read, strict=True):
                self._count(reader, batch, block, rejected)
                blocks.append(block)
                for bucket, arrival in self._split(reader.input, block):
                    per_bucket[bucket].append(arrival)
            if reader.units.rows > before:
                self.metrics[metrics.DOUBTFUL] += reader.units.rows - before
            self._note(reader.input, [times(block)[1] for block in blocks if block.num_rows])
        yield from per_bucket

    def read(self, input: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A raw batch of an input as a block."""
        reader = self.operator.readers[input]
        doubtful = reader.units.rows
        block = self._block(reader, batch)
        if reader.units.rows > doubtful:
            self.metrics[metrics.DOUBTFUL] += reader.units.rows - doubtful
        self._note(input, [times(block)[1]] if block.num_rows else [])
        return block

    def give(self, arrivals: list[Arrival], watermark_us: int, demand: FlushMode) -> Step:
        """One step whose output is not kept here; one that raises an error changes nothing."""
        before = self._stores[0].copy()
        try:
            step = self.step(arrivals, watermark_us, demand)
        except Exception:
            self._stores[0] = before
            raise
        self._output.clear()
        return step

    def take_in(self, batches: Sequence[Sequence[pa.RecordBatch]], demand: FlushMode) -> None:
        """One step of a stream in every bucket that has rows or whose timer is due."""
        for bucket, arrivals in enumerate(self.arrivals(batches)):
            timer = self._timers[bucket]
            if arrivals or (timer is not None and timer <= self.watermark_us):
                self._timers[bucket] = self.step(arrivals, self.watermark_us, demand, bucket).timer_us

    def advance(self, ended: Sequence[bool]) -> None:
        """Let the watermark follow the rows seen so far; an input that has ended holds nothing back."""
        come = [END_OF_TIME if done else us for done, us in zip(ended, self._greatest, strict=True)]
        if not all(ended):
            lateness_us, idle_after_us = self._query.lateness_us, self._query.idle_after_us
            past_idle = watermark_past_idle(self._began, lateness_us, idle_after_us)
            self.watermark_us = max(self.watermark_us, watermark_of(come, lateness_us), past_idle)

    def finish(self) -> None:
        """The input has ended: every bucket gives what is still to come."""
        for bucket in range(len(self._stores)):
            self.step([], self.watermark_us, FlushMode.END, bucket)

    def step(self, arrivals: list[Arrival], watermark_us: int, demand: FlushMode, bucket: int = 0) -> Step:
        """One step of one bucket's operator."""
        step = self.operator.step(self._stores[bucket], arrivals, watermark_us, demand, max(self._greatest))
        if self._output and not self._output[0].schema.equals(self.operator.output_schema):  # after `change`
            raise QueryError(
                Code.NOT_AVAILABLE,
                f"the query that continues has the columns {', '.join(self.operator.output_schema.names)}, the one "
                f"before it {', '.join(self._output[0].schema.names)}, or others of their types",
                "the output of a local run is one table: leave its columns as they are",
            )
        self._output += step.output
        self._rejected += step.rejected
        self.metrics += step.metrics
        return step

    def change(self, query: Query) -> None:
        """Continue with another query over the same state.

        Raises EngineError WA-3032 for one that an engine would refuse at a restart from a checkpoint. The next step
        raises QueryError WA-2007 for other output columns than before, unless the operator refuses the state.
        """
        if query.inputs != self._query.inputs:
            were, are = (", ".join(each.inputs) for each in (self._query, query))
            raise EngineError(
                Code.OTHER_QUERY,
                f"the inputs were {were} and are {are}",
                "let the query that continues have the same inputs",
            )
        operator = limited(query.operator(self._schemas, streaming=True), self._state_limit)
        first, now = (identity_of(each, self._schemas, len(self._stores)) for each in (self._first_query, query))
        now.check(first.to_json())  # engines keep the first one, too
        self._query, self.operator = query, operator

    def commit(self) -> _Commit:
        """All that a checkpoint would hold."""
        stores = [store.copy() for store in self._stores]
        return _Commit(
            stores,
            self._timers[:],
            self._greatest[:],
            self._began[:],
            self._output[:],
            self._rejected[:],
            self.metrics.copy(),
        )

    def restore(self, commit: _Commit) -> None:
        """Go back to a commit."""
        self._stores, self._timers, self._greatest, self._began = commit[:4]
        self._output, self._rejected, self.metrics = commit[4:]

    def outcome(self) -> Outcome:
        """Everything given so far, as tables."""
        warn_of_digits(self.metrics[metrics.DIGITS_CUT], "")
        _warn_of_values(self.metrics[metrics.NOT_FINITE])
        schemas, inputs = [reader.schema for reader in self.operator.readers], self._query.inputs
        rejected = [reject_rows(r, schemas, inputs) for r in self._rejected]
        for reader in self.operator.readers:
            reader.units.warn()
        return Outcome(
            pa.Table.from_batches(self._output, self.operator.output_schema),
            pa.Table.from_batches(rejected, rejects_schema(schemas)),
            self.metrics,
        )

    def _note(self, input: int, t_max: Sequence[IntArray]) -> None:
        """How far an input has come with the rows of a step, if anything depends on that."""
        if not t_max or not self._notes_times:
            return
        self._greatest[input] = max(self._greatest[input], *(int(t.max()) for t in t_max))
        if self._query.idle_after_us is not None:
            first = min(began(t, self._query.lateness_us[input]) for t in t_max)
            self._began[input] = max(self._began[input], first)

    def _split(self, input: int, block: pa.RecordBatch) -> Iterator[tuple[int, Arrival]]:
        if len(self._stores) == 1:
            if block.num_rows:
                yield 0, Arrival(input, block)
            return
        for bucket, at, copied in self.operator.keys.partition(input, block, len(self._stores)):
            yield bucket, (Copied if copied else Arrival)(input, block.take(pa.array(at)))

    def _block(self, reader: Reader, batch: pa.RecordBatch) -> pa.RecordBatch:
        block, rejected = reader.read(batch)
        self._count(reader, batch, block, rejected)
        return block

    def _count(self, reader: Reader, batch: pa.RecordBatch, block: pa.RecordBatch, rejected: list[Rejected]) -> None:
        self._rejected += rejected
        self.metrics[metrics.DIGITS_CUT] += times_cut(reader, block)
        self.metrics[metrics.ROWS_IN] += batch.num_rows
        self.metrics[metrics.REJECTED] += sum(r.rows.num_rows for r in rejected)


def _warn_of_values(rows: int) -> None:
    """Warn (`NotFiniteWarning`, WA-1076) of rows in which a chance function is NaN, if there are any."""
    if rows:
        warnings.warn(
            f"{Code.NOT_FINITE}: in {counted(rows, 'row')} a chance function is NaN: a value among their partners "
            "is NaN or infinite",
            NotFiniteWarning,
            stacklevel=users_level(),
        )
