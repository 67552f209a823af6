"""How Spark speaks with Python in a session of ours, and what a process leaves behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from whenabouts.spark_plugin import socket_files

PROGRAM = """
import os
import tempfile
from whenabouts.spark_plugin import local_session

session = local_session(cores=1)  # never stopped

def through_files(batches):
    import pyarrow as pa
    for _ in batches:
        yield pa.record_batch({"enabled": [os.environ["PYTHON_UNIX_DOMAIN_ENABLED"].lower()]})

(folder,) = os.listdir(tempfile.gettempdir())
assert session.conf.get("spark.python.unix.domain.socket.dir") == os.path.join(tempfile.gettempdir(), folder)
assert session.range(1).mapInArrow(through_files, "enabled string").collect()[0].enabled == "true"
"""


@pytest.fixture
def short_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder for temporary files. Sockets have paths of at most a hundred bytes, pytest has longer ones."""
    folder = tempfile.mkdtemp(prefix="wa-test-")
    monkeypatch.setattr(tempfile, "tempdir", folder)
    monkeypatch.setenv("TMPDIR", folder)
    socket_files._folder.cache_clear()
    yield Path(folder)
    socket_files._folder.cache_clear()
    shutil.rmtree(folder)


@pytest.mark.slow
def test_workers_are_reached_through_files_and_none_is_left(short_folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(short_folder.iterdir()) == []


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[1,1,1024]"])
def test_a_spark_on_this_machine_has_one_folder(short_folder: Path, master: str) -> None:
    options = socket_files.socket_file_options(master)
    assert options["spark.python.unix.domain.socket.enabled"] == "true"
    assert Path(options["spark.python.unix.domain.socket.dir"]).parent == short_folder
    assert socket_files.socket_file_options(master) == options


def test_workers_of_other_machines_do_not_have_the_folder(short_folder: Path) -> None:
    assert socket_files.socket_file_options("spark://host:7077") == {}
    assert list(short_folder.iterdir()) == []


def test_paths_that_are_too_long_for_a_socket(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    longer = short_folder / ("x" * 60)
    longer.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(longer))
    assert socket_files.socket_file_options("local[1]") == {}


def test_a_forked_process_leaves_the_folder_alone(short_folder: Path) -> None:
    folder = socket_files.socket_file_options("local[1]")["spark.python.unix.domain.socket.dir"]
    socket_files._remove(folder, os.getpid() + 1)
    assert Path(folder).is_dir()
    socket_files._remove(folder, os.getpid())
    assert not Path(folder).exists()
