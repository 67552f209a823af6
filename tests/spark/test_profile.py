"""Profiles of Spark's DataFrames: the findings of the local profile of the same rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from whenabouts.core import profile
from whenabouts.core.errors import InputError

pytestmark = pytest.mark.slow

ROWS = 20_000


def much() -> pa.Table:
    """Two granularities, late rows, sentinels, nulls."""
    random = np.random.default_rng(0)
    us = 1_700_000_000_000_000 + np.cumsum(random.exponential(1_000_000, ROWS)).astype(np.int64)
    door = np.arange(ROWS) % 2 == 0
    us = np.where(door, us // 1_000_000 * 1_000_000, us // 1_000 * 1_000)
    arrival = us + random.exponential(1_000_000, ROWS).astype(np.int64)
    us[::500] = 0
    return pa.table(
        {
            "written at": pa.array(us, mask=np.arange(ROWS) % 300 == 1),
            "device.kind": np.where(door, "door", "lamp"),
            "seen": pa.array(arrival, pa.timestamp("us", "UTC")),
            "other": random.random(ROWS),
        }
    )


def findings(found: Any) -> list[tuple[str, str]]:
    return [(each.kind, each.sentence) for each in found.findings]


def test_a_dataframe_has_the_profile_of_its_rows(batch_of: Callable[[pa.Table], DataFrame], stream_of: Any) -> None:
    table = much()
    df = batch_of(table).repartition(3)
    options: dict[str, Any] = {"group": "device.kind", "arrival": "seen"}
    local, ours = (profile(rows, "written at", **options) for rows in (table, df))
    assert findings(ours) == findings(local)
    assert (ours.sentence, ours.specs(), ours.lateness()) == (local.sentence, local.specs(), local.lateness())
    assert all(found.where == () for found in ours.findings)

    local, ours = (profile(rows, "written at", max_rows=5_000, **options) for rows in (table, df))
    exact = ("sentinel", "null", "granularity")
    assert [each for each in findings(ours) if each[0] in exact] == [
        each for each in findings(local) if each[0] in exact
    ]
    assert [each.kind for each in ours.findings] == [each.kind for each in local.findings]
    assert (ours.sentence, ours.specs(), ours.rows) == (local.sentence, local.specs(), ROWS)

    unordered = profile(df, "written at")
    assert "give arrival=" in str(unordered)
    assert unordered.lateness() == 0
    with pytest.raises(InputError, match="WA-1062: the DataFrame is a stream"):
        profile(stream_of([table]), "written at")
    with pytest.raises(InputError, match="WA-1001"):
        profile(df, "t")
