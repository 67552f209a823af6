"""Events whose answer is known: written out of order within their lateness, some of them twice, some of them poison."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from infra.topics import Written
from whenabouts.core import Interval, within
from whenabouts.core.local import timing_join

SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND
CENTURY = 5_000_000_000 * SECOND
LATENESS = 5 * SECOND
LONGEST = {"seismic": SECOND // 2, "acoustic": 2 * SECOND}
POISON = {
    "WA-1051": b"no json",
    "WA-1004": json.dumps({"id": -1, "region": "r0", "t_min": BEGIN + 9, "t_max": BEGIN}).encode(),
    "WA-1003": json.dumps({"id": -2, "region": "r0", "t_min": BEGIN}).encode(),
    "WA-1052": json.dumps({"id": -3, "region": "r0", "t_min": CENTURY, "t_max": CENTURY}).encode(),
}
"""By the code with which it is to be refused."""


def events(rows: int, *, regions: int, per_second: float, seed: int) -> dict[str, pa.Table]:
    """`rows` of each topic, in the order of their times."""
    tables = {}
    for at, (topic, longest) in enumerate(LONGEST.items()):
        draw = np.random.default_rng([seed, at])
        t_max = BEGIN + np.sort(draw.integers(0, int(rows / per_second * SECOND), rows))
        tables[topic] = pa.table(
            {
                "id": np.arange(rows),
                "region": pa.array([f"r{each}" for each in draw.integers(0, regions, rows)]),
                "t_min": t_max - draw.integers(0, longest + 1, rows),
                "t_max": t_max,
            }
        )
    return tables


def expected(tables: dict[str, pa.Table]) -> Counter[tuple[int, int]]:
    """The pairs that the examples are to find."""
    pairs = timing_join(
        tables["seismic"], tables["acoustic"], on="region",
        left_time=Interval("t_min", "t_max", max_uncertainty="500 ms"),
        right_time=Interval("t_min", "t_max", max_uncertainty="2 s"),
        condition=within("2 s", confidence=0.6),
    )  # fmt: skip
    return Counter(zip(pairs["id_left"].to_pylist(), pairs["id_right"].to_pylist(), strict=True))


def written(tables: dict[str, pa.Table], *, twice: float, seed: int) -> Iterator[Written]:
    """Records in the order of writing: a row comes up to half of its lateness after its time, a part of them again
    right behind, and poison in between."""
    draw = np.random.default_rng(seed)
    order: list[tuple[float, str, dict[str, Any]]] = []
    for topic, table in tables.items():
        delay = draw.uniform(0, LATENESS / 2, table.num_rows)
        again = draw.random(table.num_rows) < twice
        for row, late, repeat in zip(table.to_pylist(), delay, again, strict=True):
            order.append((row["t_max"] + late, topic, row))
            if repeat:
                order.append((row["t_max"] + late + 1, topic, row))
    order.sort(key=lambda each: each[0])
    poison = [(topic, value) for topic in tables for value in POISON.values()]
    places = set(np.linspace(0, len(order) - 1, len(poison)).astype(int).tolist())
    for place, (at_us, topic, row) in enumerate(order):
        at_ms = int(at_us // 1000)
        if place in places:
            bad, value = poison.pop()
            yield Written(bad, value, place, at_ms)
        yield Written(topic, json.dumps(row).encode(), row["id"], at_ms)
