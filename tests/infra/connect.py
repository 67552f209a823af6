"""A separate Spark Connect server, on a free port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep

import pytest

from infra.processes import free_port

PATIENCE_S = 300

needs_connect = pytest.mark.skipif(
    find_spec("grpc_status") is None, reason="Spark Connect needs a newer grpcio than Flink's Beam allows"
)


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """The address of a server that works in `folder` and leaves its log there."""
    import pyspark

    port = free_port()
    options = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.session.timeZone": "UTC",
    }
    command = [str(Path(pyspark.__path__[0]) / "bin" / "spark-submit"), "--master", "local[2]"]
    command += [part for name, value in options.items() for part in ("--conf", f"{name}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    python = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (folder / "server.txt").open("wb") as log:
        process = subprocess.Popen(command, env=os.environ | python, stdout=log, stderr=log, cwd=folder)
    try:
        deadline = monotonic() + PATIENCE_S
        while not _answers(port):
            assert process.poll() is None, (folder / "server.txt").read_text()[-2000:]
            assert monotonic() < deadline, (folder / "server.txt").read_text()[-2000:]
            sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
