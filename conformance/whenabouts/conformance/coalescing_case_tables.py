"""Readings for the laws of coalescing: values that last for half a minute, nulls, NaN, instants that two rows claim."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from whenabouts.conformance.case_tables import SECOND, YEAR_2024, Files, cut, reordered, rng
from whenabouts.core import Point
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.temporal_queries.aggregate_query import FUNCTIONS, TemporalAggregate
from whenabouts.core.temporal_queries.join_query import TemporalJoin

LATENESS = "3 s"

_BY_GROUP: dict[str, Any] = {"time": "t", "group": "room", "values": ["level", "state"], "lateness": LATENESS}
_LEVEL = {**_BY_GROUP, "values": "level"}

QUERIES: dict[str, Coalesce] = {
    "all": Coalesce(**_BY_GROUP),
    "all, lazy": Coalesce(**_BY_GROUP, scheme="lazy"),
    "slides": Coalesce(**_BY_GROUP, window="40 s", slide="15 s"),
    "slides, lazy": Coalesce(**_BY_GROUP, window="40 s", slide="15 s", scheme="lazy"),
    "slides of near values": Coalesce(
        **_LEVEL, window="30 s", slide="30 s", equivalence="absolute_tolerance:1.5", closed="right"
    ),
    "slides of rising values": Coalesce(**_LEVEL, window="60 s", slide="20 s", equivalence="non_decreasing"),
    "window at an instant": Coalesce(**_BY_GROUP, window="25 s", at=YEAR_2024 + 100 * SECOND),
    "last window": Coalesce(**_BY_GROUP, window="25 s"),
    "rows": Coalesce(**_BY_GROUP, rows=60, slide="20 s"),
    "rows, lazy": Coalesce(**_LEVEL, rows=100, slide=90, equivalence="non_increasing", scheme="lazy"),
    "rows of each group": Coalesce(**_BY_GROUP, rows=6, per_group=True, slide=4),
}
"""Name -> query over the columns of `readings`."""


TEMPORAL: dict[str, TemporalAggregate | TemporalJoin] = {
    "aggregate": TemporalAggregate(
        **_BY_GROUP, window="40 s", slide="15 s", aggregates={name: name for name in FUNCTIONS}
    ),
    "join": TemporalJoin(**_BY_GROUP, window="30 s", slide="30 s", on=["room"], relation="meets"),
    "join of rows": TemporalJoin(**_BY_GROUP, rows=100, slide=40, on=["level"]),
}
"""The queries on coalesced extents."""


@lru_cache
def readings() -> pa.Table:
    """1,500 rows of 30 groups over four minutes, in no order; ids tell them apart, and some stand twice."""
    random, n = rng("readings"), 1400
    room, second = random.integers(0, 30, n), random.integers(0, 240, n)
    second -= 20 * ((room != 3) & (second >= 220))  # one group continues after the others have ended
    lasting = np.where(random.random(n) < 0.92, second // 30 + room, random.integers(0, 6, n))
    table = pa.table(
        {
            "room": pa.array(room, mask=room == 7),
            "level": pa.array(np.array([np.nan, 1.0, 2.5])[lasting % 3], mask=lasting % 4 == 3),
            "state": pa.array(np.array(["on", "off"])[lasting % 2], mask=lasting % 5 == 4),
            "t": pa.array(YEAR_2024 + SECOND * second, mask=random.random(n) < 0.02),
            "id": pa.array(np.arange(n)),
        }
    )
    return pa.concat_tables([table, table.take(pa.array(random.integers(0, n, 100)))])


@lru_cache
def stream(files: int = 4, seed: int = 0) -> dict[str, Files]:
    """The readings as files of a stream, out of order inside the lateness."""
    lateness_us = QUERIES["all"].lateness_us[0]
    ordered = reordered(readings(), Point("t"), lateness_us, "readings", seed)
    return {"events": cut(ordered, files, "readings", seed)}


@lru_cache
def finite() -> dict[str, Files]:
    """The readings as one file."""
    return {"events": (readings(),)}
