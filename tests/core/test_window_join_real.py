"""Window joins over real data: three catalogues, three devices and three motes, against the same questions in SQL.

The data is not in the repository; WHENABOUTS_DATA names its folder.
"""

from __future__ import annotations

import itertools
import os
import runpy
from pathlib import Path

import pyarrow as pa
import pytest

from whenabouts.core import Interval, Point, within
from whenabouts.core.local import window_join

duckdb = pytest.importorskip("duckdb")

DATA = Path(os.environ.get("WHENABOUTS_DATA", "/nonexistent"))
POSSIBLE = 5e-324
"""The least confidence: every combination that is not impossible."""

QUESTIONS = {
    # Origin times of three catalogues of one earthquake sequence, two standard errors (or residuals) to each side.
    "ridgecrest_catalogs": (
        """SELECT catalog AS name, epoch_us(t) AS t, epoch_us(t) - h AS lo, epoch_us(t) + h AS hi, 1 AS k FROM (
           SELECT *, (1000000 * coalesce(2 * sigma_s, 2 * rms_s, 0.005)::DOUBLE)::BIGINT AS h FROM data
           WHERE t BETWEEN '2019-07-04 17:02:50' AND '2019-07-04 23:59:50')""",
        ("SCSN", "GaMMA", "PAL_HYPOINVERSE"), 3_000_000, 417, 401,
    ),
    # Sending times of devices: between the server's receipt and a round trip earlier.
    "s9_d1_ooo_events": (
        """SELECT device AS name, epoch_us(server_recv) AS t, t AS hi, 1 AS k,
           t - 1000 * (epoch_ms(ack) - epoch_ms(send) - epoch_ms(server_done) + epoch_ms(server_recv)) AS lo
           FROM data""",
        ("dev_12", "dev_5", "dev_7"), 250_000, 1_201, None,
    ),
    # Readings of neighbouring motes in one class of temperature: they arrive up to 15 s late.
    "intel_lab_20040304_20040308": (
        """SELECT mote::VARCHAR AS name, epoch_us(recv_ts) AS t, t - 15000000 AS lo, t AS hi,
           floor(temperature)::INT AS k FROM data WHERE temperature IS NOT NULL""",
        ("21", "22", "23"), 30_000_000, 16_604, None,
    ),
}  # fmt: skip


@pytest.mark.skipif(not DATA.is_dir(), reason="WHENABOUTS_DATA names no folder")
@pytest.mark.parametrize("name", QUESTIONS)
def test_real_combinations_are_those_of_sql(name: str) -> None:
    sql, streams, width, possible, exact = QUESTIONS[name]
    with duckdb.connect() as base:
        base.sql(f"CREATE VIEW data AS FROM '{DATA / name}.parquet'")
        base.sql(f"CREATE TABLE rows AS SELECT *, row_number() OVER () AS id FROM ({sql}) WHERE lo <= hi")
        tables = {
            stream: base.sql(f"SELECT * EXCLUDE name FROM rows WHERE name = '{stream}'").to_arrow_table()
            for stream in streams
        }
        a, b, c = (f"(SELECT * FROM rows WHERE name = '{stream}')" for stream in streams)
        joined = f"SELECT a.id, b.id, c.id FROM {a} a JOIN {b} b ON a.k = b.k JOIN {c} c ON a.k = c.k WHERE "
        conditions = {
            "possible": "{x}.lo - {y}.hi < {w} AND {y}.lo - {x}.hi < {w}",
            "certain": "{x}.hi - {y}.lo <= {w} AND {y}.hi - {x}.lo <= {w}",
            "exact": "abs({x}.t - {y}.t) <= {w}",
        }
        told = {
            answer: base.sql(
                joined + " AND ".join(condition.format(x=x, y=y, w=width) for x, y in ("ab", "bc", "ac"))
            ).fetchall()
            for answer, condition in conditions.items()
        }
    everywhere = list(itertools.combinations(streams, 2))
    for strategy in ("backward", "forward"):
        found = window_join(
            tables, on="k", time=Interval("lo", "hi"), strategy=strategy, joint=True,
            windows={pair: within(width, confidence=POSSIBLE) for pair in everywhere},
        )  # fmt: skip
        assert _ids(found, streams) == sorted(told["possible"])
        assert found.num_rows == possible
        probability = found.column("probability").to_numpy()
        assert probability.min() >= 0
        assert probability.max() == 1.0
    sure = {pair: within(width, confidence=1) for pair in everywhere}
    assert window_join(tables, on="k", time=Interval("lo", "hi"), windows=sure).num_rows == len(told["certain"])
    points = window_join(tables, on="k", time=Point("t"), windows=dict.fromkeys(everywhere, width))
    assert _ids(points, streams) == sorted(told["exact"])
    assert exact is None or points.num_rows == exact


@pytest.mark.skipif(not DATA.is_dir(), reason="WHENABOUTS_DATA names no folder")
def test_the_example_finds_the_quakes_near_each_other() -> None:
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "one_quake_in_three_catalogues.py"))
    found = example["same_quakes"](DATA / "ridgecrest_catalogs.parquet")
    assert 300 < found.num_rows < 417
    for row in found.to_pylist():
        assert abs(row["lat_network"] - row["lat_picked"]) < 0.1
        least = min(value for name, value in row.items() if name.startswith("probability_"))
        assert least >= 0.5
        assert row["probability"] <= least + 1e-9


def _ids(found: pa.Table, streams: tuple[str, ...]) -> list[tuple[int, ...]]:
    return sorted(zip(*(found.column(f"id_{stream}").to_pylist() for stream in streams), strict=True))
