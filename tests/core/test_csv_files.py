"""CSV files: what a quote that is not closed would swallow, headers alone, and what errors tell."""

from __future__ import annotations

import csv
import gzip
import io
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.core import InputError, QueryError
from whenabouts.core.sources.csv_files import CsvFile, csv_batches, read_csv
from whenabouts.core.sources.files import read_file


def written(folder: Path, text: str) -> Path:
    """A file with this text."""
    path = folder / "rows.csv"
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "line", "rest"),
    [
        ('t,k\n1,"x\n2,y\n3,z\n', 2, "the rest of the file, 2 more lines"),
        ('t,k\r\n1,"x\r\n2,y\r\n', 2, "the rest of the file, 1 more line "),
        ('t,k\n1,y\n2,"x', 3, "not closed \\(hint"),
        ('t,k\n1,"x""', 2, "not closed \\(hint"),
        ('t,k\n1,"two\nlines"\n2,"\n', 4, "not closed \\(hint"),
        ('t,"k\n1,x\n', 1, "the rest of the file, 1 more line "),
    ],
)
def test_a_quote_that_is_not_closed_is_refused(tmp_path: Path, text: str, line: int, rest: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=rf"WA-1008: .*rows.csv: a quote .* in line {line} is not closed.*") as refused:
        read_file(path)
    assert refused.match(rest)


def test_a_quote_that_is_not_closed_is_refused_in_compressed_files(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b't,k\n1,"x\n2,y\n'))
    with pytest.raises(InputError, match="in line 2 is not closed"):
        read_file(path)


CELLS = st.text(st.sampled_from('ab"\n\r, '), max_size=4)


@given(rows=st.lists(st.tuples(CELLS, CELLS), max_size=6), quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
def test_quotes_that_are_closed_are_read_as_python_reads_them(
    rows: list[tuple[str, str]], quoting: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = io.StringIO()
    csv.writer(text, quoting=quoting).writerows([("t", "k"), *rows])  # type: ignore[arg-type]
    path = written(tmp_path_factory.mktemp("quotes"), text.getvalue())
    wanted = [list(row) for row in rows]
    assert [[cell or "" for cell in row.values()] for row in read_csv(path).to_pylist()] == wanted


def test_a_quote_within_a_value_is_a_character(tmp_path: Path) -> None:
    table = read_csv(written(tmp_path, 't,k\n1,5" pipe\n2,a\n'))
    assert table["k"].to_pylist() == ['5" pipe', "a"]


@pytest.mark.parametrize("text", ["t,k", "t,k\n", '"t",k'])
def test_a_header_alone_is_an_empty_table(tmp_path: Path, text: str) -> None:
    table = read_file(written(tmp_path, text))
    assert table.column_names == ["t", "k"]
    assert table.num_rows == 0


def test_the_row_with_other_columns_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"WA-1008: .*Row #3: Expected 2 columns, got 1: 3"):
        read_file(written(tmp_path, "t,k\n1,2\n3\n"))


def test_parquet_with_two_columns_of_a_name_is_refused_as_csv_is(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], ["k", "k"]), path)
    with pytest.raises(QueryError, match=r"WA-2009: .*rows.parquet has two columns 'k'"):
        read_file(path)


ODD = {
    "empty and quoted empty fields": 't,k,v\n1,,NA\n2,"",nan\n3,"a\nb",\n',
    "rows longer than Arrow's blocks": f"t,k,v\n1,a,b\n2,{'x' * 3_000_000},c\n3,d,{'y' * 20_000_000}\n4,e,f\n",
    "a header alone": "t,k,v",
    "many rows": "t,k,v\n" + "".join(f"{i},k{i},{i / 4}\n" for i in range(200_000)),
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_a_file_read_a_few_rows_at_a_time_is_the_file_read_at_once(tmp_path: Path, text: str) -> None:
    file = CsvFile.at(written(tmp_path, text))
    found = list(csv_batches(file, ["v", "t"]))
    assert pa.Table.from_batches(found, pa.schema({"v": pa.string(), "t": pa.string()})).equals(
        read_csv(file).select(["v", "t"])
    )


def test_a_quote_that_is_not_closed_is_refused_also_a_few_rows_at_a_time(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"WA-1008: .*in line 2 is not closed: it would hold the rest of the file"):
        list(csv_batches(CsvFile.at(written(tmp_path, 't,k\n1,"x\n2,y\n')), ["t"]))


RAGGED = "k,t\n" + "a,1\n" * 300_000 + "b\n" + "a,1\n" * 300_000


@pytest.mark.parametrize("text", [f"k,t\n{'x' * 3_000_000},1\nb,2\n", RAGGED], ids=["a long row", "a ragged row"])
def test_errors_do_not_leave_the_reader_waiting_for_itself(tmp_path: Path, text: str) -> None:
    """As Arrow's readers with several threads do at some errors: in a process of its own, which can be ended."""
    many = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from whenabouts.core import InputError
from whenabouts.core.sources.files import read_file
def read(_):
    try:
        return str(read_file(Path(sys.argv[1])).num_rows)
    except InputError as error:
        return str(error).partition(": ")[2]
with ThreadPoolExecutor(4) as readers:
    print(*set(readers.map(read, range(60))), sep="\\n")
"""
    command = [sys.executable, "-c", many, str(written(tmp_path, text))]
    done = subprocess.run(command, check=True, timeout=120, stdout=subprocess.PIPE, text=True)
    (answer,) = done.stdout.splitlines()
    assert "Row #300002: Expected 2 columns, got 1" in answer if text == RAGGED else answer == "2"
