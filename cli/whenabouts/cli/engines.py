"""The engines that a command can run on: one entry each, imported when it is chosen."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from whenabouts.cli.app import guarded
from whenabouts.cli.engine_results import EngineResult
from whenabouts.cli.progress import Progress
from whenabouts.core.errors import DoubtfulTimesWarning

if TYPE_CHECKING:
    import pyarrow as pa

    from whenabouts.cli.tables import Input
    from whenabouts.core.runtime.protocol import Query

RunQuery = Callable[["Query", Sequence["Input"], bool, Progress], EngineResult]
"""Runs a query over its inputs, as a stream or not, to the end of the input."""


def run_on(engine: str, query: Query, inputs: Sequence[Input], *, stream: bool, progress: Progress) -> EngineResult:
    """Run a query on an engine.

    Raises: EngineError WA-3xxx for whatever the engine raises without a code.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtfulTimesWarning)  # refused when files are read, unless a unit was given
        result: EngineResult = guarded(
            lambda: _ENGINES[engine](query, inputs, stream, progress), doing=f"the run on engine {engine}"
        )
    return result


def reads_files(engine: str) -> Callable[[pa.Schema], bool] | None:
    """Which Parquet files, by their schema, an engine reads by itself; None where it reads none."""
    if engine != "spark":
        return None
    from whenabouts.cli.spark_engine import can_read

    return can_read


def _local(query: Query, inputs: Sequence[Input], stream: bool, progress: Progress) -> EngineResult:
    from whenabouts.core.local import run, run_stream

    if stream:
        files = [source.tables for source in inputs]
        return EngineResult.of(run_stream(query, files, progress=progress.rows_done))
    import pyarrow as pa

    return EngineResult.of(run(query, [pa.concat_tables(source.tables) for source in inputs]))


def _spark(query: Query, inputs: Sequence[Input], stream: bool, progress: Progress) -> EngineResult:
    from whenabouts.cli.spark_engine import run_on_spark

    return run_on_spark(query, inputs, stream=stream)


def _flink(query: Query, inputs: Sequence[Input], stream: bool, progress: Progress) -> EngineResult:
    from whenabouts.cli.flink_engine import run_on_flink

    return EngineResult.of(run_on_flink(query, inputs, stream=stream))


_ENGINES: dict[str, RunQuery] = {"local": _local, "spark": _spark, "flink": _flink}
