"""Readings of the Intel lab's motes (2004): their coalescing probabilities, and the paper's questions on real data.

The data set states no licence and is no part of the project: WHENABOUTS_DATA names a folder that holds it.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from whenabouts.conformance import coalescing_oracle as scratch
from whenabouts.core.local import coalesce, temporal_join

FILE = Path(os.environ.get("WHENABOUTS_DATA", "")) / "intel_lab_20040304_20040308.parquet"
pytestmark = pytest.mark.skipif(
    not FILE.is_file(), reason="WHENABOUTS_DATA names no folder with the Intel Lab readings"
)

SECOND, MINUTE, HOUR = 1_000_000, 60_000_000, 3_600_000_000

PROBABILITIES = {
    "temperature": {
        0: 0.2565, 0.02: 0.427, 0.025: 0.494, 0.03: 0.542, 0.05: 0.672, 0.1: 0.809, 0.2: 0.897, 0.5: 0.956, 1: 0.978,
    },
    "humidity": {
        0: 0.317, 0.05: 0.407, 0.08: 0.506, 0.1: 0.564, 0.2: 0.731, 0.3: 0.809, 0.5: 0.881, 1: 0.939, 2: 0.969,
    },
    "voltage": {0: 0.703, 0.012: 0.744, 0.02: 0.835, 0.05: 0.925, 0.1: 0.957},
    "light": {0: 0.850, 10: 0.874, 50: 0.926, 200: 0.974},
}  # fmt: skip
"""Of consecutive readings of a mote, by quantum: how many lie in the same bucket `floor(value / quantum)`."""


@lru_cache
def readings() -> pa.Table:
    """Every received reading: time, mote, and measurements."""
    table = pq.read_table(FILE, columns=["recv_ts", "mote", *PROBABILITIES])
    return table.rename_columns(["t", *table.column_names[1:]])


def quantised(column: str, quantum: float) -> pa.Table:
    """The non-null readings of a column in buckets. Quantum 0: unchanged, in single precision."""
    known = readings().filter(pc.is_valid(pc.field(column)))
    values = known.column(column).to_numpy()
    bucket = np.floor(values / np.float32(quantum)) if quantum else values
    return pa.table({"t": known.column("t"), "mote": known.column("mote"), "bucket": bucket})


@pytest.mark.parametrize(
    ("column", "quantum", "told"),
    [(column, quantum, cp) for column, told in PROBABILITIES.items() for quantum, cp in told.items()],
)
def test_the_coalescing_probability_of_a_quantum(column: str, quantum: float, told: float) -> None:
    table = quantised(column, quantum)
    runs = coalesce(table, time="t", group="mote", values="bucket")
    motes = len(runs.column("mote").unique())
    pairs = table.num_rows - motes
    # The last digit can depend on the precision of the division by the quantum.
    assert abs((table.num_rows - runs.num_rows) / pairs - told) <= 0.0006
    assert pc.sum(runs.column("n")).as_py() == table.num_rows


def test_temperature_and_humidity_together() -> None:
    """Unchanged readings have 427,252 runs; the data's own description says 427,146, for humidity to the nearest
    0.0335."""
    table = readings()
    stepped = np.rint(table.column("humidity").to_numpy().astype(float) / 0.0335)
    for humidity, runs in ((table.column("humidity"), 427_252), (pa.array(stepped), 427_146)):
        both = table.set_column(table.column_names.index("humidity"), "humidity", humidity)
        assert coalesce(both, time="t", group="mote", values=["temperature", "humidity"]).num_rows == runs


def runs_by_hand(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """Mote, begin, end and number of readings of each run, by a walk over sorted rows."""
    at = table.column("t").cast(pa.int64()).to_pylist()
    rows = sorted(zip(table.column("mote").to_pylist(), at, table.column("bucket").to_pylist(), strict=True))
    begins = [0, *(i for i, (one, other) in enumerate(pairwise(rows), 1) if one[::2] != other[::2]), len(rows)]
    found = Counter[tuple[Any, ...]]()
    for start, stop in pairwise(begins):
        follows = stop < len(rows) and rows[stop][0] == rows[start][0]
        end = rows[stop][1] if follows else rows[stop - 1][1]
        found[rows[start][0], rows[start][1], end, stop - start] += 1
    return found


def test_regions_whose_temperature_did_not_change_for_two_hours() -> None:
    table = quantised("temperature", 1)
    runs = coalesce(table, time="t", group="mote", values="bucket")
    lasting = pc.subtract(runs.column("valid_to"), runs.column("valid_from")).cast(pa.int64())
    still = runs.filter(pc.greater_equal(lasting, 2 * HOUR))
    ends = (still.column(name).cast(pa.int64()).to_pylist() for name in ("valid_from", "valid_to"))
    found = Counter(zip(still.column("mote").to_pylist(), *ends, still.column("n").to_pylist(), strict=True))
    by_hand = runs_by_hand(table)
    assert found == Counter({run: n for run, n in by_hand.items() if run[2] - run[1] >= 2 * HOUR})
    assert len({mote for mote, *_ in found}) > 40  # nights are long: nearly every mote has such a period
    assert 0.01 < found.total() / by_hand.total() < 0.2


def test_example_1_two_motes_of_similar_humidity_for_four_minutes_in_the_past_hour() -> None:
    """At every minute: Al-Kateb 2010, Example 1, on five motes and three hours of buckets of 0.5 % of humidity."""
    table = quantised("humidity", 0.5)
    first = pc.min(table.column("t")).cast(pa.int64()).as_py()
    wanted = pc.and_(
        pc.is_in(table.column("mote"), pa.array([1, 2, 3, 4, 6], pa.int16())),
        pc.less(table.column("t").cast(pa.int64()), first + 3 * HOUR),
    )
    table = table.filter(wanted)
    table = table.set_column(0, "t", table.column("t").cast(pa.int64()))

    def similar(one: pa.Table, other: pa.Table) -> Any:
        near = pc.less_equal(pc.abs(pc.subtract(one["bucket"], other["bucket"])), 1)
        return pc.and_(near, pc.less(one["mote"], other["mote"]))

    pairs = temporal_join(
        table,
        table,
        time="t",
        group="mote",
        values="bucket",
        window="60m",
        slide="1m",
        matches=similar,
        min_duration="4m",
    )
    columns = ("window_end", "mote_left", "mote_right", "valid_from", "valid_to")
    found = Counter(zip(*(pairs.column(name).to_pylist() for name in columns), strict=True))
    rows = [scratch.Reading(row["t"], (row["mote"],), row) for row in table.to_pylist()]
    expected = Counter[tuple[Any, ...]]()
    for at in scratch.instants(rows, MINUTE):
        runs = scratch.coalesced(
            scratch.extent_by_time(rows, at, HOUR), scratch.all_equivalent("equal", None, ["bucket"])
        )

        def wanted_pair(a: scratch.CoalescedTuple, b: scratch.CoalescedTuple) -> bool:
            near = a.group < b.group and abs(a.rows[0]["bucket"] - b.rows[0]["bucket"]) <= 1
            return near and min(a.end, b.end) - max(a.start, b.start) >= 4 * MINUTE

        for a, b, (start, end) in scratch.join(runs, runs, wanted_pair):
            expected[at, *a.group, *b.group, start, end] += 1
    assert found == expected
    assert found.total() > 1_000
