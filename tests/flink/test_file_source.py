"""Files of every kind are read into blocks, and a job that fails continues with the split that it was reading."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from pyflink.common import Types
from pyflink.datastream import MapFunction

from infra.object_store import object_store
from whenabouts.core import InputError, Interval, Lateness, Point, within
from whenabouts.core.local import timing_join as local_join
from whenabouts.core.sources.files import read_file
from whenabouts.flink_plugin import collect, read_files, timing_join
from whenabouts.flink_plugin.file_source import ReadSplit, _splits
from whenabouts.flink_plugin.file_systems import LOCAL, File, listed
from whenabouts.flink_plugin.mini_cluster import THREAD, local_environment
from whenabouts.flink_plugin.row_streams import rows_of

T0 = 1_700_000_000_000_000
SCHEMA = pa.schema({"k": pa.int64(), "t_min": pa.int64(), "t_max": pa.int64(), "s": pa.string()})


def _rows(first: int, n: int) -> pa.Table:
    t = [T0 + 400_000 * (first + i) for i in range(n)]
    columns = [[(first + i) % 3 for i in range(n)], [us - 100_000 * (us % 7) for us in t], t, [f"r{us}" for us in t]]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)


def _write(table: pa.Table, path: Path) -> Path:
    """A file, with two row groups or batches if its kind has them."""
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
    found = _splits(File(LOCAL, str(_write(table, tmp_path / name))))
    assert len(found) == splits
    read = [batch for split in found for batch in ReadSplit(SCHEMA)(split)]
    assert pa.Table.from_batches(read, SCHEMA).equals(table)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.csv"])
def test_a_file_that_lacks_a_column_or_is_gone_is_named(tmp_path: Path, name: str) -> None:
    path = _write(_rows(0, 4).drop(["s"]), tmp_path / name)
    (split, *_) = _splits(File(LOCAL, str(path)))
    with pytest.raises(InputError, match=rf"WA-1008: .*{name} cannot be read: .*s"):
        list(ReadSplit(SCHEMA)(split))
    path.unlink()
    with pytest.raises(InputError, match=rf"WA-1008: .*{name} cannot be read"):
        list(ReadSplit(SCHEMA)(split))


def test_files_of_no_known_kind_and_no_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    env = local_environment(1)
    with pytest.raises(InputError, match=r"WA-1008: .*a.txt is not a kind"):
        read_files(env, tmp_path / "a.txt")
    with pytest.raises(InputError, match="WA-1008: there is no file at"):
        read_files(env, tmp_path)


def test_text_that_looks_like_a_number_stays_text_where_the_schema_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,s\n1,007\n2,00042\n")
    (split,) = _splits(File(LOCAL, str(tmp_path / "a.csv")))
    (batch,) = ReadSplit(pa.schema({"s": pa.string(), "id": pa.int64()}))(split)
    assert batch.to_pydict() == {"s": ["007", "00042"], "id": [1, 2]}


ODD = {
    "empty fields": "k,t\n,1\n,2\nb,3\n",
    "quoted empty fields": 'k,t\n"",1\n,2\nb,3\n',
    "words that mean nothing elsewhere": "k,t\nNA,1\nnan,2\nnull,3\n",
    "an empty time": "k,t\na,1\nb,\n",
    "lines in a value": 'k,t\n"a\nb",1\nc,2\n',
    "long text": f"k,t\n{'x' * 3_000_000},1\nb,2\n",
    "other types later": "k,t\n" + "".join(f"{i},{i}\n" for i in range(200_000)) + "007,200000.5\n",
    "times that say less": "k,t\na,2024-05-01\nb,2024-05-01 10:00:00.123456\n",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_csv_is_read_as_the_local_engine_reads_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    blocks = read_files(local_environment(1), path)
    (split,) = _splits(File(LOCAL, str(path)))
    assert pa.Table.from_batches(blocks.read(split), blocks.schema).equals(read_file(path))


@pytest.mark.parametrize(("first", "second"), [("1", "007"), ("1", "1.5"), ("", "a"), ("2024-05-01", "soon")])
def test_a_value_that_does_not_fit_the_first_file_is_refused(tmp_path: Path, first: str, second: str) -> None:
    for number, value in enumerate((first, second)):
        (tmp_path / f"{number}.csv").write_text(f"k,v\n1,{value}\n")
    blocks = read_files(local_environment(1), tmp_path)
    (split,) = _splits(File(LOCAL, str(tmp_path / "1.csv")))
    with pytest.raises(InputError, match=f"WA-1067: '{second}' in row 0 of column 'v' of .*1.csv does not fit"):
        list(blocks.read(split))


def test_a_schema_reads_every_form_that_a_value_can_have(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("i,f,d,t,n\n007, 1e3, 1.5,10:30,\n")
    types = {"i": pa.int32(), "f": pa.float32(), "d": pa.decimal128(9, 2), "t": pa.time32("s"), "n": pa.int64()}
    (split,) = _splits(File(LOCAL, str(tmp_path / "a.csv")))
    (batch,) = ReadSplit(pa.schema(types))(split)
    assert [value for (value,) in batch.to_pydict().values()] == [7, 1000.0, Decimal("1.50"), dt.time(10, 30), None]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_empty_keys_of_csv_match_nothing_as_on_the_local_engine(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('k,t\n,1\nNA,2\n"",3\nb,4\n')
    join: Any = {"on": "k", "left_time": Point("t"), "right_time": Point("t"), "condition": within(10, confidence=1)}
    env = local_environment(1, mode=THREAD, streaming=False)
    found = collect(timing_join(*(read_files(env, tmp_path / "a.csv", name=name) for name in "ab"), **join))
    wanted = local_join(read_file(tmp_path / "a.csv"), read_file(tmp_path / "a.csv"), **join)
    assert Counter(found.column("k").to_pylist()) == Counter(wanted.column("k").to_pylist()) == {"NA": 1, "": 1, "b": 1}


STORED = ("in/1.parquet", "in/2.csv", "in/notes.txt", "in/more/3.parquet", "in/more/.4.parquet")
"""Files in a bucket, the second with another row than the first, and so on."""


@contextmanager
def _stores(folder: Path) -> Iterator[dict[str, tuple[Callable[[str], str], Any]]]:
    """The path of the same files on each kind of file system, and the file system where one is given."""
    import fsspec

    for number, name in enumerate(STORED):
        file = folder / "bucket" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch() if name.endswith(".txt") else _write(_rows(number, 2), file)
    memory = fsspec.filesystem("memory")
    memory.put(str(folder / "bucket"), "/bucket", recursive=True)
    with object_store(folder) as at:
        signed = f"?region=local&scheme=http&endpoint_override={at}"
        yield {
            "local": (lambda path: f"{folder}/bucket/{path}", None),
            "file URI": (lambda path: f"{(folder / 'bucket').as_uri()}/{path}", None),
            "pyarrow": (lambda path: f"bucket/{path}", fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())),
            "s3 URI": (lambda path: f"s3://me:secret@bucket/{path}{signed}", None),
            "s3": (
                lambda path: f"bucket/{path}",
                fs.S3FileSystem(
                    access_key="me", secret_key="secret", region="local", scheme="http", endpoint_override=at
                ),
            ),
            "fsspec": (lambda path: f"/bucket/{path}", memory),
            "fsspec URI": (lambda path: f"memory://bucket/{path}", None),
        }
    memory.rm("/bucket", recursive=True)


def _of(files: list[File]) -> list[str]:
    """The rows of files in order, read as workers read them."""
    read = []
    for file in files:
        reader = pickle.loads(pickle.dumps(ReadSplit(SCHEMA, (file.system,))))  # so it gets there
        read += [row for split in _splits(file) for batch in reader(split) for row in batch.column("s").to_pylist()]
    return read


def test_files_are_found_and_read_on_every_file_system(tmp_path: Path) -> None:
    first, second, _, fourth, hidden = ([row["s"] for row in _rows(number, 2).to_pylist()] for number in range(5))
    wanted = {
        "in": first + second,
        "in/2.csv": second,
        "in/*.csv": second,
        "*/[12].*": first + second,
        "in/*/*.parquet": fourth,
        "in/more/.*.parquet": hidden,
        "**/*.parquet": first + fourth,
        "in/**/more/**/*.parquet": fourth,
    }
    with _stores(tmp_path) as stores:
        for store, (at, system) in stores.items():
            for path, rows in wanted.items():
                assert _of(listed(at(path), system)) == rows, (store, path)
            assert _of(listed([at("in/2.csv"), at("in/1.parquet")], system)) == second + first, store
            for path in ("away", "in/away.csv", "in/away*", "away/*.csv"):
                with pytest.raises(InputError, match="WA-1008: there is no file at") as raised:
                    listed(at(path), system)
                assert "secret" not in str(raised.value)
            with pytest.raises(InputError, match=r"WA-1008: .*notes.txt is not a kind"):
                listed(at("in/*.txt"), system)


@pytest.mark.parametrize(("path", "why"), [("", "the path is empty"), ("nowhere://a:secret@b/c.csv", "nowhere")])
def test_a_path_without_a_file_system_is_refused(path: str, why: str) -> None:
    with pytest.raises(InputError, match=f"WA-1008: .*cannot be listed: .*{why}") as raised:
        listed(path)
    assert "secret" not in str(raised.value).partition(":")[2].partition(" cannot")[0]


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_a_job_reads_an_object_store_and_a_file_system_of_fsspec(tmp_path: Path) -> None:
    with _stores(tmp_path) as stores:
        env = local_environment(1, streaming=False)
        (at, _), (_, memory) = stores["s3 URI"], stores["fsspec"]
        left = read_files(env, [at("in/1.parquet"), f"{tmp_path}/bucket/in/2.csv"], schema=SCHEMA, name="left")
        right = read_files(env, "/bucket/in", filesystem=memory, name="right")
        time = Interval("t_min", "t_max")
        pairs = timing_join(left, right, on="s", left_time=time, right_time=time, condition=within("1m", confidence=1))
        found = collect(pairs).column("s").to_pylist()
    times = Counter(row["s"] for number in (0, 1) for row in _rows(number, 2).to_pylist())
    assert Counter(found) == {key: n * n for key, n in times.items()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_arrow_and_csv_files_go_on_at_their_split_when_a_job_fails(tmp_path: Path) -> None:
    class CrashOnce(MapFunction):  # here, so that it is pickled by value: Flink's Python need not find the tests
        """Fails once, after some rows: everything since the last checkpoint is read again."""

        def __init__(self, told: Path, after: int) -> None:
            self._told, self._left = str(told), after

        def map(self, value: Any) -> Any:
            """The element itself."""
            self._left -= 1
            if not self._left:
                with suppress(FileExistsError):  # of two subtasks one fails
                    Path(self._told).touch(exist_ok=False)
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_job_continues_with_the_files_that_it_began_with(tmp_path: Path) -> None:
    """The source has a position in their list: with others before it, rows would be read twice and others never."""

    class Stop(MapFunction):  # here, so that it is pickled by value
        """Ends the job at a row."""

        def __init__(self, at: int) -> None:
            self._at = at

        def map(self, value: Any) -> str:
            """The row's text."""
            if value[0] == self._at:
                raise RuntimeError("made to fail")
            return str(value[0])

    folder, kept = tmp_path / "in", tmp_path / "checkpoints"
    folder.mkdir()

    def file(number: int, rows: int = 10) -> Path:
        path = folder / f"{number}.parquet"
        pq.write_table(pa.table({"i": range(10 * number, 10 * number + rows)}), path, row_group_size=5)
        return path

    def read(stop_at: int = -1, **more: str) -> list[int]:
        env = local_environment(
            1, mode=THREAD, execution__checkpointing__interval="20 ms", execution__checkpointing__dir=kept.as_uri(),
            execution__checkpointing__externalized_checkpoint_retention="RETAIN_ON_CANCELLATION",
            restart_strategy__type="none", **more,
        )  # fmt: skip
        blocks = read_files(env, folder, splits_per_checkpoint=1, name="rows")
        with rows_of(blocks).map(Stop(stop_at), Types.STRING()).execute_and_collect() as found:
            return list(map(int, found))

    for number in range(1, 5):
        file(number)
    with pytest.raises(Exception, match="made to fail"):
        read(stop_at=27)
    (chain,) = kept.iterdir()
    complete = [path.parent for path in chain.glob("chk-*/_metadata")]
    last = max(complete, key=lambda path: int(path.name[4:]))
    again = {
        "execution__state_recovery__path": last.as_uri(),
        "execution__state_recovery__ignore_unclaimed_state": "true",  # of the sink that collects
    }
    rest = read(**again)
    assert rest == list(range(rest[0], 50)), rest
    assert 10 <= rest[0] <= 25

    file(5)  # later ones are not read
    (folder / "_5.parquet").write_bytes(b"")  # another program's
    assert read(**again) == rest
    for change in (lambda: file(0), lambda: file(2, 15), lambda: (folder / "1.parquet").unlink()):
        for number in range(1, 5):
            file(number)
        (folder / "0.parquet").unlink(missing_ok=True)
        assert read(**again) == rest
        change()
        with pytest.raises(Exception, match="WA-3031: the checkpoint belongs to other files of 'rows'"):
            read(**again)
