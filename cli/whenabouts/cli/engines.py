"""The engines that a command can run on; each is imported when it is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from whenabouts.cli.failures import guarded
from whenabouts.cli.progress import ProgressDisplay

if TYPE_CHECKING:
    import pyarrow as pa

    from whenabouts.cli.inputs import Input
    from whenabouts.core.hosting.file_runs import FileEngine, OutcomeBatches
    from whenabouts.core.runtime.protocol import Query


def engine_of(name: str) -> FileEngine:
    """An engine by its name. Raises: EngineError WA-3001 or WA-3002 where it cannot run here."""
    return _ENGINES[name]()


def reads_parquet(name: str) -> Callable[[pa.Schema], bool] | None:
    """Which Parquet files an engine reads itself, by their schema; None for an engine that takes tables from memory.

    The engine is imported when the first file is asked about, so that questions about other files need none.
    """

    def reads(schema: pa.Schema) -> bool:
        asked = engine_of(name).reads_parquet
        return asked is not None and asked(schema)

    return reads if name in _READ_FILES else None


def run_on(
    name: str, query: Query, inputs: Sequence[Input], *, stream: bool, progress: ProgressDisplay
) -> OutcomeBatches:
    """Run a query on an engine.

    Raises: EngineError WA-3xxx for whatever the engine raises without a code.
    """
    files = [source.files for source in inputs]
    doing = f"the run on engine {name}"
    found: OutcomeBatches = guarded(
        lambda: engine_of(name).run_files(query, files, streaming=stream, progress=progress.advanced), doing=doing
    )
    computed = found.batches  # the local engine computes them as they are taken
    found.batches = iter(lambda: guarded(lambda: next(computed, None), doing=doing), None)
    return found


def _local() -> FileEngine:
    from whenabouts.core.local import FILE_ENGINE

    return FILE_ENGINE


def _spark() -> FileEngine:
    from whenabouts.spark_plugin import check_environment

    check_environment()
    from whenabouts.spark_plugin.file_runs import FILE_ENGINE

    return FILE_ENGINE


def _flink() -> FileEngine:
    from whenabouts.flink_plugin import check_environment

    check_environment()
    from whenabouts.flink_plugin.file_runs import FILE_ENGINE

    return FILE_ENGINE


_ENGINES: dict[str, Callable[[], FileEngine]] = {"local": _local, "spark": _spark, "flink": _flink}
_READ_FILES = {"spark"}
