"""Profiles of Spark's DataFrames: the findings of the local profile of the same rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from infra.profiled import findings, rows_to_profile
from whenabouts.core import profile
from whenabouts.core.errors import InputError

pytestmark = pytest.mark.slow

ROWS = 20_000


def test_a_dataframe_has_the_profile_of_its_rows(batch_of: Callable[[pa.Table], DataFrame], stream_of: Any) -> None:
    table = rows_to_profile(ROWS)
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
