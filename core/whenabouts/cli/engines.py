"""The engines that a command can run on: one entry each, imported when it is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from whenabouts.cli.app import guarded
from whenabouts.cli.progress import Progress

if TYPE_CHECKING:
    from whenabouts.cli.tables import Input
    from whenabouts.core.local import Outcome
    from whenabouts.core.protocol import Query

RunQuery = Callable[["Query", Sequence["Input"], bool, Progress], "Outcome"]
"""Runs a query over its inputs, as a stream or not, to the end of the input."""


def run_on(engine: str, query: Query, inputs: Sequence[Input], *, stream: bool, progress: Progress) -> Outcome:
    """Run a query on an engine.

    Raises: EngineError WA-3xxx for whatever the engine raises without a code.
    """
    outcome: Outcome = guarded(
        lambda: _ENGINES[engine](query, inputs, stream, progress), doing=f"the run on engine {engine}"
    )
    return outcome


def _local(query: Query, inputs: Sequence[Input], stream: bool, progress: Progress) -> Outcome:
    from whenabouts.core.local import run, run_stream

    if stream:
        return run_stream(query, [source.tables for source in inputs], progress=progress.rows_done)
    import pyarrow as pa

    return run(query, [pa.concat_tables(source.tables) for source in inputs])


def _spark(query: Query, inputs: Sequence[Input], stream: bool, progress: Progress) -> Outcome:
    from whenabouts.cli.spark_engine import run_on_spark

    return run_on_spark(query, inputs, stream=stream)


def _flink(query: Query, inputs: Sequence[Input], stream: bool, progress: Progress) -> Outcome:
    from whenabouts.cli.flink_engine import run_on_flink

    return run_on_flink(query, inputs, stream=stream)


_ENGINES: dict[str, RunQuery] = {"local": _local, "spark": _spark, "flink": _flink}
