"""Rows whose profile has findings of most kinds, and these findings in a form that can be compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def rows_to_profile(rows: int) -> pa.Table:
    """Two granularities, late rows, sentinels, nulls; a column `other` that is not named when they are profiled."""
    random = np.random.default_rng(0)
    us = 1_700_000_000_000_000 + np.cumsum(random.exponential(1_000_000, rows)).astype(np.int64)
    door = np.arange(rows) % 2 == 0
    us = np.where(door, us // 1_000_000 * 1_000_000, us // 1_000 * 1_000)
    arrival = us + random.exponential(1_000_000, rows).astype(np.int64)
    us[::500] = 0
    return pa.table(
        {
            "other": random.random(rows),
            "written at": pa.array(us, mask=np.arange(rows) % 300 == 1),
            "device.kind": np.where(door, "door", "lamp"),
            "seen": pa.array(arrival, pa.timestamp("us", "UTC")),
        }
    )


def findings(found: Any) -> list[tuple[str, str]]:
    """Kind and sentence of each."""
    return [(each.kind, each.sentence) for each in found.findings]
