"""Which files a command reads and writes: none is skipped silently, and no input is overwritten."""

from __future__ import annotations

import ctypes
import gzip
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from whenabouts.cli import main
from whenabouts.core.errors import InputError
from whenabouts.core.sources.files import find_files, read_file

MAIN = "from whenabouts.cli import main; main()"
ROWS = "t,v\n1,1\n2,1\n"
TABLE = pa.table({"t": [1, 2], "v": [1, 1]})
PR_CAPBSET_DROP, CAPABILITIES = 24, (1, 2)
"""Of Linux's `prctl`: root's rights to read and enter what its permissions forbid."""

COALESCE = "coalesce {} --time t --values v"
JOIN = "join {} {} --left-time t --right-time t --within 1us --confidence 1"
WINDOW_JOIN = "window-join a={} b={} --time t --window a,b=1us"
COMMANDS = [COALESCE, JOIN, WINDOW_JOIN]


def run(words: list[str] | str, input: bytes | str | None = None) -> Result:
    return CliRunner().invoke(main, words.split() if isinstance(words, str) else words, input=input)


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def folder_of_three() -> None:
    """`d` with a file, one below it, and one behind a link."""
    Path("d/below").mkdir(parents=True)
    Path("elsewhere").mkdir()
    Path("d/a.csv").write_text(ROWS)
    Path("d/below/b.csv").write_text(ROWS)
    Path("elsewhere/c.csv").write_text(ROWS)
    Path("d/link").symlink_to(Path("elsewhere").absolute())


@pytest.mark.parametrize("path", ["d", "d/**/*.csv", "d/**"])
def test_a_linked_subfolder_is_read(path: str) -> None:
    folder_of_three()
    found, _ = find_files(path)
    assert [file.name for file in found] == ["a.csv", "b.csv", "c.csv"]


def test_every_command_reads_a_linked_subfolder() -> None:
    folder_of_three()
    for command in COMMANDS:
        told = run(command.format("d", "d"))
        assert told.exit_code == 0, told.output
        assert f"rows in {6 * command.count('{}')}" in told.output


@pytest.mark.parametrize("path", ["d", "d/**/*.csv"])
def test_a_link_to_where_it_lies_is_an_error_or_read_once(path: str) -> None:
    folder_of_three()
    Path("d/below/up").symlink_to(Path("d").absolute())
    if path == "d":
        with pytest.raises(InputError, match=r"WA-1008: d/below/up: the link leads to a folder that contains it"):
            find_files(path)
    else:
        assert [file.name for file in find_files(path)[0]] == ["a.csv", "b.csv", "c.csv"]


def test_a_file_under_two_names_is_read_once_and_told() -> None:
    folder_of_three()
    Path("d/z.csv").symlink_to(Path("d/a.csv").absolute())
    os.link("d/a.csv", "d/y.csv")
    found, notes = find_files("d")
    assert [file.name for file in found] == ["a.csv", "b.csv", "c.csv"]
    assert notes == [f"d/{name}.csv is the same file as d/a.csv, and read once" for name in "yz"]


def test_a_link_that_leads_nowhere_is_an_error() -> None:
    folder_of_three()
    Path("d/gone.csv").symlink_to("no-such-file.csv")
    for path in ("d", "d/*.csv"):
        with pytest.raises(InputError, match=r"WA-1008: d/gone\.csv: the link leads nowhere"):
            find_files(path)


def test_folders_that_a_glob_matches_are_told() -> None:
    folder_of_three()
    found, notes = find_files("d/*")
    assert [str(file) for file in found] == ["d/a.csv"]
    assert notes == ["d/*: 2 other files were not read, e.g. the folder d/below"]


def test_a_folder_that_cannot_be_read_or_entered_is_an_error() -> None:
    folder_of_three()
    code = (
        "import os, sys\nfrom whenabouts.core.sources.files import find_files\n"
        "from whenabouts.core.errors import InputError\n"
        "for mode in (0o000, 0o100, 0o600):\n"
        "    os.chmod('elsewhere', mode)\n"
        "    for path in ('d', 'd/**/*.csv', 'd/*/c.csv', 'elsewhere/*.csv', 'elsewhere/c.csv', 'elsewhere'):\n"
        "        try:\n            found = find_files(path)[0]\n"
        "        except InputError as error:\n            found = str(error)[:7]\n"
        "        print(oct(mode), path, found if isinstance(found, str) else len(found))\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, text=True,
        capture_output=True, preexec_fn=_without_rights, check=False, timeout=60,
    )  # fmt: skip
    os.chmod("elsewhere", 0o700)
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    assert len(lines) == 18
    # A folder that cannot be listed can be entered by the name of a file.
    assert [line for line in lines if not line.endswith("WA-1008")] == [
        "0o100 d/*/c.csv 1",
        "0o100 elsewhere/c.csv 1",
    ]


def _without_rights() -> None:
    """In a new process in which root, too, may read only where permissions allow it (other users have no such
    right)."""
    libc = ctypes.CDLL(None)
    for capability in CAPABILITIES if hasattr(libc, "prctl") else ():
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


@pytest.mark.parametrize("path", ["", "  "])
def test_an_empty_path_is_no_folder(path: str) -> None:
    Path("here.csv").write_text(ROWS)
    for command in COMMANDS:
        words = [word.replace("{}", path) for word in command.split()]
        told = run(words)
        assert told.exit_code in (2, 3), (words, told.output)
        assert "empty" in told.output or "NAME=PATH" in told.output
    assert run(["plan", path]).exit_code == 3
    assert run(["calibrate", "-o", path, "--window", "1000", "--repeat", "1"]).exit_code == 2
    query = ["query", "SELECT * FROM s COALESCE ON v", "--time", "t", "--stream", f"s={path}"]
    assert run(query).exit_code in (2, 3)


def test_paths_that_no_system_takes_are_errors_of_the_input() -> None:
    for path in ("a\0b.csv", "x" * 5000, "a" * 300 + ".csv", "x/" * 3000):
        told = run(["coalesce", path, "--time", "t", "--values", "v"])
        assert told.exit_code == 3, told.output[:300]
        assert "WA-1008" in told.output


def _bytes(kind: str) -> bytes:
    if kind == "parquet":
        pq.write_table(TABLE, "x.parquet")
        return Path("x.parquet").read_bytes()
    text = ROWS if kind.startswith("csv") else '\n {"t": 1, "v": 1}\n{"t": 2, "v": 1}\n'
    return gzip.compress(text.encode()) if kind.endswith("gz") else text.encode()


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "csv.gz", "jsonl.gz"])
def test_stdin_is_read_as_what_it_holds(kind: str) -> None:
    told = run("coalesce - --time t --values v -o out.csv", _bytes(kind))
    assert told.exit_code == 0, told.output
    assert (
        read_file(Path("out.csv")).to_pylist() == [{"v": 1, "valid_from": 1, "valid_to": 2, "n": 2}]
        or "rows in 2" in told.output
    )
    assert not list(Path().glob("whenabouts-*"))


def test_every_command_reads_stdin_once() -> None:
    Path("b.csv").write_text(ROWS)
    query = ["query", "SELECT * FROM s COALESCE ON v", "--time", "t", "--stream", "s=-"]
    assert run(query, ROWS).exit_code == 0
    assert run(["query", "@-", "--time", "t", "--stream", "s=b.csv"], "SELECT * FROM s COALESCE ON v").exit_code == 0
    assert run(["query", "@-", "--time", "t", "--stream", "s=-"], ROWS).exit_code == 2
    for command in (JOIN, WINDOW_JOIN):
        assert run(command.format("-", "b.csv"), ROWS).exit_code == 0
        told = run(command.format("-", "-"), ROWS)
        assert told.exit_code == 2
        assert "stdin can be read once" in told.output
    sql = "-- name: hot\nSELECT * FROM s [ROWS 9] COALESCE ON v"
    assert run("plan -", sql).output == "hot\teager\n"
    assert run("plan -", '{"queries": [{"name": "hot", "coalesce": ["v"], "window": {"rows": 9}}]}').exit_code == 0
    assert run("plan q.sql --input s=- -o plan.json", ROWS).exit_code == 3  # there is no q.sql
    assert run("coalesce - --time t --values v", "").exit_code == 3  # nothing on stdin


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("option", ["-o", "--rejects"])
@pytest.mark.parametrize("out", ["a.csv", "./a.csv", "link.csv", "hard.csv", "linked/a.csv"])
def test_an_output_that_is_an_input_is_refused(command: str, option: str, out: str) -> None:
    Path("a.csv").write_text(ROWS)
    Path("b.csv").write_text(ROWS)
    Path("link.csv").symlink_to("a.csv")
    os.link("a.csv", "hard.csv")
    Path("linked").symlink_to(Path().absolute())
    told = run([*command.format("b.csv", "a.csv").replace("coalesce b", "coalesce a").split(), option, out])
    assert told.exit_code == 2, told.output
    assert f"{out} is the input a.csv" in told.output
    assert Path("a.csv").read_text() == ROWS


def test_an_output_that_is_read_besides_is_refused() -> None:
    Path("b.csv").write_text(ROWS)
    Path("text.csv").write_text("SELECT * FROM s COALESCE ON v")
    assert run("query @text.csv --time t --input s=b.csv -o b.csv").exit_code == 2
    assert run("query @text.csv --time t --input s=b.csv -o text.csv").exit_code == 2
    Path("q.sql").write_text("SELECT * FROM s [ROWS 9] COALESCE ON v")
    for out in ("q.sql", "b.csv"):
        assert run(f"plan q.sql --input s=b.csv --time t -o {out}").exit_code == 2
    assert Path("q.sql").read_text().startswith("SELECT")


@pytest.mark.parametrize("rejects", ["out.csv", "linked/out.csv", "link.csv"])
def test_two_outputs_that_are_one_file_are_refused(rejects: str) -> None:
    Path("a.csv").write_text(ROWS)
    Path("linked").symlink_to(Path().absolute())
    Path("link.csv").symlink_to("out.csv")
    told = run(["coalesce", "a.csv", "--time", "t", "--values", "v", "-o", "out.csv", "--rejects", rejects])
    assert told.exit_code == 2, told.output
    assert "are the same file" in told.output


def test_stdout_that_is_an_input_is_refused() -> None:
    Path("a.csv").write_text(ROWS)
    with open("a.csv", "a") as file:
        done = subprocess.run(
            [sys.executable, "-c", MAIN, *COALESCE.format("a.csv").split(), "-o", "-"],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, stdout=file, stderr=subprocess.PIPE, text=True,
            check=False, timeout=60,
        )  # fmt: skip
    assert done.returncode == 2
    assert "is the input a.csv" in done.stderr
    assert Path("a.csv").read_text() == ROWS


@pytest.mark.parametrize(
    ("words", "content"),
    [
        ("coalesce - --time t --values v", "t,v\n1.5,2\n"),
        ("coalesce - --time t --values v", ""),
        ("coalesce - --time t --values v", '{"t": 1}\nx'),
        ("plan -", "queries: {{"),
        ("plan -", b"queries: \xff"),
        ("query @-", b"SELECT \xff"),
    ],
)
def test_errors_call_stdin_stdin(words: str, content: str | bytes) -> None:
    told = run(words, content)
    assert told.exit_code in (2, 3)
    assert "stdin" in told.stderr
    assert "/tmp" not in told.stderr
    assert "codec" not in told.stderr


def test_a_file_that_is_not_utf8_is_told_of_in_plain_words() -> None:
    Path("bad.yaml").write_bytes(b"queries: \xff")
    Path("good.yaml").write_text("queries: []")
    for words in ("plan bad.yaml", "plan good.yaml --compare bad.yaml", "plan good.yaml --keep bad.yaml",
                  "query @bad.yaml"):  # fmt: skip
        told = run(words)
        assert told.exit_code == 3, told.output
        assert "WA-1008: bad.yaml: it is not UTF-8, at byte 9 (hint: give a " in told.stderr
