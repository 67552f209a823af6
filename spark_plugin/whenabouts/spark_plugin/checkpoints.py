"""Checks that a checkpoint belongs to a query before the query starts from it.

Spark reads any query's state into any other query of the same form. So the state contains the identity of the query
that wrote it (`whenabouts.core.hosting.query_identity`). It is read here with Spark's own state data source, from any
file system, also over Spark Connect.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from whenabouts.core.errors import Code, EngineError, WhenaboutsError
from whenabouts.core.hosting.query_identity import check_checkpoint
from whenabouts.spark_plugin.results import Result
from whenabouts.spark_plugin.streaming_host import IDENTITY

_NOTHING_COMMITTED = "STDS_COMMITTED_BATCH_UNAVAILABLE"
_NO_SUCH_VARIABLE = "STDS_INVALID_OPTION_VALUE"


def check_start(results: Sequence[Result], checkpoint: str) -> None:
    """Raise as `write_stream` unless the queries of one stream can start from a checkpoint."""
    found = identities(results[0].rows.sparkSession, checkpoint)
    check_checkpoint(found, [result.hosting.identity for result in results])


def identities(session: SparkSession, checkpoint: str) -> list[str]:
    """The identities in the state, each text once; none if no micro-batch has been committed yet.

    Raises EngineError WA-3032 for a checkpoint without identities, WA-3005 if it cannot be read.
    """
    try:
        _make_query_manager(session)
        metadata = session.read.format("state-metadata").load(checkpoint).select("operatorId", "operatorName")
        operators = [row.operatorId for row in metadata.collect() if row.operatorName.startswith("transformWithState")]
        found = [text for operator in operators for text in _noted(session, checkpoint, operator)]
        if not found and _committed(session, checkpoint):
            raise EngineError(
                Code.OTHER_QUERY,
                f"the checkpoint {checkpoint} belongs to another query: it holds no state of ours",
                "start this query from a new checkpoint",
            )
        return found
    except WhenaboutsError:
        raise
    except Exception as error:  # PySparkException, and those of py4j, which a client of Spark Connect may not have
        raise EngineError(
            Code.ENGINE_FAILED,
            f"the checkpoint {checkpoint!r} cannot be read: {_first_line(error)}",
            "driver and workers must be able to read and write it, with the file system's JARs and credentials, and it "
            "must be of this version of Spark or an older one; nothing was started",
        ) from error


def _make_query_manager(session: SparkSession) -> None:
    """Make Spark create its coordinator of state stores, without which no state can be read.

    The coordinator belongs to the manager of streaming queries, which Spark creates on first use. In a process that
    restarts a query, it has not been used yet.
    """
    _ = session.streams.active


def _first_line(error: Exception) -> str:
    """Spark's message without the JVM's stack frames."""
    said = str(getattr(error, "java_exception", error)).strip()
    return said.partition("\n")[0][:500]


def _noted(session: SparkSession, checkpoint: str, operator: int) -> list[str]:
    state = session.read.format("statestore").option("operatorId", operator).option("stateVarName", IDENTITY)
    try:
        return [row.text for row in state.load(checkpoint).select("value.text").distinct().collect()]
    except PySparkException as error:
        condition = error.getCondition() or ""
        if condition == _NOTHING_COMMITTED or condition.startswith(_NO_SUCH_VARIABLE):
            return []
        raise


def _committed(session: SparkSession, checkpoint: str) -> bool:
    try:
        return session.read.text(f"{checkpoint.rstrip('/')}/commits").count() > 0
    except PySparkException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return False
        raise
