"""What a user calls: streams of blocks or rows in, such a stream out, with the job's own runtime mode.

The operations are those of `whenabouts.core.operations`, on `ENGINE`; the package offers them. `dataflow` builds a
query into a job. What comes back has the form of the first input: a Table, a DataStream of named rows, or `Blocks`, the
fastest form. In a Table the event time is the time attribute, under the operator's watermark. Whether a job is a stream
or a batch, `execution.runtime-mode` says; AUTOMATIC is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyflink.datastream import DataStream
from pyflink.table import Table

from whenabouts.core.hosting.engine import Engine
from whenabouts.core.hosting.host import require_lateness
from whenabouts.core.hosting.host_options import LATENESS, HostSettings
from whenabouts.core.hosting.results_kept import ResultsKept
from whenabouts.core.operations import Operations
from whenabouts.core.runtime.protocol import Query
from whenabouts.flink_plugin.blocks import Blocks
from whenabouts.flink_plugin.dataflow import Form, Result, hosted
from whenabouts.flink_plugin.job_names import require_free
from whenabouts.flink_plugin.parts import scattered
from whenabouts.flink_plugin.row_streams import as_given, environment_of, stream_of
from whenabouts.flink_plugin.runtime_mode import is_streaming

_results: ResultsKept[Result] = ResultsKept()


def _output(query: Query, inputs: Sequence[Form], settings: HostSettings) -> Form:
    """The output, in the form of the first input.

    Watermarks of the sources imply how late rows may come; idle inputs are recognised by `lateness`.
    """
    env, name = environment_of(inputs[0]), settings.name or "whenabouts"
    if is_streaming(inputs) and (settings.watermarks == LATENESS or query.idle_after_us is not None):
        require_lateness(query)
    require_free(env, name, [stream_of(source) for source in inputs if not isinstance(source, Table)])
    result = hosted(
        query,
        inputs,
        buckets=settings.buckets,
        watermarks=settings.watermarks,
        name=name,
        max_latency=settings.max_latency,
        state_limit=settings.state_limit,
    )
    output = as_given(result.output, inputs[0])
    _results.keep(output, result)
    return output


def _rejects(result: Form) -> Form:
    return as_given(result_of(result).rejects, result)


ENGINE = Engine(
    name="Flink",
    home=__name__,
    frames=(Blocks, Table, DataStream),
    hint="give a Table (tables.from_path(name)), a DataStream of named rows, or Blocks (read_files)",
    run=_output,
    rejects=_rejects,
    lacks={
        "batches": "the result is not in this process: write it to a sink",
        "threads": "a task works with one core: set buckets and the parallelism",
    },
    scattered=scattered,
)

OPERATIONS = Operations(ENGINE)
run = OPERATIONS.run


def metrics(result: Form) -> DataStream:
    """Counts by name as JSON (rows_in = rows_processed + rows_rejected, and those of the operator), one per step."""
    return result_of(result).counts


def result_of(result: Any) -> Result:
    """What is known of a stream that an operation or `run` returned. Raises QueryError WA-2006 for another."""
    return _results.of(result)
