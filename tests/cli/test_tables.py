"""Input files of every kind become the same table; unreadable ones are reported with a code and the file's name."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whenabouts.cli.inputs import Input
from whenabouts.cli.tables import read_input
from whenabouts.core.errors import InputError
from whenabouts.core.sources.files import find_files
from whenabouts.core.sources.time_parsing import ClockRules

UTC_US = pa.timestamp("us", "UTC")


def read(path: Path, *columns: str, clock: ClockRules | None = None) -> Input:
    return read_input("left", str(path), columns or ("t",), clock or ClockRules())


def joined(source: Input) -> pa.Table:
    return pa.concat_tables(source.tables)


ROWS = [{"t": 5, "k": "a", "x": 1.5}, {"t": 7, "k": None, "x": None}, {"t": None, "k": "", "x": -0.25}]
CSV = 't,k,x\n5,"a",1.5\n7,,\n,"",-0.25\n'
JSON = '{"t":5,"k":"a","x":1.5}\n{"t":7,"k":null,"x":null}\n{"t":null,"k":"","x":-0.25}\n'


@pytest.mark.parametrize("name", ["f.parquet", "f.csv", "f.csv.gz", "f.jsonl", "f.jsonl.gz", "f.ndjson"])
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(ROWS), file)
    else:
        text = (CSV if ".csv" in name else JSON).encode()
        file.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    assert joined(read(file)).to_pylist() == ROWS


def test_a_folder_and_a_glob_are_their_files_in_order_of_names(tmp_path: Path) -> None:
    for name, t in (("b.csv", 2), ("a.csv", 1), ("c.csv", 3)):
        (tmp_path / name).write_text(f"t\n{t}\n")
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / "notes.md").write_text("not data")
    whole = read(tmp_path)
    assert [table["t"].to_pylist() for table in whole.tables] == [[1], [2], [3]]
    assert whole.notes == (f"{tmp_path}: 1 other files were not read, e.g. notes.md",)
    assert joined(read(tmp_path / "[ac].csv"))["t"].to_pylist() == [1, 3]


def test_a_file_whose_name_looks_like_a_glob_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "a[1].csv").write_text("t\n1\n")
    assert find_files(str(tmp_path / "a[1].csv"))[0] == [tmp_path / "a[1].csv"]


def test_a_header_alone_is_no_rows(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("t,k\n")
    source = read(tmp_path / "f.csv")
    assert (source.rows_in, source.schema.names) == (0, ["t", "k"])


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("gone.csv", None, "no such file"),
        ("zero.csv", b"", "0 bytes"),
        ("zero.parquet", b"", "0 bytes"),
        ("bad.parquet", b"PAR1 but not really", "cannot be read as parquet"),
        ("bad.jsonl", b'{"t": 1\n{', "line 1 begins an object that does not end"),
        ("ragged.csv", b"t,k\n1,2\n1,2,3\n", "cannot be read as csv"),
        ("latin.csv", "t,k\n1,a\n2,\xe9\n".encode("latin-1"), r"row 1, column 'k', holds b'\\xe9', which is not UTF-8"),
        ("bad.csv.gz", b"not gzip", "cannot be read as csv"),
        ("table.xlsx", b"x", "extension '.xlsx' is not supported"),
        ("noext", b"x", "extension '' is not supported"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes | None, problem: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=problem) as caught:
        read(tmp_path / name)
    assert caught.value.code == "WA-1008"
    assert name in caught.value.problem


def test_an_empty_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no file to read") as caught:
        read(tmp_path)
    assert caught.value.code == "WA-1008"


def test_files_of_one_input_are_widened_to_one_schema(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,x,k\n1,2,\n")
    (tmp_path / "b.csv").write_text("k,t,x\nz,3,0.5\n")
    source = read(tmp_path)
    assert joined(source).to_pylist() == [{"t": 1, "x": 2.0, "k": None}, {"t": 3, "x": 0.5, "k": "z"}]


@pytest.mark.parametrize(
    ("second", "code", "told"),
    [
        ("t,x\n1,a\n", "WA-1067", "'a' in row 0 of column 'x' of"),
        ("t,x\n1,3\n4,007\n", "WA-1067", "'007' in row 1 of column 'x' of"),
        ("t,x\n1,2024-01-01T00:00:00Z\n", "WA-1067", "'2024-01-01T00:00:00Z' in row 0 of column 'x' of"),
        ("t\n1\n", "WA-1001", "no column 'x'"),
    ],
)
def test_files_that_disagree_are_refused(tmp_path: Path, second: str, code: str, told: str) -> None:
    """A file whose columns have types determines how the text of another one is read."""
    pq.write_table(pa.table({"t": [1], "x": [2]}), tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text(second)
    with pytest.raises(InputError, match=told) as caught:
        read(tmp_path).in_memory()
    assert caught.value.code == code
    assert "b.csv" in caught.value.problem


def test_a_column_that_is_text_in_one_file_is_text_in_all_of_them(tmp_path: Path) -> None:
    """Postal codes, of which one file happens to hold none that begins with a zero."""
    (tmp_path / "a.csv").write_text("t,zip,n\n1,94105,2\n")
    (tmp_path / "b.csv").write_text("t,zip,n\nsoon,02134,3\n4,02135,5\n5,02136,6\n")
    (tmp_path / "c.csv").write_text("t,zip,n\n")
    source = read(tmp_path)
    assert [row["zip"] for row in joined(source).to_pylist()] == ["94105", "02135", "02136"]
    assert joined(source)["n"].to_pylist() == [2, 5, 6]
    assert source.unparsable.to_pylist() == [{"t": "soon", "zip": "02134", "n": 3}]


def test_text_goes_along_with_what_other_files_say(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": [1], "x": pa.array([2], pa.int32()), "k": ["7"]}), tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("t,x,k\nsoon,5000000000,8\n2,3,9\n3,4,08\n")
    source = read(tmp_path)
    assert joined(source).select(["x", "k"]).to_pylist() == [
        {"x": x, "k": k} for x, k in ((2, "7"), (3, "9"), (4, "08"))
    ]
    assert source.unparsable.to_pylist() == [{"t": "soon", "x": 5_000_000_000, "k": "8"}]


def test_rows_are_counted_as_the_file_holds_them(tmp_path: Path) -> None:
    """Including those whose time cannot be read."""
    pq.write_table(pa.table({"t": [1], "x": [2]}), tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("t,x\nsoon,1\n2,3\nlater,4\n5,007\n")
    with pytest.raises(InputError, match="'007' in row 3 of column 'x' of"):
        read(tmp_path).in_memory()


def test_a_json_file_may_leave_a_field_out_but_not_the_time(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"t": "2024-01-01", "x": 1}\n')
    (tmp_path / "b.jsonl").write_text('{"t": "2024-01-02"}\n')
    assert joined(read(tmp_path))["x"].to_pylist() == [1, None]
    assert "u" not in read(tmp_path, "t", "u").schema.names


def test_unparsable_times_leave_their_file_with_their_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,k\n2024-01-01T00:00:00Z,1\nsoon,2\n")
    (tmp_path / "b.csv").write_text("t,k\n2024-02-30,3\n2024-01-02T00:00:00Z,4\n")
    source = read(tmp_path)
    assert joined(source)["k"].to_pylist() == [1, 4]
    assert source.schema.field("t").type == UTC_US
    assert source.unparsable.to_pylist() == [{"t": "soon", "k": 2}, {"t": "2024-02-30", "k": 3}]
    assert source.rows_in == 4


def test_a_file_of_a_header_alone_takes_the_type_of_times_from_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,k\n")
    (tmp_path / "b.csv").write_text("t,k\n5,x\n")
    (tmp_path / "c.csv").write_text("t,k\n,y\n")
    assert joined(read(tmp_path))["t"].to_pylist() == [5, None]
    (tmp_path / "b.csv").write_text("t,k\n2024-01-01T00:00:00Z,x\n")
    assert joined(read(tmp_path)).schema.field("t").type == UTC_US
