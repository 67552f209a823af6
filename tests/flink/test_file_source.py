"""Files of every kind are read into blocks, and a job that fails goes on with the split at which it was."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pyflink.common import Types
from pyflink.datastream import MapFunction

from whenabouts.core import InputError, Interval, Lateness, within
from whenabouts.core.local import timing_join as local_join
from whenabouts.flink_plugin import read_files, timing_join
from whenabouts.flink_plugin.file_source import ReadSplit, _splits
from whenabouts.flink_plugin.mini_cluster import THREAD, local_environment
from whenabouts.flink_plugin.row_streams import rows_of

T0 = 1_700_000_000_000_000
SCHEMA = pa.schema({"k": pa.int64(), "t_min": pa.int64(), "t_max": pa.int64(), "s": pa.string()})


def _rows(first: int, n: int) -> pa.Table:
    t = [T0 + 400_000 * (first + i) for i in range(n)]
    columns = [[(first + i) % 3 for i in range(n)], [us - 100_000 * (us % 7) for us in t], t, [f"r{us}" for us in t]]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)


def _write(table: pa.Table, path: Path) -> Path:
    """A file of two row groups or batches, where its kind has them."""
    half = table.num_rows // 2
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=half)
    elif path.suffix in (".arrow", ".feather"):
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table.combine_chunks(), max_chunksize=half)
    else:
        text = path.with_suffix("") if path.suffix == ".gz" else path
        pa.csv.write_csv(table, text)
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress(text.read_bytes()))
    return path


@pytest.mark.parametrize(
    ("name", "splits"), [("a.parquet", 2), ("a.arrow", 2), ("a.feather", 2), ("a.csv", 1), ("a.csv.gz", 1)]
)
def test_each_kind_of_file_gives_its_rows_in_order(tmp_path: Path, name: str, splits: int) -> None:
    table = _rows(0, 10)
    found = _splits(str(_write(table, tmp_path / name)))
    assert len(found) == splits
    read = [batch for split in found for batch in ReadSplit(SCHEMA)(split)]
    assert pa.Table.from_batches(read, SCHEMA).equals(table)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.csv"])
def test_a_file_that_lacks_a_column_or_is_gone_is_named(tmp_path: Path, name: str) -> None:
    path = _write(_rows(0, 4).drop(["s"]), tmp_path / name)
    (split, *_) = _splits(str(path))
    with pytest.raises(InputError, match=rf"WA-1008: .*{name} cannot be read: .*s"):
        list(ReadSplit(SCHEMA)(split))
    path.unlink()
    with pytest.raises(InputError, match=rf"WA-1008: .*{name} cannot be read"):
        list(ReadSplit(SCHEMA)(split))


def test_files_of_no_known_kind_and_no_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    with pytest.raises(InputError, match=r"WA-1008: .*a.txt is of no kind"):
        read_files(None, tmp_path / "a.txt")  # type: ignore[arg-type]  # refused before there is a job
    with pytest.raises(InputError, match="WA-1008: there is no file at"):
        read_files(None, tmp_path)  # type: ignore[arg-type]  # as above


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_arrow_and_csv_files_go_on_at_their_split_when_a_job_fails(tmp_path: Path) -> None:
    class CrashOnce(MapFunction):  # here, so that it is pickled by value: Flink's Python need not find the tests
        """Fails once, behind some rows: what has been read since the last checkpoint is read again."""

        def __init__(self, told: Path, after: int) -> None:
            self._told, self._left = str(told), after

        def map(self, value: Any) -> Any:
            """The element itself."""
            self._left -= 1
            if not self._left and not Path(self._told).exists():
                Path(self._told).touch()
                raise RuntimeError("made to fail")
            return json.dumps([str(field) for field in value])

    sides = {"left": [".arrow", ".feather", ".arrow"], "right": [".csv", ".csv.gz", ".csv"]}
    tables = {}
    for name, kinds in sides.items():
        parts = [_rows(20 * number, 20) for number in range(len(kinds))]
        (tmp_path / name).mkdir()
        for number, (part, kind) in enumerate(zip(parts, kinds, strict=True)):
            _write(part, tmp_path / name / f"{number}{kind}")
        for text in (tmp_path / name).glob("1.csv"):
            text.unlink()
        tables[name] = pa.concat_tables(parts)
    env = local_environment(
        2, mode=THREAD, execution__checkpointing__interval="20 ms", execution__checkpointing__storage="jobmanager",
        restart_strategy__type="fixed-delay", restart_strategy__fixed_delay__attempts="1",
        restart_strategy__fixed_delay__delay="0 ms",
    )  # fmt: skip
    time = Interval("t_min", "t_max", max_uncertainty="1s")
    join: Any = {"on": "k", "left_time": time, "right_time": time, "condition": within("2s", confidence=0.5)}
    streams = [read_files(env, tmp_path / name, splits_per_checkpoint=1, name=name) for name in sides]
    pairs: Any = timing_join(*streams, **join, lateness=Lateness(left="1m", right="1m"))
    lines = rows_of(pairs).map(CrashOnce(tmp_path / "crashed", 30), Types.STRING())
    with lines.execute_and_collect() as rows:
        found = Counter(tuple(json.loads(row)[:-1]) for row in rows)
    assert (tmp_path / "crashed").exists()
    expected = local_join(tables["left"], tables["right"], **join).to_pylist()
    assert found == Counter(tuple(map(str, row.values())) for row in expected)
