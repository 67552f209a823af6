"""Early answers of `coalesce` on Flink: an updating Table, rows with their `RowKind`, blocks with a column `op`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyflink.common import RowKind
from pyflink.table import StreamTableEnvironment

from whenabouts.conformance import multiset
from whenabouts.conformance.change_rows import applied
from whenabouts.core.local import coalesce as local_coalesce
from whenabouts.flink_plugin import coalesce, collect, local_environment, read_files, rows_of, table_of
from whenabouts.flink_plugin.mini_cluster import PROCESS, THREAD

FILES = [
    pa.table({"room": ["a"] * len(t), "t": pa.array(t, pa.timestamp("us")), "lamp": lamp})
    for t, lamp in [([1, 2, 5], ["on"] * 3), ([4], ["off"]), ([3, 9], ["off", "on"])]
]
OPTIONS: dict[str, Any] = {"time": "t", "group": "room", "values": "lamp", "lateness": "1 s", "buckets": 2}
ADDED = (RowKind.INSERT, RowKind.UPDATE_AFTER)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [THREAD, pytest.param(PROCESS, marks=pytest.mark.full)])
def test_early_answers_are_a_changelog(tmp_path: Path, mode: str) -> None:
    """In every form the changes become the final rows; a Table can be aggregated, with corrections."""
    (tmp_path / "lamps").mkdir()
    for number, file in enumerate(FILES):
        pq.write_table(file, tmp_path / "lamps" / f"{number}.parquet")

    def early() -> Any:
        env = local_environment(1, mode=mode, streaming=True)
        return env, coalesce(read_files(env, tmp_path / "lamps", name="lamps"), **OPTIONS, emit="early")

    final = multiset.rows(local_coalesce(pa.concat_tables(FILES), time="t", group="room", values="lamp"))
    changes = collect(early()[1])
    assert {"update_before", "update_after", "delete"} <= set(changes["op"].to_pylist())
    assert applied(changes) == final

    env, blocks = early()
    tables = StreamTableEnvironment.create(env)
    table = table_of(blocks, tables)
    assert table.get_schema().get_field_names() == ["room", "lamp", "valid_from", "valid_to", "n"]
    counted: Counter[Any] = Counter()
    kinds = set()
    with tables.sql_query(f"SELECT lamp, SUM(n) FROM {table} GROUP BY lamp").execute().collect() as found:
        for row in found:
            kinds.add(row.get_row_kind())
            counted[tuple(row)] += 1 if row.get_row_kind() in ADDED else -1
    assert +counted == {("on", 4): 1, ("off", 2): 1}
    assert RowKind.UPDATE_BEFORE in kinds

    env, blocks = early()
    with rows_of(blocks).execute_and_collect() as found:
        rows = list(found)
    assert {row.get_row_kind() for row in rows} == set(RowKind)
    assert sum(1 if row.get_row_kind() in ADDED else -1 for row in rows) == final.total()
