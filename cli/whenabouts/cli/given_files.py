"""The files of a command: `-` is stdin, and no file that is read is written to."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory

import click

from whenabouts.cli.spelled_hints import STDIN_FILE
from whenabouts.core.errors import Code, InputError, QueryError

STDIN = "-"
_TAKEN, _READ = "whenabouts.stdin", "whenabouts.read"
_COMPRESSED = (
    (b"\x1f\x8b", ".gz", "gzip"), (b"BZh", ".bz2", "bz2"), (b"\x28\xb5\x2f\xfd", ".zst", "zstd")
)  # fmt: skip
_HEAD_BYTES = 1 << 16


def input_path(path: str, what: str = "input", extension: Callable[[Path], str] | None = None) -> str:
    """The path, or for `-` a temporary file with the content of stdin: Parquet, CSV or JSON lines, by its first bytes.

    `extension` gives the extension of a file that is not a file of events.

    Raises: InputError WA-1008 for an empty path; QueryError WA-2006 if stdin is read twice.
    """
    from whenabouts.core.sources.found_files import check_path

    if path != STDIN:
        check_path(path, what.removeprefix("the "))
        return path
    take_stdin(what)
    folder = Path(click.get_current_context().with_resource(TemporaryDirectory(prefix="whenabouts-")))
    file = folder / "stdin"
    with file.open("wb") as written:
        copyfileobj(sys.stdin.buffer, written)
    found = _extension(file) if extension is None else extension(file)
    path = str(file.rename(folder / f"stdin{found}"))
    click.get_current_context().meta[STDIN_FILE] = path
    return path


def text_of(path: str | Path, hint: str) -> str:
    """The text of a file. Raises: InputError WA-1008, with the hint, if it cannot be read or is not UTF-8."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        problem = f"{path}: it cannot be read: {error.strerror or error}"
        raise InputError(Code.UNREADABLE_FILE, problem, hint) from error
    return decoded(data, str(path), hint)


def decoded(data: bytes, name: str, hint: str) -> str:
    """The bytes of a file as text. Raises: InputError WA-1008, with the hint, if they are not UTF-8."""
    try:
        return data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        problem = f"{name}: it is not UTF-8, at byte {error.start}"
        raise InputError(Code.UNREADABLE_FILE, problem, hint) from error


def take_stdin(what: str) -> None:
    """Reserve stdin for `what`. Raises: QueryError WA-2006 if it has been read already."""
    meta = click.get_current_context().meta
    if _TAKEN in meta:
        raise QueryError(Code.BAD_OPTION, f"- is {meta[_TAKEN]} and {what}", "stdin can be read once: name a file")
    meta[_TAKEN] = what


def note_read(path: str) -> None:
    """Remember a file that is read besides the inputs, such as a query's text or templates."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta.setdefault(_READ, []).append(path)


def check_not_read(targets: Sequence[tuple[str | None, str]], files: Iterable[Path]) -> None:
    """Refuse a target (path and option; `-` is stdout) that is one of the files to be read, also through links.

    Raises: QueryError WA-2006.
    """
    from whenabouts.core.sources.found_files import same_file

    others = click.get_current_context().meta.get(_READ, ())
    known = [*files, *(Path(path) for path in others)]
    for target, option in targets:
        if target is None:
            continue
        for file in known:
            if _is_stdout(file) if target == "-" else same_file(Path(target), file):
                raise QueryError(
                    Code.BAD_OPTION, f"{option} {target} is the input {file}", "write to another file, nothing was read"
                )


def plan_extension(file: Path) -> str:
    """`.sql` for a plan file whose first word is SELECT, else `.yaml`."""
    lines = (line.split("--")[0].strip() for line in file.read_text(encoding="utf-8", errors="replace").splitlines())
    first = next((line for line in lines if line), "")
    return ".sql" if first.upper().startswith("SELECT") else ".yaml"


def _is_stdout(file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(sys.stdout.fileno()), file.stat())
    except (OSError, ValueError):  # stdout is not a file, or closed
        return False


def _extension(file: Path) -> str:
    """The extension that says how to read the file."""
    import pyarrow as pa

    with file.open("rb") as raw:
        head = raw.read(_HEAD_BYTES)
    packed = ""
    for magic, extension, codec in _COMPRESSED:
        if head.startswith(magic):
            packed = extension
            try:
                with pa.input_stream(str(file), compression=codec) as stream:
                    head = stream.read(_HEAD_BYTES)
            except OSError:  # reading the file will report it
                head = b""
            break
    if head.startswith(b"PAR1"):
        return ".parquet"
    return (".jsonl" if head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{") else ".csv") + packed
