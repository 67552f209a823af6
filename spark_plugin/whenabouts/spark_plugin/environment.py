"""Whether this machine can run Spark, and what to install where it cannot.

Importing this module loads neither Spark nor a JVM.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from whenabouts.core.errors import Code, EngineError
from whenabouts.core.hosting import java
from whenabouts.core.hosting.preflight import installed_version, require_version

LEAST_SPARK, BELOW_SPARK = (4, 1), 5
"""As in pyproject.toml."""

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER_CONF = "spark.sql.streaming.stateStore.providerClass"


def spark_version() -> str | None:
    """Version of pyspark, None if there is none. That of a Spark distribution is on the path, but not installed."""
    found = installed_version("pyspark")
    if found is None and _importable("pyspark"):
        found = str(import_module("pyspark.version").__version__)
    return found


def check_environment() -> None:
    """Raise EngineError WA-3001 (Java) or WA-3002 (Spark and what it needs) with what to install."""
    check_java()
    check_packages()


def check_java() -> None:
    """Raise EngineError WA-3001 unless Spark would find Java 17 or later."""
    java.check_java("Spark")


def check_packages() -> None:
    """Raise EngineError WA-3002 unless pyspark is recent enough and has what its stateful operators need."""
    check_spark(spark_version())
    if not _importable("google.protobuf"):
        raise EngineError(
            Code.ENGINE_VERSION,
            "the package protobuf is missing: Spark's stateful operators speak through it",
            "pip install 'whenabouts[spark]'",
        )


def check_spark(version: str | None) -> None:
    """Raise EngineError WA-3002 for a version of Spark that cannot host the operators, or for none.

    >>> check_spark("4.1.0-SNAPSHOT")
    """
    hint = "pip install 'whenabouts[spark]'; a Spark Connect server needs it too"
    require_version("pyspark", version, hint, least=LEAST_SPARK, below=BELOW_SPARK)


def _importable(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False
