"""Java archives of the broker, the engines' connectors, Delta and Iceberg, fetched once by Maven from `pom.xml`."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

from infra.docker import has_docker

POM = Path(__file__).with_name("pom.xml")
OF_NEWEST_SPARK = Path(__file__).with_name("newest-spark.pom.xml")
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "whenabouts-tests"


PATIENCE_S = 300


class NotFetchedError(Exception):
    """Maven is missing, or failed: tests that need an archive are skipped with this reason."""


@cache
def jars(pom: Path = POM) -> Path:
    """The folder with all archives of a `pom.xml`. Raises NotFetchedError."""
    folder = CACHE / hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    if not folder.exists():
        half = folder.with_name(f"{folder.name}.{os.getpid()}")
        _fetch(pom, half)
        with suppress(OSError):  # another process may have fetched them meanwhile
            half.rename(folder)
    return folder


def _fetch(pom: Path, folder: Path) -> None:
    if shutil.which("mvn") is None:
        if not has_docker():
            raise NotFetchedError("neither Docker nor Maven (Debian: apt-get install maven) is here")
        from infra.containers import fetch

        if fetch(pom, folder):
            raise NotFetchedError("Maven, in a container, could not fetch")
        return
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    try:
        fetched = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise NotFetchedError(f"Maven has not fetched in {PATIENCE_S} s") from None
    if fetched.returncode:
        raise NotFetchedError(f"Maven could not fetch: {fetched.stdout.strip().splitlines()[:1]}")


def of_spark() -> list[Path]:
    """Spark's connector and its dependencies besides Spark."""
    return _found("spark-*.jar", "kafka-clients-*.jar", "commons-pool2-*.jar")


def of_newest_spark() -> list[Path]:
    """The same for the newest Spark."""
    return sorted(jars(OF_NEWEST_SPARK).glob("*.jar"))


def of_flink() -> list[Path]:
    """Flink's connector, which includes its dependencies."""
    return _found("flink-sql-connector-kafka-*.jar")


def of_sql_gateway() -> Path:
    """Flink's SQL gateway."""
    return _found("flink-sql-gateway-*.jar")[0]


def of_kubernetes_operator() -> Path:
    """The Kubernetes operator's API, with the schemas of its resources."""
    return _found("flink-kubernetes-operator-api-*.jar")[0]


def of_delta() -> list[Path]:
    """Delta tables, without what Spark brings."""
    return _found("delta-*.jar")


def of_iceberg() -> list[Path]:
    """Iceberg tables, with all that they need."""
    return _found("iceberg-*.jar")


@cache
def delta_package() -> Path:
    """Delta's Python package of the same release: a wheel to import from, as it has only Python. Raises
    NotFetchedError."""
    release = _found("delta-storage-*.jar")[0].stem.rpartition("-")[2]
    folder = CACHE / f"delta-spark-{release}"
    if not folder.exists():
        half = folder.with_name(f"{folder.name}.{os.getpid()}")
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", f"--dest={half}", f"delta-spark=={release}"]
        try:
            fetched = subprocess.run(pip, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise NotFetchedError(f"pip has not fetched delta-spark in {PATIENCE_S} s") from None
        if fetched.returncode:
            raise NotFetchedError(
                f"pip could not fetch delta-spark {release}: {fetched.stderr.strip().splitlines()[-1:]}"
            )
        with suppress(OSError):  # another process may have fetched it meanwhile
            half.rename(folder)
    return next(folder.glob("*.whl"))


def _found(*patterns: str) -> list[Path]:
    return [path for pattern in patterns for path in sorted(jars().glob(pattern))]
