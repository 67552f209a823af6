"""Events with a known answer: written out of order within their lateness, some of them twice, some of them poison."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from infra.topics import Written
from whenabouts.core import Interval, within
from whenabouts.core.local import coalesce, timing_join

SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND
CENTURY = 5_000_000_000 * SECOND
LATENESS = 5 * SECOND
LONGEST = {"seismic": SECOND // 2, "acoustic": 2 * SECOND}
PARTITIONS = 2
ACOUSTIC: Any = fastavro.parse_schema(
    {
        "type": "record", "name": "acoustic",
        "fields": [
            {"name": "id", "type": "long"}, {"name": "region", "type": "string"},
            {"name": "t_min", "type": "long"}, {"name": "t_max", "type": ["null", "long"]},
        ],
    }
)  # fmt: skip
"""As in the examples."""

Refused = Counter[tuple[str, str]]
"""The number of an input's rows rejected with a code."""


@dataclass(frozen=True)
class Scene:
    """The rows of both topics over some period. It ends with a silence and a row of each region, and after another
    silence, so that the watermark passes these, with ticks in each partition."""

    tables: Mapping[str, pa.Table]
    ends_us: int


def scene(
    rows: Mapping[str, int], *, seconds: float, regions: int, number: int, begin_us: int = BEGIN, hot: float = 0.0
) -> Scene:
    """A number of rows of each topic in so many seconds, of which the share `hot` is of one region.

    `number`: that of the scene; it gives unique levels and ids, and seeds the random rows.
    """
    first, span = number * 10_000_000, int(seconds * SECOND)
    quiet, tick = (begin_us + span + each * SECOND for each in (20, 40))
    tables = {}
    for at, (topic, longest) in enumerate(LONGEST.items()):
        draw, n = np.random.default_rng([number, at]), rows[topic]
        t_max = begin_us + np.sort(draw.choice(span, n, replace=False))  # no two readings of a region at one instant
        region = np.where(draw.random(n) < hot, 0, draw.integers(0, regions, n))
        t_max = np.concatenate([t_max, np.full(regions, quiet), tick + np.arange(PARTITIONS)])
        names = [*(f"r{each}" for each in region), *(f"r{each}" for each in range(regions)), *["tick"] * PARTITIONS]
        columns = {
            "id": first + np.arange(len(t_max)),
            "region": pa.array(names),
            "t_min": t_max - draw.integers(0, longest + 1, len(t_max)),
            "t_max": t_max,
        }
        if topic == "seismic":
            columns["level"] = np.concatenate([number * 10 + draw.integers(0, 3, n), [number * 10 + 3] * (regions + 2)])
        tables[topic] = pa.table(columns)
    return Scene(tables, tick)


def expected_pairs(scenes: Sequence[Scene]) -> Counter[tuple[int, int]]:
    """The pairs that the examples must find."""
    pairs = timing_join(
        *(pa.concat_tables(scene.tables[topic] for scene in scenes) for topic in LONGEST),
        on="region",
        left_time=Interval("t_min", "t_max", max_uncertainty="500 ms"),
        right_time=Interval("t_min", "t_max", max_uncertainty="2 s"),
        condition=within("2 s", confidence=0.6),
    )  # fmt: skip
    return Counter(zip(pairs["id_left"].to_pylist(), pairs["id_right"].to_pylist(), strict=True))


def expected_levels(scenes: Sequence[Scene]) -> Counter[tuple[Any, ...]]:
    """The rows of coalesced levels that are final: region, level, from, to and number."""
    rows = pa.concat_tables(scene.tables["seismic"] for scene in scenes)
    runs = coalesce(rows, time="t_max", group="region", values="level").to_pylist()
    passed = scenes[-1].ends_us - LATENESS
    last = {run["region"]: run["valid_from"] for run in sorted(runs, key=lambda run: run["valid_from"])}
    done = (run for run in runs if run["valid_to"] <= passed and run["valid_from"] != last[run["region"]])
    return Counter(level_of(run) for run in done)


def level_of(run: Mapping[str, Any]) -> tuple[Any, ...]:
    """A row of coalesced levels."""
    return tuple(run[name] for name in ("region", "level", "valid_from", "valid_to", "n"))


POISON = ("WA-1051", "WA-1051", "WA-1004", "WA-1003", "WA-1052")
"""The codes with which each topic's poison must be rejected."""


def poison(topic: str, now_us: int) -> list[bytes]:
    """Unusable records, one for each of `POISON`: not a record, another schema, a reversed interval, no time, and a
    time a century ahead."""
    row = {"id": -1, "region": "nowhere", "t_min": now_us, "t_max": now_us, "level": -1}
    return [
        b"no record",
        json.dumps(row | {"id": "seven"}).encode(),
        _record(topic, row | {"t_min": now_us + 9}),
        _record(topic, row | {"t_max": None}),
        _record(topic, row | {"t_min": CENTURY, "t_max": CENTURY}),
    ]


def refused(found: Iterable[tuple[str, str]]) -> Refused:
    """The dead letters of poison that was found in topics, as (topic, code). Coalescing uses one end of a time: it
    accepts a reversed interval."""
    letters: Refused = Counter()
    for topic, code in found:
        letters["left" if topic == "seismic" else "right", code] += 1
        if topic == "seismic" and code != "WA-1004":
            letters["events", code] += 1
    return letters


def written(scene: Scene, *, twice: float = 0.0, poisoned: bool = False) -> Iterator[Written]:
    """Records in the order of writing: a row comes up to a quarter of its lateness after its time, some of them are
    repeated at once, with poison in between."""
    order: list[tuple[float, str, dict[str, Any]]] = []
    for at, (topic, table) in enumerate(scene.tables.items()):
        draw = np.random.default_rng(at)
        delay = draw.uniform(0, LATENESS / 4, table.num_rows)
        again = draw.random(table.num_rows) < twice
        for row, late, repeat in zip(table.to_pylist(), delay, again, strict=True):
            order.append((row["t_max"] + late, topic, row))
            if repeat:
                order.append((row["t_max"] + late + 1, topic, row))
    order.sort(key=lambda each: each[0])
    places = np.linspace(len(order) * 0.1, len(order) * 0.6, len(POISON)).astype(int).tolist() if poisoned else []
    for place, (at_us, topic, row) in enumerate(order):
        at_ms = int(at_us // 1000)
        if place in places:
            number = places.index(place)
            for bad in scene.tables:
                value, code = poison(bad, int(at_us))[number], POISON[number].encode()
                yield Written(bad, value, place % PARTITIONS, at_ms, key=code)
        yield Written(topic, _record(topic, row), row["id"] % PARTITIONS, at_ms)


def _record(topic: str, row: Mapping[str, Any]) -> bytes:
    """As stored in the topic."""
    if topic == "seismic":
        return json.dumps(row).encode()
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, ACOUSTIC, dict(row))
    return stream.getvalue()
