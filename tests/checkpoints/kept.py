"""Checkpoints as files of this repository: `python kept.py pack FOLDER ARCHIVE`.

Text files of a checkpoint contain the path of the folder that it was written in. In the archive a placeholder replaces
it, and `unpack` writes the new folder instead. Checksums of such files are left out: Spark also reads files without
one.
"""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

FOLDER = b"@FOLDER@"
PARTS = ("checkpoints", "rows")


def pack(folder: Path, archive: Path) -> None:
    """Pack the result of a run. Refuses a folder whose path is in a file that is not text."""
    written = str(folder).encode()
    files = [path for part in PARTS for path in sorted((folder / part).rglob("*")) if path.is_file()]
    holds = {path for path in files if written in path.read_bytes()}
    with tarfile.open(archive, "w:xz") as tar:
        for path in files:
            if path.suffix == ".crc" and path.with_name(path.name[1:].removesuffix(".crc")) in holds:
                continue
            data = path.read_bytes()
            if path in holds:
                data.decode()
                data = data.replace(written, FOLDER)
            about = tarfile.TarInfo(str(path.relative_to(folder)))
            about.size = len(data)
            tar.addfile(about, io.BytesIO(data))


def unpack(archive: Path, folder: Path) -> None:
    """Put the checkpoint into a folder, as if it had been written there."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    for path in folder.rglob("*"):
        if path.is_file() and FOLDER in path.read_bytes():
            path.write_bytes(path.read_bytes().replace(FOLDER, str(folder).encode()))


if __name__ == "__main__":
    command, given, archived = sys.argv[1:]
    if command != "pack":
        raise SystemExit(__doc__)
    pack(Path(given).resolve(), Path(archived))
