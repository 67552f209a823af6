"""JSON lines that crashed the reader, or were misread, are reported with their line; all others are read."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from whenabouts.core.errors import InputError
from whenabouts.core.sources import json_lines
from whenabouts.core.sources.files import read_file

BAD = {
    "null": (b"null\n", "line 1 has something that is not an object"),
    "null between": (b'{"a": 1}\n\nnull\n', "line 3 has something that is not an object"),
    "nulls": (b"null\n" * 3, "line 1 has"),
    "number": (b'{"a": 1}\n1\n', "line 2 has"),
    "text": (b'"x"\n', "line 1 has"),
    "list": (b'[{"a": 1}]\n', "line 1 has"),
    "comma": (b'{"a": 1},\n{"a": 2}\n', "line 1 has"),
    "utf-16": ('{"a": 1}\n'.encode("utf-16"), "line 1 is not UTF-8"),
    "latin-1": (b'{"a": 1}\n{"a": "\xe9t\xe9"}\n', "line 2 is not UTF-8"),
    "cut character": (b'{"a": "\xc3', "line 1 is not UTF-8"),
    "deep objects": (b'{"a": 1}\n' + b'{"a":' * 5000 + b"1" + b"}" * 5000, "line 2 nests more than 64"),
    "deep lists": (b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", "line 1 nests more than 64"),
    "deep over lines": (b'{"a":' + b"[\n" * 64 + b"]" * 64 + b"}", "line 64 nests"),
    "never closed": (b'{"a":' * 300_000, "line 1 nests"),
    "cut row": (b'{"a": 1}\n{"a": 2', "line 2 begins an object that does not end"),
    "cut text": (b'{"a": 1}\n{"a": "2}\n\n', "line 2 begins an object that does not end"),
    "no JSON": (b'{"a": 1}\n{"a": x}\n', "line 2 is not JSON"),
    "brackets": (b'{"a": [1}}\n', "line 1 is not JSON"),
    "two kinds": (b'{"a": 1}\n\n{"a": "x"}\n', "line 3 has text in column 'a', which is a number in line 1"),
    "nested kinds": (b'{"a": [1]}\n{"a": {"b": 1}}\n', "line 2 has an object in column 'a', which is a list in line 1"),
    "twice": (b'{"a": 1, "a": 2}\n', "line 1 has column 'a' twice"),
}

GOOD = {
    "byte order mark": (b'\xef\xbb\xbf{"a": 1}\n', [1]),
    "crlf": (b'{"a": 1}\r\n\r\n{"a": 2}\r\n', [1, 2]),
    "cr": (b'{"a": 1}\r{"a": 2}\r', [1, 2]),
    "blank": (b'\n  \n{"a": 1}\n\t\n{"a": 2}\n\n', [1, 2]),
    "no end of line": (b'{"a": 1}\n{"a": 2}', [1, 2]),
    "one line": (b'{"a": 1} {"a": 2}\n', [1, 2]),
    "several lines": (b'{\n"a":\n1\n}\n', [1]),
    "quoted brackets": (b'{"a": "' + b"[{" * 500 + b'"}\n', ["[{" * 500]),
    "escapes": (b'{"a": "\\"[\\\\"}\n{"a": "\\\\\\"{"}\n', ['"[\\', '\\"{']),
    "sixty-four": (b'{"a": 1, "b": ' + b"[" * 63 + b"]" * 63 + b"}\n", [1]),
    "long row": (b'{"a": "' + b"x" * 3_000_000 + b'"}\n{"a": "y"}\n', ["x" * 3_000_000, "y"]),
}

ALL = """
import pathlib, sys
from whenabouts.core.errors import InputError
from whenabouts.core.sources.files import read_file
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.jsonl")):
    try:
        read_file(path, ("a",))
        print("read")
    except InputError as error:
        print(error)
"""


def test_what_is_no_row_is_told_by_its_line(tmp_path: Path) -> None:
    for number, (content, _) in enumerate(BAD.values()):
        (tmp_path / f"{number:02}.jsonl").write_bytes(content)
    done = subprocess.run(  # in another process: it is one that crashed
        [sys.executable, "-c", ALL, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-1000:]
    told = dict(zip(BAD, done.stdout.splitlines(), strict=True))
    for name, (_, wanted) in BAD.items():
        if name == "two kinds":  # a column that is asked for as text may hold both
            continue
        assert told[name].startswith("WA-1008"), (name, told[name])
        assert wanted in told[name], name


def test_two_kinds_in_a_column_are_told_with_both_lines(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(BAD["two kinds"][0])
    with pytest.raises(InputError, match=BAD["two kinds"][1]):
        read_file(tmp_path / "x.jsonl")


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("packed", [False, True])
def test_all_that_is_rows_is_read(tmp_path: Path, name: str, packed: bool) -> None:
    content, wanted = GOOD[name]
    path = tmp_path / ("x.jsonl.gz" if packed else "x.jsonl")
    path.write_bytes(gzip.compress(content) if packed else content)
    assert read_file(path)["a"].to_pylist() == wanted


SEEN = "2024-05-01T10:00:00Z"


@pytest.mark.parametrize(
    ("rows", "names"),
    {
        "each in all rows": ([{"door": 1, "seen": SEEN, "zz": 1, "aa": 2}] * 2, "door seen zz aa"),
        "two times": ([{"z": 1, "till": SEEN, "y": 2, "seen": SEEN}], "z till y seen"),
        "some left out": ([{"door": 1}, {"zz": 1, "door": 1, "seen": SEEN}, {"aa": 2}], "door zz seen aa"),
        "none of that name": ([{"zz": 1, "aa": 2}], "zz aa"),
        "a long first row": ([{"zz": "x" * 100_000, "seen": SEEN}], "zz seen"),
        "not text": ([{"zz": 1, "seen": 5, "till": SEEN}], "zz seen till"),
    }.values(),
)
def test_columns_keep_the_order_of_the_file(tmp_path: Path, rows: list[dict[str, object]], names: str) -> None:
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = read_file(tmp_path / "x.jsonl", ("seen", "till"))
    assert table.schema.names == names.split()
    assert table.to_pylist() == [dict.fromkeys(names.split()) | row for row in rows]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_it_does_not_matter_where_a_file_is_cut_for_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(json_lines, "_BYTES_AT_ONCE", size)
    path = tmp_path / "x.jsonl"
    for content, wanted in (BAD[name] for name in ("null between", "latin-1", "cut text", "cut character")):
        path.write_bytes(content)
        with pytest.raises(InputError, match=wanted):
            json_lines.check_json_lines(path)
    for name in ("escapes", "crlf"):
        path.write_bytes(GOOD[name][0] + '{"a": "é"}'.encode())
        json_lines.check_json_lines(path)


def test_a_row_of_csv_may_be_longer_than_a_block(tmp_path: Path) -> None:
    for name, cell in (("plain", "x" * 3_000_000), ("quoted", '"' + "x\n" * 1_500_000 + '"')):
        (tmp_path / f"{name}.csv").write_text(f"a,b\n1,{cell}\n2,y\n")
        assert [len(value) for value in read_file(tmp_path / f"{name}.csv")["b"].to_pylist()] == [3_000_000, 1]
    header = ",".join(f"column{number}" * 20 for number in range(10_000))
    (tmp_path / "wide.csv").write_text(f"{header}\n{','.join('1' * 10_000)}\n")
    assert read_file(tmp_path / "wide.csv").num_columns == 10_000


def test_a_header_that_is_not_utf_8_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"a,caf\xe9\n1,2\n")
    with pytest.raises(InputError, match="WA-1008"):
        read_file(tmp_path / "x.csv")
