"""The states of single buckets as files of this repository: `python kept_states.py ARCHIVE` writes them.

The bytes of a bucket are the same on all engines (`whenabouts.core.state`), so these are made and continued in this
process. In the archive they are files QUERY/INPUT.SLOT.
"""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from whenabouts import Interval, JoinAggregate, WatchClock, between
from whenabouts.core.runtime.protocol import Arrival, FlushMode, Query
from whenabouts.core.state.memory_store import DictStore

START_US, RUN_US = 1_600_000_000_000_000, 20_000_000
ROWS = 160
"""Of each run."""

_TIME = Interval("t_min", "t_max", max_uncertainty="5 s")
_JOIN: dict[str, Any] = {
    "left_time": _TIME, "right_time": _TIME, "condition": between("-4 s", "25 s", confidence=0.6), "on": "k",
    "lateness": "45 s",
}  # fmt: skip
_DECIDED = {"n": "count", "total": "sum:level", "mean": "mean:x", "least": "min:id", "first": "first:id"}

QUERIES: dict[str, Query] = {
    "aggregate": JoinAggregate(**_JOIN, aggregates=_DECIDED | {"nobody": "p_none", "expected": "expected_count"}),
    "folded": JoinAggregate(**_JOIN, aggregates=_DECIDED, folding="always"),
    "watched": WatchClock(reading="reading", against="t_max", lateness="45 s"),
}
"""By name; the watched clock steps by 5 s at second 45, and only both runs together have rows enough to show it."""


def events(run: int) -> pa.Table:
    """The events of run 0 or 1. They spread over a minute, in order; those of run 1 begin 20 seconds later."""
    draw = np.random.default_rng(run)
    t_max = np.sort(draw.integers(0, 60_000_000, ROWS)) + START_US + run * RUN_US
    delay = draw.integers(0, 1_000, ROWS)
    columns = {
        "t_min": t_max - draw.integers(0, 5_000_000, ROWS), "t_max": t_max, "k": draw.integers(0, 4, ROWS),
        "level": draw.integers(0, 3, ROWS), "x": draw.random(ROWS), "id": 1000 * run + np.arange(ROWS),
        "reading": t_max - delay + np.where(t_max < START_US + 45_000_000, 0, 5_000_000),
    }  # fmt: skip
    return pa.table(columns)


def lived(query: Query, run: int, store: DictStore) -> pa.Table:
    """The output of a run, without event times. The first run leaves its state in the store."""
    operator = query.operator([events(run).schema] * len(query.inputs), streaming=True)
    (batch,) = events(run).combine_chunks().to_batches()
    arrivals = [Arrival(input, reader.read(batch).block) for input, reader in enumerate(operator.readers)]
    end = int(batch.column("t_max")[-1].as_py()) - 45_000_000
    steps = [operator.step(store, arrivals, START_US - 1), operator.step(store, [], end)]
    steps += [operator.step(store, [], end, FlushMode.END)] if run else []
    found = pa.Table.from_batches([rows for step in steps for rows in step.output], operator.output_schema)
    return found.select([name for name in found.column_names if name != "event_time"])


def states(archive: Path) -> dict[str, DictStore]:
    """The states in an archive, by query."""
    found: dict[str, DictStore] = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            (name, key), data = member.name.split("/"), tar.extractfile(member)
            assert data is not None, "archives hold files only"
            input, slot = map(int, key.split("."))
            found.setdefault(name, DictStore()).put(input, slot, data.read())
    return found


def pack(archive: Path) -> None:
    """Write the states that the first run leaves."""
    with tarfile.open(archive, "w:xz") as tar:
        for name, query in QUERIES.items():
            segments: dict[tuple[int, int], bytes] = {}
            lived(query, 0, DictStore(segments))
            for (input, slot), data in sorted(segments.items()):
                about = tarfile.TarInfo(f"{name}/{input}.{slot}")
                about.size = len(data)
                tar.addfile(about, io.BytesIO(data))


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
