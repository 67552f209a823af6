"""Missing packages are reported with a code and a hint, before anything starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from whenabouts.core.errors import Code, EngineError
from whenabouts.core.hosting import java, preflight
from whenabouts.spark_plugin import environment, sessions


def _fake_java(folder: Path, version: str) -> str:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    java.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(("told", "major"), [("1.8.0_292", 8), ("11.0.2", 11), ("17", 17), ("21-ea", 21)])
def test_java_version_is_read_from_the_java_that_spark_would_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, major: int
) -> None:
    monkeypatch.setenv("JAVA_HOME", _fake_java(tmp_path, told))
    assert java.java_version() == major


def test_an_old_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", _fake_java(tmp_path, "11.0.2"))
    with pytest.raises(EngineError, match=r"is Java 11.*openjdk-17") as raised:
        environment.check_environment()
    assert raised.value.code is Code.NO_JAVA


def test_no_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert java.java_version() is None
    with pytest.raises(EngineError, match="there is none") as raised:
        environment.check_environment()
    assert raised.value.code is Code.NO_JAVA


@pytest.mark.parametrize("version", ["4.0.1", "5.0.0"])
def test_an_old_or_unknown_spark_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(environment, "spark_version", lambda: version)
    with pytest.raises(EngineError, match=rf"pyspark is {version}, at least 4\.1 and below 5 is needed") as raised:
        environment.check_packages()
    assert raised.value.code is Code.ENGINE_VERSION


def test_a_driver_that_lacks_a_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package may have come to it as a JAR, without its dependencies."""
    monkeypatch.setattr(preflight, "OF_WORKERS", {"no-such-package": (1, 2)})
    preflight.check_worker.cache_clear()
    with pytest.raises(EngineError, match="WA-3002: no-such-package is not installed"):
        sessions.prepare(None, streaming=False)  # type: ignore[arg-type]  # it is not looked at
    preflight.check_worker.cache_clear()


def test_the_spark_of_a_distribution_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """spark-submit puts its pyspark on the path; it is installed nowhere, so only it knows its version."""
    monkeypatch.setattr(environment, "installed_version", lambda package: None)
    assert environment.spark_version() == pyspark.__version__
    environment.check_packages()


def test_a_missing_spark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "installed_version", lambda package: None)
    monkeypatch.setattr(environment, "_importable", lambda package: False)
    assert environment.spark_version() is None
    with pytest.raises(EngineError, match=r"whenabouts\[spark\]") as raised:
        environment.check_packages()
    assert raised.value.code is Code.ENGINE_VERSION


def test_missing_protobuf_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "find_spec", lambda name: None)
    with pytest.raises(EngineError, match="protobuf") as raised:
        environment.check_packages()
    assert raised.value.code is Code.ENGINE_VERSION


def test_importing_the_plugin_loads_no_spark() -> None:
    code = "import sys, whenabouts.spark_plugin; sys.exit('pyspark' in sys.modules)"
    path = {"PYTHONPATH": ":".join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=path, check=False).returncode == 0
