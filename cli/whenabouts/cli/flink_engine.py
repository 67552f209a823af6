"""Runs a command's query on a local Flink; imported only when Flink is chosen.

The plugin's harness does the work: a job over one file after another of every input, as a stream with a checkpoint
after each, or in batch. Blocks travel as Arrow bytes, so that every column keeps its type.
"""

from __future__ import annotations

from collections.abc import Sequence

from whenabouts.cli.tables import Input
from whenabouts.core.harness import Variant
from whenabouts.core.local import Outcome
from whenabouts.core.runtime.protocol import Query
from whenabouts.flink_plugin import check_environment


def run_on_flink(query: Query, inputs: Sequence[Input], *, stream: bool) -> Outcome:
    """Run a query over the inputs' tables, one file each, and collect all that it gave.

    Raises: EngineError WA-3001 or WA-3002 where Flink cannot run here; what Flink raises passes through.
    """
    check_environment()
    from whenabouts.flink_plugin.api import BUCKETS
    from whenabouts.flink_plugin.harness import FlinkHarness

    run = FlinkHarness().open(query, Variant(streaming=stream, parallelism=BUCKETS))
    for source in inputs:
        run.source(source.name, source.tables)
    return run.collect()
