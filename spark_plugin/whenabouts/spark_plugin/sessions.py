"""Spark sessions: a small local one for the command line, the demo and the tests; checks on everybody's."""

from __future__ import annotations

import logging
import os
import sys
from importlib import import_module

from pyspark.sql import SparkSession

from whenabouts.core.errors import Code, EngineError
from whenabouts.core.hosting.worker_archive import import_roots
from whenabouts.core.runtime.option_checks import whole_number
from whenabouts.spark_plugin.environment import PROVIDER_CONF, ROCKSDB, check_environment, check_packages, check_spark

WORKER_DAEMON = "whenabouts.spark_plugin.worker_daemon"

_LOG = logging.getLogger("whenabouts")


def local_session(app_name: str = "whenabouts", cores: int = 2, **conf: object) -> SparkSession:
    """A quiet Spark in this machine: no UI, UTC, few shuffle partitions, RocksDB state; or the running one.

    `conf`: Spark options, with `__` for the dots (`spark__sql__shuffle__partitions=4`). Raises EngineError WA-3001
    or WA-3002 for what is missing. Cost: starting a JVM, some seconds.
    """
    whole_number("cores", cores)
    check_environment()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join(_import_roots())
    options = {
        "spark.master": f"local[{cores}]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.log.level": "ERROR",
        "spark.python.daemon.module": WORKER_DAEMON,
        PROVIDER_CONF: ROCKSDB,
    } | {name.replace("__", "."): str(value) for name, value in conf.items()}
    builder = SparkSession.builder.appName(app_name)
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(options["spark.log.level"])
    _mend_protobuf(session)  # before any function is made: workers are shared among those of one environment
    return session


def prepare(session: SparkSession, *, streaming: bool) -> None:
    """Make sure that a session can host an operator.

    Sets two things where the user has not: workers run the Python of the driver (local masters only; elsewhere it may
    not exist), and streams keep their state in RocksDB, the only store that Spark's stateful Python operators take.
    A running stream or an existing checkpoint keeps the store it has.
    """
    check_packages()
    check_spark(session.version)  # of a Spark Connect server it is another than the client's
    _use_own_python(session)
    if streaming:
        _mend_protobuf(session)
    if streaming and "RocksDB" not in str(session.conf.get(PROVIDER_CONF, "")):
        _LOG.info("%s is set to %s: Spark's stateful Python operators need it", PROVIDER_CONF, ROCKSDB)
        session.conf.set(PROVIDER_CONF, ROCKSDB)


def ignores_case(session: SparkSession) -> bool:
    """Whether names that differ by upper and lower case only are one to a session, as by default."""
    return str(session.conf.get("spark.sql.caseSensitive", "false")).lower() != "true"


def _import_roots() -> list[str]:
    """PYTHONPATH for this machine's workers: they find whenabouts where this process found it, installed or not."""
    known = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return list(dict.fromkeys([*known, *import_roots()]))


def _use_own_python(session: SparkSession) -> None:
    context = getattr(session, "_sc", None)  # a Spark Connect session has none: its server decides
    if context is None or os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python"):
        return
    if context.master.startswith("local"):
        context.pythonExec = sys.executable


def _mend_protobuf(session: SparkSession) -> None:
    """Let the workers import Spark's protobuf messages where the installed protobuf is older than what made them.

    Flink's Beam holds protobuf under 6 and Spark 4.1 generated its messages with 6.33, so in an environment with both
    the import is refused. The messages themselves are plain and read well with 5.29 too; protobuf has a switch for it.
    """
    try:
        import_module("pyspark.sql.streaming.proto.StateMessage_pb2")
    except ImportError as error:
        raise EngineError(
            Code.ENGINE_VERSION,
            f"Spark's stateful Python operators need protobuf 5.29 or later: {error}",
            "pip install 'protobuf>=6.33'",
        ) from error
    except Exception as error:  # protobuf's VersionError, which protobuf before 5.29 does not have
        context = getattr(session, "_sc", None)
        if type(error).__name__ != "VersionError" or context is None:
            raise EngineError(Code.ENGINE_VERSION, str(error), "pip install 'protobuf>=6.33'") from error
        context.environment["TEMPORARILY_DISABLE_PROTOBUF_VERSION_CHECK"] = "true"
