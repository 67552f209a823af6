"""The requests that would be sent to a Docker engine. The cluster tests have not run with a real one so far."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import testcontainers.core.container
import testcontainers.core.image
from testcontainers.core.config import testcontainers_config

import infra.containers
import infra.machines

SITE = f"/usr/local/lib/python{infra.containers.PYTHON}/site-packages"


class Engine:
    """Records the requests to a Docker engine."""

    def __init__(self) -> None:
        self.built: list[dict[str, Any]] = []
        self.made: list[dict[str, Any]] = []
        self.signals: list[str] = []
        self.status, self.id, self.short_id, self.client = "created", "0", "0", self

    def build(self, **asked: Any) -> tuple[Any, list[Any]]:
        self.built.append(asked)
        return self, []

    def create(self, image: str, **asked: Any) -> Engine:
        self.made.append({"image": image, **asked})
        return self

    def start(self, container: Engine | None = None) -> None:
        self.status = "running"

    def kill(self, signal: str) -> None:
        self.signals.append(signal)
        self.status = "exited"

    def reload(self) -> None:
        """Nothing changes by itself."""

    def remove(self, **asked: Any) -> None:
        self.status = "removed"

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Engine:
    docker = Engine()
    for module in (testcontainers.core.container, testcontainers.core.image):
        monkeypatch.setattr(module, "DockerClient", lambda **_: docker)
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
    monkeypatch.setattr(infra.machines, "has_docker", lambda: True)
    monkeypatch.setattr(infra.containers, "jars", lambda: tmp_path / "jars")
    infra.containers.image.cache_clear()
    return docker


def _spark(folder: Path) -> Any:
    pytest.importorskip("pyspark")
    from infra.spark_cluster import SparkCluster

    return SparkCluster(folder).workers[0]


def _flink(folder: Path) -> Any:
    pytest.importorskip("pyflink")
    from infra.flink_cluster import FlinkCluster

    return FlinkCluster(folder).task_managers[0]


@pytest.mark.parametrize(
    ("part", "command"),
    [(_spark, f"{SITE}/pyspark/bin/spark-class"), (_flink, f"{SITE}/pyflink/bin/taskmanager.sh")],
    ids=["of Spark", "of Flink"],
)
def test_a_worker_is_a_container_on_this_machines_network_and_folders(
    engine: Engine, tmp_path: Path, part: Callable[[Path], Any], command: str
) -> None:
    worker = part(tmp_path / "run" / "cluster")
    assert isinstance(worker, infra.containers.ContainerServer)
    assert not worker.alive
    worker.start()
    assert worker.alive
    (built,), (made,) = engine.built, engine.made
    assert (Path(built["path"]) / built["dockerfile"]).is_file()
    assert built["buildargs"] == {"PYTHON": infra.containers.PYTHON}
    assert made["image"] == built["tag"]
    assert made["command"][0] == command
    assert made["network_mode"] == "host"
    assert made["user"] == f"{os.getuid()}:{os.getgid()}"
    modes = {path: (mount["bind"] == path, mount["mode"]) for path, mount in made["volumes"].items()}
    repository = str(infra.containers.REPOSITORY)
    assert modes == {
        str(tmp_path / "run"): (True, "rw"),
        str(tmp_path / "jars"): (True, "ro"),
        repository: (True, "ro"),
    }
    assert "PATH" not in made["environment"], "the image has its own"
    worker.kill()
    assert (engine.signals, worker.alive) == (["SIGKILL"], False)
    worker.start()
    assert worker.alive
    assert len(engine.made) == 1, "the same container, with what it has written"
    worker.stop()
    assert engine.status == "removed"


def test_a_broker_keeps_its_port(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infra.containers, "listens", lambda port: True)
    broker = infra.containers.ContainerBroker()
    port = int(broker.address.rpartition(":")[2])
    assert broker._container.ports == {"9093": port}
    assert broker._container.image == infra.containers.KAFKA
    broker._container._container = engine
    broker.kill()
    broker.start()
    assert (engine.signals, engine.status) == (["SIGKILL"], "running")
