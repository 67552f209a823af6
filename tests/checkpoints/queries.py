"""The streams whose checkpoints are kept: their events, and their queries in names that every release accepts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from whenabouts.core import Histogram, Interval, Lateness, Point, within

LIVES = 2
"""Streams that were checkpointed after run 0 and continue with run 1."""
ROWS = 60
LAST_ID = 1_000_000
"""The last event is so much later than all others that their rows are final. Rows that contain it are not compared."""

_TIME = Interval("t_min", "t_max", max_uncertainty="5 s")
_FAST = {"fast": [(0, 1_000_000, 0.75), (1_000_000, 3_000_000, 0.25)], "slow": [(0, 2_000_000, 1.0)]}
_TEMPLATED = Histogram("t_max", template="kind", templates=_FAST)

TIMING_JOINS: dict[str, dict[str, Any]] = {
    "inner": {"left_time": _TIME, "right_time": _TIME, "condition": within("4 s", confidence=0.6), "on": "k"},
    "best": {
        "left_time": _TIME, "right_time": _TEMPLATED, "condition": within("2 s", confidence=0.3), "on": "k",
        "how": "left_outer", "best": "left",
    },
}  # fmt: skip
"""Options of timing joins of the events with themselves."""
TWO_STREAMS = Lateness("1 minute", "1 minute")

WINDOW_JOIN: dict[str, Any] = {
    "time": Point("t_max"), "on": "k", "windows": {("a", "b"): "3 s", ("b", "c"): "2 s"},
}  # fmt: skip
"""Options of a window join of the events with themselves, twice."""

COALESCE: dict[str, Any] = {"time": "t_max", "group": "k", "values": "level", "window": "30 s", "slide": "10 s"}

ONE_STREAM = "1 minute"


def events(life: int) -> pa.Table:
    """The events of a run. They spread over a minute; those of the next run begin 20 seconds later."""
    draw = np.random.default_rng(life)
    t_max = draw.integers(0, 60_000_000, ROWS) + 1_600_000_000_000_000 + life * 20_000_000
    ids = 1000 * life + np.arange(ROWS)
    if life == LIVES - 1:
        t_max[-1] += 3_600_000_000
        ids[-1] = LAST_ID
    return pa.table(
        {
            "t_min": pa.array(t_max - draw.integers(0, 5_000_000, ROWS), pa.timestamp("us", "UTC")),
            "t_max": pa.array(t_max, pa.timestamp("us", "UTC")),
            "kind": pa.array(np.where(draw.random(ROWS) < 0.5, "fast", "slow")),
            "k": pa.array(draw.integers(0, 4, ROWS)),
            "level": pa.array(draw.integers(0, 3, ROWS)),
            "id": pa.array(ids),
        }
    )


def all_events_in_microseconds() -> pa.Table:
    """The events of all runs, times as numbers."""
    table = pa.concat_tables([events(life) for life in range(LIVES)])
    times = [pa.field(name, pa.int64()) for name in ("t_min", "t_max")]
    return table.cast(pa.schema([*times, *list(table.schema)[2:]]))
