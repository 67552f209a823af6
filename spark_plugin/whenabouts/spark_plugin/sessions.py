"""Spark sessions: a small local one for the command line, the demo and the tests; checks of users' sessions."""

from __future__ import annotations

import logging
import os
import sys
from importlib import import_module
from typing import IO, Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from whenabouts.core.errors import Code, EngineError
from whenabouts.core.hosting.engine_output import last_words
from whenabouts.core.hosting.preflight import check_worker
from whenabouts.core.hosting.worker_archive import import_roots
from whenabouts.core.runtime.option_checks import whole_number
from whenabouts.spark_plugin.environment import PROVIDER_CONF, ROCKSDB, check_environment, check_packages, check_spark
from whenabouts.spark_plugin.pipelines import refused_in_pipelines
from whenabouts.spark_plugin.socket_files import socket_file_options

WORKER_DAEMON = "whenabouts.spark_plugin.worker_daemon"

GENERATED_CLASSES = 1_000
"""How many classes of generated code Spark keeps. A stream of ours needs some seventy in each micro-batch: of Spark's
default, 100, two streams in turn throw each other's out and compile them again in every micro-batch."""

ANY_SIZE = 2_147_483_647
"""The greatest number of bytes that Spark allows in a batch for Python. With a smaller one Spark 4.1 and later add up
the sizes of all columns for each row, which costs more than all else that happens to a narrow row on its way there."""

_LOG = logging.getLogger("whenabouts")


def local_session(
    app_name: str = "whenabouts", cores: int = 2, *, output: IO[bytes] | None = None, **conf: object
) -> SparkSession:
    """A quiet Spark on this machine (no UI, UTC, few shuffle partitions, RocksDB state), or the running session.

    `output`: the file that gets what the JVM and its workers print; None: this process's stdout and stderr. `conf`:
    Spark options, with `__` for the dots (`spark__sql__shuffle__partitions=4`). Raises EngineError WA-3001 or WA-3002
    for what is missing, WA-3005 where the JVM does not start. Cost: starting a JVM, some seconds.
    """
    cores = whole_number("cores", cores)
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
        "spark.sql.codegen.cache.maxEntries": str(GENERATED_CLASSES),
        "spark.sql.execution.arrow.maxBytesPerBatch": str(ANY_SIZE),
        "spark.log.level": "ERROR",
        "spark.python.daemon.module": WORKER_DAEMON,
        PROVIDER_CONF: ROCKSDB,
    } | {name.replace("__", "."): str(value) for name, value in conf.items()}
    options = socket_file_options(options["spark.master"]) | options
    if output is not None:
        _launch(options, output)
    builder = SparkSession.builder.appName(app_name)
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(options["spark.log.level"])
    _mend_protobuf(session)  # before any function is created: functions with the same environment share workers
    return session


def _launch(options: dict[str, str], output: IO[bytes]) -> None:
    """Start the JVM of this process, unless it runs already."""
    if SparkContext._gateway is not None:
        return
    printed = {"stdout": output, "stderr": output}
    try:
        launch: Any = launch_gateway  # not typed in every version
        gateway = launch(SparkConf().setAll(list(options.items())), printed)
    except PySparkRuntimeError as error:
        problem = f"Spark's JVM did not start: {last_words(output) or error}"
        raise EngineError(Code.ENGINE_FAILED, problem, "mend what Java says; `whenabouts doctor` checks it") from error
    SparkContext._ensure_initialized(gateway=gateway)


def prepare(session: SparkSession, *, streaming: bool) -> None:
    """Make sure that a session can host an operator.

    Sets two things unless the user has: workers run the driver's Python (local masters only; elsewhere it may not
    exist), and streams keep their state in RocksDB, the only store that Spark's stateful Python operators support. A
    running stream or an existing checkpoint keeps its store. An archive that the package came in is put on workers'
    path for streams.
    """
    check_packages()
    check_worker()  # the package may have come to the driver, too, as a JAR without its dependencies
    check_spark(session.version)  # a Spark Connect server has another one than the client
    _use_own_python(session)
    if streaming:
        _mend_protobuf(session)
        _show_archive(session)
    if streaming and "RocksDB" not in str(session.conf.get(PROVIDER_CONF, "")):
        _LOG.info("%s is set to %s: Spark's stateful Python operators need it", PROVIDER_CONF, ROCKSDB)
        with refused_in_pipelines(f"{PROVIDER_CONF} = {ROCKSDB}"):
            session.conf.set(PROVIDER_CONF, ROCKSDB)


def ignores_case(session: SparkSession) -> bool:
    """Whether a session treats names as equal that differ by case only, as it does by default."""
    return str(session.conf.get("spark.sql.caseSensitive", "false")).lower() != "true"


def _import_roots() -> list[str]:
    """PYTHONPATH for workers on this machine: they import whenabouts from where this process did, installed or not."""
    known = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return list(dict.fromkeys([*known, *import_roots()]))


def _use_own_python(session: SparkSession) -> None:
    context = getattr(session, "_sc", None)  # a Spark Connect session has none; its server decides
    if context is None or os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python"):
        return
    if context.master.startswith("local"):
        context.pythonExec = sys.executable


def _show_archive(session: SparkSession) -> None:
    """Put the archive that the package came in, by `--py-files` or `--packages`, on the `PYTHONPATH` of workers.

    Executors' workers find it without this. But Spark calls the `init` of a stateful operator on the driver's machine
    first, in a worker that gets none of these files.
    """
    context = getattr(session, "_sc", None)
    if context is None:
        return
    known = [path for path in context.environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    archives = [root for root in import_roots() if os.path.isfile(root)]
    if archives:
        context.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*known, *archives]))


def _mend_protobuf(session: SparkSession) -> None:
    """Let the workers import Spark's protobuf messages if the installed protobuf is older than their generator.

    Flink's Beam requires protobuf below 6, and Spark 4.1 generated its messages with 6.33, so that an environment with
    both refuses the import. The messages are simple and can be read with 5.29 too; protobuf has a switch for it.
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
