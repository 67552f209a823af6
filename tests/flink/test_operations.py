"""The operations on Flink: the declared ones, their host options, and one that the package does not have."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyflink.common import Row, Types
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.table import StreamTableEnvironment, Table

import whenabouts.flink_plugin as on_flink
from infra import toy_operation
from infra.toy_operation import NUMBERED, TABLE, MyOperations
from whenabouts.core import EngineError, InputError, Point, StateLimit, operations, within
from whenabouts.core.hosting.operation_names import OPERATION_NAMES
from whenabouts.core.local import coalesce as local_coalesce
from whenabouts.flink_plugin import Blocks, collect, local_environment, metrics, read_files, rejects
from whenabouts.flink_plugin.api import ENGINE
from whenabouts.flink_plugin.mini_cluster import PROCESS, THREAD

T = pa.table({"t": [1, 5, 9], "k": [1, 2, 1], "v": [1, 1, 2]})
RUNS: dict[str, Any] = {"time": "t", "values": "v", "group": "k", "lateness": "1 s"}
JOIN: dict[str, Any] = {
    "left_time": Point("t"), "right_time": Point("t"), "condition": within("1 s", confidence=1), "lateness": "10 s",
}  # fmt: skip


def rows(table: pa.Table) -> Counter[Any]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def blocks(env: StreamExecutionEnvironment, folder: Path, *tables: pa.Table, name: str = "rows") -> Blocks:
    """One file for each table."""
    for number, table in enumerate(tables):
        (folder / name).mkdir(exist_ok=True)
        pq.write_table(table, folder / name / f"{number}.parquet")
    return read_files(env, folder / name, name=name)


@pytest.fixture(autouse=True)
def _operation_of_ones_own() -> Iterator[None]:
    """Workers have no such module: it is pickled by value."""
    cloudpickle.register_pickle_by_value(toy_operation)
    yield
    cloudpickle.unregister_pickle_by_value(toy_operation)


def test_the_package_offers_the_declared_operations() -> None:
    for name in OPERATION_NAMES:
        function = getattr(on_flink, name)
        assert function.__func__ is getattr(operations, name).__func__
        assert name in dir(on_flink)
        assert (
            cloudpickle.loads(cloudpickle.dumps(getattr(on_flink, name))).__func__ is getattr(on_flink, name).__func__
        )
    assert list(ENGINE.lacks) == ["batches", "threads"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", [THREAD, PROCESS])
@pytest.mark.parametrize("streaming", [True, False])
def test_an_operation_of_ones_own_runs(tmp_path: Path, mode: str, streaming: bool) -> None:
    env = local_environment(2, mode=mode, streaming=streaming)
    given = blocks(env, tmp_path, *(TABLE.slice(place, 2) for place in range(0, 6, 2)))
    found = MyOperations().numbered(given, time="t", key="k", buckets=3)
    assert isinstance(found, Blocks)
    assert found.title == "numbered: numbered rows"
    assert set(rows(collect(found))) == NUMBERED


@pytest.mark.slow
def test_a_frame_says_that_flink_runs_it_and_gives_its_own_kind() -> None:
    env = local_environment(1, mode=THREAD)
    type_ = Types.ROW_NAMED(["t", "k", "v"], [Types.LONG(), Types.LONG(), Types.LONG()])
    stream = env.from_collection([Row(*row.values()) for row in T.to_pylist()], type_)
    tables = StreamTableEnvironment.create(env)
    table = tables.from_data_stream(stream)
    assert isinstance(operations.coalesce(stream, **RUNS), DataStream)
    found = operations.coalesce(table, **RUNS, name="of-a-table")
    assert isinstance(found, Table)
    assert isinstance(operations.rejects(found), Table)
    assert rows(collect(found)) == rows(local_coalesce(T, **RUNS))
    with pytest.raises(InputError, match=r"WA-1062: the left input belongs to Flink, the right .* local engine"):
        operations.timing_join(stream, T, **JOIN)
    with pytest.raises(InputError, match=r"WA-1062: the right input is .*give a Table"):
        on_flink.timing_join(stream, T, **JOIN)


@pytest.mark.slow
def test_repeats_are_taken_in_once_in_every_operation(tmp_path: Path) -> None:
    twice = blocks(local_environment(1, mode=THREAD), tmp_path, T, T)
    found = on_flink.coalesce(twice, **RUNS | {"lateness": "1 h"}, deduplicate_by="v")
    assert rows(collect(found)) == rows(local_coalesce(T, **RUNS))


@pytest.mark.slow
def test_state_keeps_to_its_limit(tmp_path: Path) -> None:
    """Three rows of each side arrive; the limit is four rows in all."""

    def join(limit: StateLimit) -> Any:
        env = local_environment(1, mode=THREAD)
        left, right = (blocks(env, tmp_path, T, name=name) for name in ("left", "right"))
        return on_flink.timing_join(left, right, **JOIN, buckets=1, time_slots=None, state_limit=limit)

    with pytest.raises(Exception, match="WA-3033") as told:
        collect(join(StateLimit(4)))
    assert isinstance(told.value, EngineError) or "room for" in str(told.value)
    shed = join(StateLimit(4, on_full="shed"))
    assert collect(rejects(shed)).column("code").to_pylist() == ["WA-1042"] * 2
    shed = join(StateLimit(4, on_full="shed"))
    with metrics(shed).execute_and_collect() as each:
        totals = sum((Counter(json.loads(one)) for one in each), Counter())
    assert (totals["rows_in"], totals["rows_shed"]) == (6, 2)


def test_old_watermarks_are_taken_with_a_warning(tmp_path: Path) -> None:
    given = blocks(local_environment(1, mode=THREAD), tmp_path, T)
    with pytest.warns(DeprecationWarning, match='watermarks="inputs" is deprecated: use watermarks="source"'):
        assert isinstance(on_flink.coalesce(given, **RUNS, watermarks="inputs"), Blocks)
