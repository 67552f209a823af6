"""This release continues from checkpoints of an earlier one, and the rows are those of one batch.

`spark-f13ac8d.tar.xz` was written by commit f13ac8d, the last before the core became packages: in a checkout of it,

    python spark_program.py FOLDER            # with FOLDER/events/0.parquet: `queries.events(0)`
    python kept.py pack FOLDER spark-f13ac8d.tar.xz

and `flink-f13ac8d.tar.xz` likewise with `flink_program.py`, which needs no events.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from checkpoints import kept, queries
from whenabouts.core.local import coalesce, timing_join, window_join

pytestmark = [pytest.mark.slow, pytest.mark.full]

HERE = Path(__file__).parent


def batch_results(events: pa.Table) -> dict[str, pa.Table]:
    """The rows of the programs' queries over all events at once."""
    found = {name: timing_join(events, events, **options) for name, options in queries.TIMING_JOINS.items()}
    found["window"] = window_join(dict.fromkeys("abc", events), **queries.WINDOW_JOIN)
    found["coalesce"] = coalesce(events, **queries.COALESCE)
    return found


def final_rows(rows: pa.Table, end: pa.Scalar) -> Counter[str]:
    """The rows of a result that do not depend on the last event."""
    ids = [rows[name] for name in rows.schema.names if name.startswith("id")]
    final = pc.less(pc.max_element_wise(*ids), queries.LAST_ID) if ids else pc.less(rows["window_end"], end)
    return Counter(map(repr, rows.filter(final).to_pylist()))


def live(program: str, folder: Path, *arguments: str) -> None:
    """A run of the program that must succeed."""
    life = subprocess.run(
        [sys.executable, str(HERE / program), str(folder), *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=folder, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert life.returncode == 0, life.stderr[life.stderr.find("Traceback") :][:3000]


def check(events: pa.Table, rows_of: Callable[[str, pa.Schema], list[pa.Table]]) -> None:
    """Each query's rows of both runs are those of one batch, and the second run has some."""
    newest = pc.max(events["t_max"].slice(0, queries.ROWS).cast(pa.int64())).as_py()
    end = pa.scalar(newest + 60_000_000).cast(events["t_max"].type)
    for name, want in batch_results(events).items():
        first, second = rows_of(name, want.schema)
        assert second.num_rows, name
        assert final_rows(pa.concat_tables([first, second]), end) == final_rows(want, end), name


def test_a_checkpoint_of_spark(tmp_path: Path) -> None:
    kept.unpack(HERE / "spark-f13ac8d.tar.xz", tmp_path)
    batches = {query.name: {batch.name for batch in query.iterdir()} for query in (tmp_path / "rows").iterdir()}
    tables = [queries.events(life) for life in range(queries.LIVES)]
    (tmp_path / "events").mkdir()
    for life, table in enumerate(tables):
        pq.write_table(table, tmp_path / "events" / f"{life}.parquet")
    live("spark_program.py", tmp_path)

    def rows_of(name: str, schema: pa.Schema) -> list[pa.Table]:
        found: tuple[list[pa.Table], list[pa.Table]] = ([], [])
        for batch in (tmp_path / "rows" / name).iterdir():
            rows = pq.read_table(batch)
            found[batch.name not in batches[name]].append(rows.select(schema.names).cast(schema))
        return [pa.concat_tables(tables) for tables in found]

    check(pa.concat_tables(tables), rows_of)


def test_a_savepoint_of_flink(tmp_path: Path) -> None:
    kept.unpack(HERE / "flink-f13ac8d.tar.xz", tmp_path)
    (savepoint,) = (tmp_path / "checkpoints").iterdir()
    live("flink_program.py", tmp_path, savepoint.as_uri())

    def rows_of(name: str, schema: pa.Schema) -> list[pa.Table]:
        lives = []
        for life in range(queries.LIVES):
            lines = (tmp_path / "rows" / name / f"{life}.jsonl").read_text(encoding="utf-8").splitlines()
            rows = [dict(zip(schema.names, json.loads(line), strict=False)) for line in lines]
            lives.append(pa.Table.from_pylist(rows, schema))
        return lives

    check(queries.all_events_in_microseconds(), rows_of)
