"""Profiles of Flink's inputs: the findings of the local profile of the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyflink.datastream import RuntimeExecutionMode
from pyflink.table import EnvironmentSettings, StreamTableEnvironment, Table, TableEnvironment
from pyflink.util.java_utils import get_field_value

from infra.profiled import findings, rows_to_profile
from whenabouts.core import profile
from whenabouts.core.errors import InputError
from whenabouts.flink_plugin import Blocks, collect, local_environment, read_files, rows_of, table_of
from whenabouts.flink_plugin.mini_cluster import THREAD

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

ROWS = 12_000
OPTIONS: dict[str, Any] = {"group": "device.kind", "arrival": "seen"}


def _file(folder: Path, rows: pa.Table, rows_in_a_part: int) -> Path:
    pq.write_table(rows, folder / "rows.parquet", row_group_size=rows_in_a_part)
    return folder / "rows.parquet"


def _operators(tables: StreamTableEnvironment) -> list[str]:
    """Those of the job that the next `execute` of its environment starts."""
    return [str(each) for each in get_field_value(tables._j_tenv.execEnv(), "transformations")]


def _table_of_file(folder: Path, rows: pa.Table) -> Table:
    env = local_environment(2, mode=THREAD)
    blocks = read_files(env, _file(folder, rows, 5_000))
    blocks.stream.print()  # to a profile, a part of another job
    return table_of(blocks, StreamTableEnvironment.create(env))


def test_a_large_table_has_the_counts_of_its_rows(tmp_path: Path) -> None:
    rows = rows_to_profile(ROWS)
    table = _table_of_file(tmp_path, rows)
    before = _operators(table._t_env)
    local, ours = (profile(each, "written at", max_rows=3_000, **OPTIONS) for each in (rows, table))
    assert [each.kind for each in ours.findings] == [each.kind for each in local.findings]
    exact = ("sentinel", "null", "granularity")
    assert [each for each in findings(ours) if each[0] in exact] == [
        each for each in findings(local) if each[0] in exact
    ]
    assert (ours.sentence, ours.specs(), ours.rows) == (local.sentence, local.specs(), ROWS)
    assert _operators(table._t_env) == before
    with pytest.raises(InputError, match="WA-1001"):
        profile(table, "t")


@pytest.mark.full
def test_tables_blocks_and_streams_of_rows_have_the_profile_of_their_rows(tmp_path: Path) -> None:
    rows = rows_to_profile(ROWS)
    blocks = read_files(local_environment(1), _file(tmp_path, rows, 5_000))  # in process mode
    tables = StreamTableEnvironment.create(blocks.stream.get_execution_environment())
    local = profile(rows, "written at", **OPTIONS)
    for given in (table_of(blocks, tables), blocks, rows_of(blocks)):
        ours = profile(given, "written at", **OPTIONS)
        assert findings(ours) == findings(local)
        assert (ours.sentence, ours.specs(), ours.lateness()) == (local.sentence, local.specs(), local.lateness())
        assert all(found.where == () for found in ours.findings)


def _with_numbers(tables: TableEnvironment) -> TableEnvironment:
    """The environment, with tables of random numbers: `endless`, and `few` of 30 rows."""
    for name, rows in (("endless", ""), ("few", ", 'number-of-rows' = '30'")):
        tables.execute_sql(f"CREATE TABLE {name} (t BIGINT, k BIGINT) WITH ('connector' = 'datagen'{rows})")
    return tables


def test_rows_that_do_not_end_or_change_are_refused_before_a_job_starts() -> None:
    tables = _with_numbers(StreamTableEnvironment.create(local_environment(1)))
    joined = tables.sql_query("SELECT few.t FROM few JOIN endless ON few.k = endless.k")
    for given in (tables.from_path("endless"), joined):
        with pytest.raises(InputError, match=r"WA-1062: the rows do not end: endless.* is unbounded"):
            profile(given, "t")
    with pytest.raises(InputError, match="WA-1065: the profiled input has updates"):
        profile(tables.sql_query("SELECT k, MAX(t) AS t FROM few GROUP BY k"), "t")


def test_a_batch_may_have_aggregates() -> None:
    env = local_environment(1, mode=THREAD)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    batch = EnvironmentSettings.in_batch_mode()
    tables = _with_numbers(StreamTableEnvironment.create(env, batch))
    with pytest.raises(InputError, match="WA-1062: the rows do not end: its source is unbounded"):
        profile(tables.from_path("endless"), "t")
    assert profile(tables.sql_query("SELECT k, MAX(t) AS t FROM few GROUP BY k"), "t").rows == 30
    with pytest.raises(InputError, match="WA-1062: the Table belongs to a TableEnvironment"):
        profile(_with_numbers(TableEnvironment.create(batch)).from_path("few"), "t")


def test_a_block_of_more_than_two_mebibytes_is_collected(tmp_path: Path) -> None:
    """Flink's sink refuses elements of that size."""
    rows = pa.table({"t": np.arange(300_000)})
    blocks = read_files(local_environment(1, mode=THREAD), _file(tmp_path, rows, 300_000))
    assert isinstance(blocks, Blocks)
    assert collect(blocks).sort_by("t").equals(rows)
