"""Checks that a checkpoint belongs to a query before the query starts from it.

Spark reads any query's state into any other query of the same form. So the state contains the identity of the query
that wrote it (`whenabouts.core.hosting.query_identity`). It is read here with Spark's own state data source, from any
file system, also over Spark Connect.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from whenabouts.core.errors import Code, EngineError, QueryError, WhenaboutsError
from whenabouts.core.hosting.query_identity import check_checkpoint
from whenabouts.spark_plugin.results import Result
from whenabouts.spark_plugin.streaming_host import IDENTITY

_OURS = "transformWithState"
_NO_SUCH_VARIABLE = "STDS_INVALID_OPTION_VALUE"
_PATTERN = re.compile(r"[\[\]{}*?\\]")
"""What Spark takes for a pattern in the path of a file that it reads, but not in that of a checkpoint."""


def path_text(checkpoint: str | os.PathLike[str]) -> str:
    """The checkpoint's path or URI as text. Raises QueryError WA-2006 for what is neither."""
    given: object = checkpoint
    text = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    if not isinstance(text, str) or not text.strip():
        raise QueryError(
            Code.BAD_OPTION,
            f"checkpoint is {checkpoint!r}, which is no path",
            "give the folder that keeps the query's state, such as 's3a://bucket/checkpoints/alarms': text or a Path",
        )
    return text


def check_start(results: Sequence[Result], checkpoint: str) -> None:
    """Raise as `write_stream` unless the queries of one stream can start from a checkpoint."""
    found = identities(results[0].rows.sparkSession, checkpoint)
    check_checkpoint(found, [result.hosting.identity for result in results])


def identities(session: SparkSession, checkpoint: str) -> list[str]:
    """The identities in the state, each text once; none if no micro-batch with rows has been committed yet.

    Raises EngineError WA-3032 for a checkpoint without state of ours, WA-3005 if it cannot be read.
    """
    try:
        folder = _committed(session, checkpoint)
        if folder is None:
            return []
        _make_query_manager(session)
        with _readable(folder) as path:
            metadata = session.read.format("state-metadata").load(path).select("operatorId", "operatorName")
            operators = [row.operatorId for row in metadata.collect() if row.operatorName.startswith(_OURS)]
            noted = [_noted(session, path, operator) for operator in operators]
        ours = [texts for texts in noted if texts is not None]
        if not ours:
            raise EngineError(
                Code.OTHER_QUERY,
                f"the checkpoint {checkpoint} belongs to another query: it holds no state of ours",
                "start this query from a new checkpoint",
            )
        return [text for texts in ours for text in texts]
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


def _noted(session: SparkSession, path: str, operator: int) -> list[str] | None:
    """The identities in the state of an operator; None if it is not one of ours."""
    state = session.read.format("statestore").option("operatorId", operator).option("stateVarName", IDENTITY)
    try:
        return [row.text for row in state.load(path).select("value.text").distinct().collect()]
    except PySparkException as error:
        if (error.getCondition() or "").startswith(_NO_SUCH_VARIABLE):
            return None
        raise


def _committed(session: SparkSession, checkpoint: str) -> str | None:
    """The checkpoint's folder as a URI, as Spark resolves it; None if no micro-batch has been committed."""
    exactly = _PATTERN.sub(r"\\\g<0>", checkpoint.rstrip("/"))
    try:
        files = session.read.text(f"{exactly}/commits").inputFiles()
    except PySparkException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise
    return files[0].rpartition("/commits/")[0] if files else None


@contextmanager
def _readable(folder: str) -> Iterator[str]:
    """The path at which Spark reads a checkpoint's state.

    Its reader encodes a path once too often (`a b` becomes a folder `a%20b`). So a local folder of such a name is read
    through a link.
    """
    if "%" not in folder:
        yield folder
        return
    place = urlsplit(folder)
    name = unquote(place.path)
    if place.scheme != "file" or not Path(name).is_dir():
        raise EngineError(
            Code.ENGINE_FAILED,
            f"Spark cannot read state in {folder}, whose path has a space or another character that URIs encode",
            "copy the checkpoint to a path of letters, digits and -_./, or start the query with rows.writeStream: what "
            "differs is refused in the first micro-batch then; nothing was started",
        )
    with TemporaryDirectory(prefix="whenabouts") as scratch:
        link = Path(scratch, "checkpoint")
        link.symlink_to(name)
        yield str(link)
