"""Results in every format can be read back unchanged, and a file is complete or absent."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whenabouts.cli import outputs
from whenabouts.cli.outputs import check_columns, check_targets, write_batches, write_table
from whenabouts.core.errors import EngineError, QueryError
from whenabouts.core.sources.files import read_file

TABLE = pa.table(
    {
        "n": pa.array([1, None, -3]),
        "x": pa.array([0.1, None, 1e-300]),
        "k": pa.array(['a,"b"\nc', None, "é"]),
        "ok": pa.array([True, None, False]),
        "t": pa.array([1, None, 1_700_000_000_000_001], pa.timestamp("us", "America/New_York")),
    }
)
INSTANTS = ["1970-01-01T00:00:00.000001Z", None, "2023-11-14T22:13:20.000001Z"]


def test_parquet_is_exact(tmp_path: Path) -> None:
    write_table(TABLE, str(tmp_path / "f.parquet"))
    assert pq.read_table(tmp_path / "f.parquet").equals(TABLE)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_text_formats_read_back_with_times_in_utc(tmp_path: Path, kind: str) -> None:
    write_table(TABLE, str(tmp_path / f"f.{kind}"))
    back = read_file(tmp_path / f"f.{kind}", ("t",))
    assert back["t"].to_pylist() == INSTANTS
    assert back.drop_columns("t").to_pylist() == TABLE.drop_columns("t").to_pylist()


def test_no_rows_are_a_header(tmp_path: Path) -> None:
    write_table(TABLE.slice(0, 0), str(tmp_path / "f.csv"))
    assert (tmp_path / "f.csv").read_text() == '"n","x","k","ok","t"\n'
    write_table(TABLE.slice(0, 0), str(tmp_path / "f.jsonl"))
    assert (tmp_path / "f.jsonl").read_text() == ""


def test_csv_in_several_pieces_has_one_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "_CSV_ROWS_AT_ONCE", 2)
    write_table(pa.table({"n": [1, 2, 3, 4, 5]}), str(tmp_path / "f.csv"))
    assert (tmp_path / "f.csv").read_text().split() == ['"n"', "1", "2", "3", "4", "5"]


def test_json_values_of_every_kind(tmp_path: Path) -> None:
    table = pa.table(
        {
            "nan": pa.array([float("nan")]),
            "inner": pa.array([[{"x": float("inf"), "at": datetime(2024, 1, 1, tzinfo=UTC)}]]),
            "price": pa.array([Decimal("1.10")]),
            "raw": pa.array([b"\x00\xff"]),
            "took": pa.array([1500], pa.duration("ms")),
        }
    )
    write_table(table, str(tmp_path / "f.jsonl"))
    assert json.loads((tmp_path / "f.jsonl").read_text()) == {
        "nan": None,
        "inner": [{"x": None, "at": "2024-01-01T00:00:00.000000Z"}],
        "price": "1.10",
        "raw": "00ff",
        "took": 1_500_000,
    }


def test_a_crash_leaves_the_old_file_and_no_half_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "f.csv"
    file.write_text("old")

    def half(schema: pa.Schema, batches: object, sink: object) -> None:
        sink.write(b"half")  # type: ignore[attr-defined]
        raise OSError("no space left on device")

    monkeypatch.setitem(outputs._WRITERS, ".csv", half)
    with pytest.raises(EngineError, match="no space left") as caught:
        write_table(TABLE, str(file))
    assert caught.value.code == "WA-3005"
    assert [path.name for path in tmp_path.iterdir()] == ["f.csv"]
    assert file.read_text() == "old"


@pytest.mark.parametrize("target", ["f.csv", "-"])
def test_nested_columns_are_refused_for_csv(target: str) -> None:
    schema = pa.schema({"a": pa.int64(), "inner": pa.list_(pa.int64())})
    with pytest.raises(QueryError, match="'inner' is list") as caught:
        check_columns(schema, target, "--output")
    assert "write .parquet or .jsonl" in caught.value.hint
    check_columns(schema, "f.parquet", "--output")
    check_columns(schema.remove(1), target, "--output")


def test_targets_are_refused_before_any_work(tmp_path: Path) -> None:
    good = str(tmp_path / "f.csv")
    check_targets(good, str(tmp_path / "r.jsonl"))
    check_targets("-", good)
    for output, rejects, told in (
        (str(tmp_path / "f.xlsx"), None, "unknown extension"),
        (str(tmp_path / "none" / "f.csv"), None, "there is no folder"),
        (None, "-", "stdout is reserved for the result"),
        (good, good, "are the same file"),
    ):
        with pytest.raises(QueryError, match=told):
            check_targets(output, rejects)
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(QueryError, match="is a folder"):
        check_targets(None, str(tmp_path / "d.csv"))


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("sizes", [[], [3], [4, 4], [1, 9, 2, 0, 5]])
def test_rows_that_come_piece_by_piece_are_all_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, sizes: list[int]
) -> None:
    """They are divided again into pieces of four rows, whatever the sizes of the batches."""
    for name in ("_PARQUET_ROWS_AT_ONCE", "_CSV_ROWS_AT_ONCE", "_JSON_ROWS_AT_ONCE"):
        monkeypatch.setattr(f"whenabouts.cli.outputs.{name}", 4)
    n = pa.table({"n": pa.array(range(sum(sizes)), pa.int64())})
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    batches = [n.slice(start, size).combine_chunks() for start, size in zip(starts, sizes, strict=True)]
    file = tmp_path / f"f.{kind}"
    write_batches(n.schema, iter([batch for table in batches for batch in table.to_batches()]), str(file))
    if kind == "parquet":
        assert pq.read_table(file).equals(n)
        groups = pq.ParquetFile(file).metadata
        assert all(groups.row_group(place).num_rows <= 4 for place in range(groups.num_row_groups))
    elif kind == "csv":
        assert file.read_text().splitlines() == ['"n"', *map(str, range(sum(sizes)))]
    else:
        assert file.read_text().splitlines() == [f'{{"n": {i}}}' for i in range(sum(sizes))]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_a_named_pipe_is_written_to_and_not_replaced(tmp_path: Path, kind: str) -> None:
    pipe = tmp_path / f"p.{kind}"
    os.mkfifo(pipe)
    check_targets(str(pipe), None)
    read = []
    reader = Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_table(TABLE, str(pipe))
    reader.join(20)
    write_table(TABLE, str(tmp_path / f"f.{kind}"))
    assert read == [(tmp_path / f"f.{kind}").read_bytes()]
    assert pipe.is_fifo()


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_followed(tmp_path: Path, there: bool) -> None:
    (tmp_path / "to").mkdir()
    link, target = tmp_path / "link.csv", tmp_path / "to" / "f.csv"
    link.symlink_to(target)
    if there:
        target.write_text("old")
    check_targets(str(link), None)
    write_table(TABLE, str(link))
    assert link.is_symlink()
    assert target.read_text().startswith('"n"')
    assert [path.name for path in target.parent.iterdir()] == ["f.csv"]


def test_a_link_into_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to(tmp_path / "none" / "f.csv")
    with pytest.raises(QueryError, match=r"there is no folder .*none"):
        check_targets(str(tmp_path / "link.csv"), None)
