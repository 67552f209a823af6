"""One earthquake in three catalogues: which entries are the same quake, and how sure is that?

    WHENABOUTS_DATA=folder python examples/one_quake_in_three_catalogues.py

Catalogues of one sequence (Ridgecrest, July 2019) were made by different means and disagree on the origin time by up to
some seconds; each has its own measure of how far off it may be. The folder holds `ridgecrest_catalogs.parquet` with
catalog, event_id, t, sigma_s, rms_s, lat and lon.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import whenabouts as wa

CATALOGUES = {"network": "SCSN", "learned": "GaMMA", "picked": "PAL_HYPOINVERSE"}


def catalogue(path: Path, name: str) -> pa.Table:
    """A catalogue's entries, the origin time as an interval of twice its standard error or residual to each side."""
    rows = pq.read_table(path, filters=[("catalog", "=", name)]).select(
        ["event_id", "t", "sigma_s", "rms_s", "lat", "lon"]
    )
    seconds = pc.coalesce(rows["sigma_s"], rows["rms_s"], pa.scalar(0.0025, pa.float32()))
    us = pc.cast(pc.multiply(pc.cast(seconds, pa.float64()), 2_000_000), pa.int64(), safe=False)
    t = rows["t"].cast(pa.int64())
    ends = {"earliest": pc.subtract(t, us), "latest": pc.add(t, us)}
    for column, values in ends.items():
        rows = rows.append_column(column, values)
    return rows.drop_columns(["t", "sigma_s", "rms_s"])


def same_quakes(path: Path) -> pa.Table:
    """Entries of all three within 3 s (with a probability of a half or more) and about 10 km of each other."""
    tables = {name: catalogue(path, catalog) for name, catalog in CATALOGUES.items()}
    pairs = [("network", "learned"), ("learned", "picked"), ("network", "picked")]
    near = "abs({a}.lat - {b}.lat) < 0.1 AND abs({a}.lon - {b}.lon) < 0.12"
    return wa.window_join(
        tables,
        time=wa.Interval("earliest", "latest"),
        windows={pair: wa.within("3 s", confidence=0.5) for pair in pairs},
        predicates={(a, b): near.format(a=a, b=b) for a, b in pairs},
        joint=True,
    )


if __name__ == "__main__":
    found = same_quakes(Path(os.environ["WHENABOUTS_DATA"]) / "ridgecrest_catalogs.parquet")
    sure = pc.sum(pc.greater_equal(found["probability"], 0.99)).as_py()
    print(f"{found.num_rows} quakes stand in all three catalogues; of {sure} that is all but certain")
    doubtful = found.sort_by("probability").select(
        ["event_id_network", "event_id_learned", "event_id_picked", "probability"]
    )
    for row in doubtful.slice(0, 3).to_pylist():
        print("  least sure:", row)
