"""`whenabouts doctor` finds what is installed and reports what is missing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import metadata

import pytest
from click.testing import Result

from whenabouts.cli import doctor as module
from whenabouts.core.hosting import java
from whenabouts.spark_plugin import environment

Cli = Callable[..., Result]


def lines(done: Result) -> dict[str, str]:
    return {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}


def absent(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    real = metadata.version

    def version(name: str) -> str:
        if name in packages:
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)


def test_a_fit_machine(cli: Cli) -> None:
    done = cli("doctor")
    assert done.exit_code == 0
    told = lines(done)
    assert metadata.version("pyarrow") in told["pyarrow"]
    assert sys.version.split()[0] in told["Python"]
    assert told["local:"] == "local: fit"
    assert {"numpy", "numba", "pyspark", "Java", "apache-flink", "cores", "memory"} <= set(told)


def test_nothing_of_spark_is_no_reason_to_fail_unless_spark_is_asked_for(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent(monkeypatch, "pyspark", "pandas", "protobuf", "apache-flink")
    monkeypatch.setattr(environment, "_importable", lambda name: False)
    monkeypatch.setattr(java, "java_version", lambda: None)
    monkeypatch.setattr(java, "java_command", lambda: None)
    local = cli("doctor")
    assert local.exit_code == 0
    assert "pip install 'whenabouts[spark]'" in lines(local)["pyspark"]
    assert "not found" in lines(local)["Java"]
    assert "not fit" in lines(local)["spark:"]
    spark = cli("doctor --engine spark")
    assert spark.exit_code == 4
    assert "error: WA-3002: engine spark is not fit: pyspark, pandas, protobuf, Java" in spark.stderr
    flink = cli("doctor --engine flink")
    assert flink.exit_code == 4
    assert "error: WA-3002: engine flink is not fit: apache-flink, Java" in flink.stderr


def test_an_old_java_is_not_fit(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "java_version", lambda: 11)
    done = cli("doctor --engine spark")
    assert done.exit_code == 4
    assert "install a JDK 17 or later" in " ".join(done.stdout.split())
    assert "engine spark is not fit: Java" in done.stderr


def test_a_missing_core_package_fails(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    absent(monkeypatch, "numba")
    done = cli("doctor")
    assert done.exit_code == 4
    assert "pip install numba" in lines(done)["local:"]


def test_an_old_python_is_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.local_findings()[0].fit
    monkeypatch.setattr(module, "LEAST_PYTHON", (99,))
    assert not module.local_findings()[0].fit
