"""The common part of the simulated engines: random decisions from a seed, and the collection of the output.

A simulated engine hosts operators as a real one does, in one process and by the same core code (`core.hosting`), over
state that is bytes. It fails where the real one can fail, and continues from its last checkpoint. Everything that a
real engine does not promise, from the order of events to failures, depends on one seed, which reproduces a run exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

import pyarrow as pa

from whenabouts.core.harness import Capabilities, Run, Variant
from whenabouts.core.hosting.host import OUTPUT, REJECTED, BlockPacker, Hosting, Packed, Tagged, read_counts
from whenabouts.core.local import Outcome
from whenabouts.core.runtime.protocol import Operator, Query
from whenabouts.core.runtime.rejects import rejects_schema
from whenabouts.core.state.segment_codec import decode
from whenabouts.core.wrappers.state_limit import StateLimit

T = TypeVar("T")


class KilledError(Exception):
    """The simulated engine has failed; it continues from its last checkpoint."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """What happens to a run. `kills`: the most failures; `chance`: of a failure at each possible point, except the
    first `spared` points.

    `free`: the seed also decides which files of the inputs are read together, and other things that laws about single
    steps need to be fixed.
    """

    seed: int = 0
    kills: int = 0
    chance: float = 0.0
    spared: int = 0
    free: bool = False


class Fate:
    """Makes the engine's random decisions from the seed. `log` lists the failures."""

    def __init__(self, schedule: Schedule) -> None:
        self._random = Random(schedule.seed)
        self._left, self._chance, self.free = schedule.kills, schedule.chance, schedule.free
        self._spared = schedule.spared
        self.log: list[str] = []

    def perhaps_fail(self, point: str, times: int = 1) -> None:
        """A point where the engine can fail, with `times` the usual probability. Raises KilledError if it does."""
        self._spared -= 1
        if self._spared < 0 < self._left and self._random.random() < self._chance * times:
            self._left -= 1
            self.log.append(point)
            raise KilledError(point)

    def happens(self, chance: float) -> bool:
        """Whether something happens that the engine does not promise."""
        return self._random.random() < chance

    def choice(self, options: Sequence[T]) -> T:
        """One of several."""
        return options[self._random.randrange(len(options))] if len(options) > 1 else options[0]

    def between(self, least: int, most: int) -> int:
        """A number, the ends included."""
        return self._random.randint(least, most)

    def shuffled(self, values: Iterable[T]) -> list[T]:
        """The values in some order."""
        mixed = list(values)
        self._random.shuffle(mixed)
        return mixed


class SimulatedRun:
    """One query being run. `collect` restarts the engine after each failure, until the end of the input."""

    limit: StateLimit | None = None
    own_watermarks = False

    def __init__(self, query: Query, variant: Variant, schedule: Schedule) -> None:
        self.query, self.variant, self.schedule = query, variant, schedule
        self.fate = Fate(schedule)
        self._files: dict[str, Sequence[pa.Table]] = {}
        self._asked = variant.restart_after

    def source(self, input: str, files: Sequence[pa.Table]) -> None:
        """Give an input its files, in the order in which they arrive."""
        self._files[input] = files

    def collect(self) -> Outcome:
        """Run to the end of the input; returns the committed rows, each once."""
        self.files = [self._files[name] for name in self.query.inputs]
        self._host(self.query)
        while True:
            try:
                return outcome(self._operator, self.life())
            except KilledError:
                pass

    def _host(self, query: Query) -> None:
        """Set the query that the engine runs from its next start on."""
        schemas = tuple(tables[0].schema for tables in self.files)
        self.query = query
        self.hosting = Hosting(
            query,
            schemas,
            self.variant.parallelism,
            self.variant.streaming,
            self.limit,
            own_watermarks=self.own_watermarks,
        )
        self._operator = self.hosting.operator()
        self.packers = [BlockPacker(self.hosting, input, self._operator) for input in range(len(schemas))]

    def life(self) -> Iterable[Tagged | tuple[int, bytes]]:
        """The engine from its start to the end of the input, or to a failure. Returns all committed rows."""
        raise NotImplementedError

    def fail_if_asked(self, step: int) -> None:
        """The failure of `Variant.restart_after`, once."""
        if self._asked is not None and step >= self._asked:
            self._asked = None
            self._host(self.variant.restarted_as or self.query)
            self.fate.log.append(f"step {step}, as asked")
            raise KilledError(f"step {step}")

    def steps(self) -> int:
        """The greatest number of files of an input."""
        return max(map(len, self.files))

    def packed(self, input: int, number: int) -> list[Packed]:
        """File `number` of an input as packed rows, rejects included; empty after the last file."""
        if number >= len(self.files[input]):
            return []
        packer, rows = self.packer(input, number), []
        for batch in self.files[input][number].combine_chunks().to_batches():
            block, refused = packer.read(batch)
            rows += [*refused, *packer.split([block])]
        return rows

    def packer(self, input: int, number: int) -> BlockPacker:
        """Who packs file `number` of an input."""
        return self.packers[input]


class SimulatedHarness:
    """The harness of a simulated engine; `run` is its kind of run."""

    name: str
    capabilities = Capabilities(in_process=True)
    run: type[SimulatedRun]
    schedule = Schedule()

    def start(self) -> None:
        """Nothing to start."""

    def stop(self) -> None:
        """Nothing to stop."""

    def open(self, query: Query, variant: Variant) -> Run:
        """Prepare a run of `query`."""
        return self.run(query, variant, self.schedule)


def outcome(operator: Operator, tagged: Iterable[Tagged | tuple[int, bytes]]) -> Outcome:
    """The outcome of all tagged rows of a query."""
    rejects = rejects_schema([reader.schema for reader in operator.readers])
    blobs: dict[int, list[bytes]] = {}
    for tag, blob in tagged:
        blobs.setdefault(tag, []).append(blob)
    counts = read_counts(blob for tag, each in blobs.items() if tag not in (OUTPUT, REJECTED) for blob in each)

    def rows(tag: int, schema: pa.Schema) -> pa.Table:
        return pa.Table.from_batches([decode(blob, schema) for blob in blobs.get(tag, [])], schema)

    return Outcome(rows(OUTPUT, operator.output_schema), rows(REJECTED, rejects), Counter(counts))


class Segments:
    """A `SegmentStore` over a dict of bytes, which a checkpoint copies."""

    def __init__(self, data: dict[tuple[int, int], bytes]) -> None:
        self.data = data

    def get(self, input: int, slot: int) -> bytes | None:
        """The segment's bytes, or None."""
        return self.data.get((input, slot))

    def put(self, input: int, slot: int, data: bytes) -> None:
        """Create or replace the segment."""
        self.data[input, slot] = bytes(data)

    def delete(self, input: int, slot: int) -> None:
        """Drop the segment if it is there."""
        self.data.pop((input, slot), None)

    def clear(self) -> None:
        """Drop all segments."""
        self.data.clear()
