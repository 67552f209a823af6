"""An operation that the package does not have, as a contributor would add one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Required, TypedDict, TypeVar, Unpack

import pyarrow as pa

from whenabouts.core import Point, metrics
from whenabouts.core.hosting.host_options import HostOptions, HostSettings
from whenabouts.core.hosting.signatures import takes_options_of
from whenabouts.core.operations import Operations
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.runtime.keys import Keys
from whenabouts.core.runtime.protocol import NO_WATERMARK, Arrival, FlushMode, SegmentStore, Step

Frame = TypeVar("Frame")


class NumberedOptions(TypedDict, total=False):
    time: Required[str]
    key: Required[str]
    first: int


class _Numbered(NumberedOptions, HostOptions, total=False):
    pass


@dataclass(frozen=True, kw_only=True)
class Numbered:
    """Each row's key and its number among the rows of its key, from `first` on."""

    time: str
    key: str
    first: int = 1

    inputs = ("rows",)
    lateness_us = (0,)
    says_lateness = True
    idle_after_us = None
    described = "numbered rows"

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> NumberedOperator:
        return NumberedOperator(self, schemas[0])


class NumberedOperator:
    event_time = None
    needs_latest = False

    def __init__(self, query: Numbered, schema: pa.Schema) -> None:
        self._query = query
        self.readers = (EventReader(0, "rows", schema, Point(query.time)),)
        self.keys = Keys((query.key,), [self.readers[0].schema], query.inputs)
        self.output_schema = pa.schema([self.readers[0].schema.field(query.key), pa.field("n", pa.int64())])

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: FlushMode = FlushMode.NOTHING,
        latest_us: int = NO_WATERMARK,
    ) -> Step:
        counts: dict[str, int] = json.loads(store.get(0, 0) or b"{}")
        step = Step()
        for _, block in arrivals:
            numbers = []
            for key in block.column(self._query.key).to_pylist():
                numbers.append(counts.get(str(key), self._query.first))
                counts[str(key)] = numbers[-1] + 1
            columns = [block.column(self._query.key), pa.array(numbers, pa.int64())]
            step.output.append(pa.RecordBatch.from_arrays(columns, schema=self.output_schema))
            step.metrics[metrics.PROCESSED] += block.num_rows
        if demand is not FlushMode.END:
            store.put(0, 0, json.dumps(counts).encode())
        return step

    def rows_held(self, store: SegmentStore) -> int:
        return 0


class MyOperations(Operations):
    @takes_options_of(Numbered, HostSettings)
    def numbered(self, frame: Frame, **options: Unpack[_Numbered]) -> Frame:
        return self.call(Numbered, [frame], options)


TABLE = pa.table({"t": list(range(0, 60, 10)), "k": ["a", "b", "a", "a", "b", "c"]})
NUMBERED = {("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("c", 1)}
