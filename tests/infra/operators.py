"""An operator driven by hand, and a store that counts its accesses, for unit tests of operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from whenabouts.core.runtime.protocol import NO_WATERMARK, Arrival, FlushMode, Operator, Query, Step
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.wrappers.state_limit import StateLimit, limited

SECOND = 1_000_000


def arrivals_of(operator: Operator, rows: Mapping[int, pa.RecordBatch | pa.Table]) -> list[Arrival]:
    """Rows by the numbers of their inputs, as the operator's readers read them."""
    return [
        Arrival(input, operator.readers[input].read(batch).block)
        for input, given in sorted(rows.items())
        for batch in (given.to_batches() if isinstance(given, pa.Table) else [given])
    ]


class OperatorDriver:
    """One bucket of a streaming query: rows in, steps out; `store` has the state, `last` the newest step."""

    def __init__(
        self, query: Query, schema: pa.Schema, store: DictStore | None = None, *, limit: StateLimit | None = None
    ) -> None:
        self.query = query
        self.operator = limited(query.operator([schema] * len(query.inputs), streaming=True), limit)
        self.store = DictStore() if store is None else store
        self.last = Step()

    def feed(
        self,
        rows: Mapping[str, pa.RecordBatch | pa.Table],
        watermark_us: int = NO_WATERMARK,
        flush: FlushMode = FlushMode.NOTHING,
    ) -> Step:
        """Process rows, given by the names of their inputs."""
        by_number = {self.query.inputs.index(name): given for name, given in rows.items()}
        self.last = self.operator.step(self.store, arrivals_of(self.operator, by_number), watermark_us, flush)
        return self.last


class SecondsDriver(OperatorDriver):
    """A join of points whose rows are written as ids and seconds: `step(left={"a": 10.5})`.

    Of a schema's columns `t`, `id` and `k` the key is null for ids that begin with an n, else 1.
    """

    def __init__(self, query: Query, schema: pa.Schema, store: DictStore | None = None) -> None:
        super().__init__(query, schema, store)
        self._schema = schema

    def step(
        self, watermark: float | None = None, demand: FlushMode = FlushMode.NOTHING, **sides: dict[str, float]
    ) -> Step:
        """Process the sides' rows under a watermark in seconds."""
        watermark_us = NO_WATERMARK if watermark is None else round(watermark * SECOND)
        return self.feed({side: self._batch(rows) for side, rows in sides.items()}, watermark_us, demand)

    def _batch(self, rows: dict[str, float]) -> pa.RecordBatch:
        made = [{"t": round(t * SECOND), "k": None if id.startswith("n") else 1, "id": id} for id, t in rows.items()]
        return pa.RecordBatch.from_pylist(made, self._schema)


class Call(NamedTuple):
    """A call of a store."""

    kind: str
    input: int
    slot: int
    size: int


class CountingStore(DictStore):
    """Records every segment that is read or written, and its bytes (0: there was none)."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def get(self, input: int, slot: int) -> bytes | None:
        found = super().get(input, slot)
        self.calls.append(Call("get", input, slot, 0 if found is None else len(found)))
        return found

    def put(self, input: int, slot: int, data: bytes) -> None:
        self.calls.append(Call("put", input, slot, len(data)))
        super().put(input, slot, data)

    def moved(self, kind: str) -> int:
        """Bytes read ("get") or written ("put")."""
        return sum(call.size for call in self.calls if call.kind == kind)
