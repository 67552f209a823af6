"""What a user calls: DataFrames in, a DataFrame out, batch or streaming as the inputs are.

The operations are those of `whenabouts.core.operations`, on `ENGINE`; the package offers them. `dataflow` builds a
query into Spark's plan.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Unpack

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from whenabouts.core.errors import Code, QueryError
from whenabouts.core.hosting.engine import Engine
from whenabouts.core.hosting.host import OUTPUT, REJECTED, require_lateness
from whenabouts.core.hosting.host_options import HostOptions, HostSettings
from whenabouts.core.hosting.input_checks import check_input
from whenabouts.core.hosting.signatures import takes_options_of
from whenabouts.core.operations import Operations
from whenabouts.core.runtime.protocol import Query
from whenabouts.spark_plugin.checkpoints import check_start, path_text
from whenabouts.spark_plugin.dataflow import tagged
from whenabouts.spark_plugin.parts import scattered
from whenabouts.spark_plugin.pipelines import refused_in_pipelines
from whenabouts.spark_plugin.results import Result, empty, result_of, results_in
from whenabouts.spark_plugin.sinks import warning_writer
from whenabouts.spark_plugin.workers import code_of_worker_first

A_DATAFRAME = "give a DataFrame of Spark: spark.createDataFrame(frame), spark.read..., spark.readStream..."
A_RESULT = "give the DataFrame that a function of this package returned"


def _output(
    query: Query, inputs: Sequence[DataFrame], settings: HostSettings, *, end_of_input: DataFrame | None = None
) -> DataFrame:
    """The output rows. Streams must say how late their rows may come; a mix of streams and batches is refused later."""
    buckets, limit = settings.buckets, settings.state_limit
    with refused_in_pipelines():
        if all(df.isStreaming for df in inputs):
            require_lateness(query)
        return tagged(query, inputs, buckets=buckets, end_of_input=end_of_input, state_limit=limit).output


def _rejects(result: DataFrame) -> DataFrame:
    check_input("result", result, (DataFrame,), A_RESULT)
    return result_of(result).rejects


ENGINE = Engine(
    name="Spark",
    home=__name__,
    frames=(DataFrame,),
    hint=A_DATAFRAME,
    run=_output,
    rejects=_rejects,
    lacks={
        "batches": "the result is not in this process: call its toLocalIterator(), or write it",
        "max_latency": "a row waits for its micro-batch: set the writer's trigger",
        "name": "name the query where it is written: write_stream(...).queryName(...)",
        "threads": "a task works with one core: set buckets and the executors' cores",
        "watermarks": "Spark has one watermark for all inputs of a query, which follows from lateness: leave it out",
    },
    scattered=scattered,
)

OPERATIONS = Operations(ENGINE)


@takes_options_of(HostSettings)
def run(
    query: Query,
    inputs: Sequence[DataFrame],
    *,
    end_of_input: DataFrame | None = None,
    **options: Unpack[HostOptions],
) -> DataFrame:
    """The output of any query over one DataFrame for each of its inputs.

    `end_of_input`: a stream whose first row means that all inputs have ended: results that still waited for the
    watermark come out (see `end_of_input.run_to_end`). An input with a boolean column `_wa_end_of_input` tells its own
    end by a flush row, in which that is true. The other options are those of the host, see
    `whenabouts.core.hosting.host_options.HostSettings`. Errors as `timing_join`, and QueryError WA-2006 for a wrong
    number of inputs or buckets.
    """
    engine = replace(ENGINE, run=partial(_output, end_of_input=end_of_input))
    return Operations(engine).run(query, inputs, **options)


def metrics(result: DataFrame) -> DataFrame:
    """Counts by `name` (rows_in = rows_processed + rows_rejected, and those of the operator), one row for each step."""
    check_input("result", result, (DataFrame,), A_RESULT)
    return result_of(result).counts


def write_with_rejects(
    result: DataFrame,
    write_rows: Callable[[DataFrame, int], None],
    write_rejects: Callable[[DataFrame, int], None],
    write_counts: Callable[[DataFrame, int], None] | None = None,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
) -> DataStreamWriter:
    """A writer of a stream's rows and rejects from one run: set trigger (and checkpoint) on it and call `start()`.

    The functions get a batch DataFrame and the batch's number, as in `foreachBatch`; after a failure a batch comes
    again with the same number. They may leave all its rows or some unread: the batch is computed before they are
    called, and kept while they run. `checkpoint` is checked as by `write_stream`, whose errors are raised. Raises
    QueryError WA-2006 if `result` is not a stream (in batch, write both), or for what is no function.
    """
    check_input("result", result, (DataFrame,), A_RESULT)
    if not result.isStreaming:
        raise QueryError(Code.BAD_OPTION, "write_with_rejects was given a batch", "write result and rejects(result)")
    _check_functions(write_rows=write_rows, write_rejects=write_rejects)
    if write_counts is not None:
        _check_functions(write_counts=write_counts)
    source = result_of(result)
    hosting = source.hosting  # over Spark Connect the function travels to the server, where no DataFrame may go

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        try:
            with code_of_worker_first():
                here = Result(batch, hosting)
                # The state of a part is written while its rows are computed. A part whose rows nobody asked for would
                # have none, and Spark, which misses it, could not go on. So all are computed here.
                tags = here.present_tags()
                write_rows(here.output if OUTPUT in tags else empty(here.output), number)
                write_rejects(here.rejects if REJECTED in tags else empty(here.rejects), number)
                if write_counts is not None:
                    write_counts(here.counts, number)
        finally:
            batch.unpersist()

    if checkpoint is None:
        return source.tagged.writeStream.foreachBatch(write)
    path = path_text(checkpoint)
    check_start([source], path)
    return source.tagged.writeStream.foreachBatch(write).option("checkpointLocation", path)


def _check_functions(**given: object) -> None:
    for name, function in given.items():
        if not callable(function):
            raise QueryError(
                Code.BAD_OPTION,
                f"{name} is {function!r}, which is no function",
                "give a function of a batch DataFrame and the batch's number, as for foreachBatch; one that is not "
                "wanted does nothing: lambda batch, number: None",
            )


def write_stream(
    rows: DataFrame, checkpoint: str | os.PathLike[str], *, of: DataFrame | None = None, output_mode: str = "append"
) -> DataStreamWriter:
    """`rows.writeStream` with its checkpoint set, once it is sure that the query can start from there.

    `rows`: what a function of this package returned, or a DataFrame made from it. `of`: the former, where the plan of
    `rows` does not show it (a view over Spark Connect, a checkpoint()). Set sink and trigger on the writer and call
    `start()`.

    Raises: QueryError WA-2053 for another output mode than append, WA-2006 if `rows` is not a stream or not ours, or
    `checkpoint` no path; EngineError WA-3032 where another query wrote the checkpoint, with all that differs, WA-3003
    for other buckets or a layout of another version, WA-3005 where it cannot be read. Rows that the state lacks for a
    wider query are found in its first step (WA-3006).

    Warns (`AtLeastOnceWarning`, WA-2054) at `start()` if the sink gets the rows of a repeated micro-batch again:
    `kafka`, `foreach`, `console`. A function for `foreachBatch` must not write a number again that it has written, but
    must read the whole batch in each call (`batch.count()`): the query's state is written by that, and Spark 4.1 ends a
    query that lacks it. Functions of `write_with_rejects` need not.

    Cost: one small Spark job over the checkpoint, which reads a row for each bucket.
    """
    check_input("rows", rows, (DataFrame,), A_RESULT)
    if str(output_mode).lower() != "append":
        raise QueryError(
            Code.OUTPUT_MODE,
            f"output mode {output_mode!r}: rows come out once, when they are final, and never change",
            'use "append"; to have a table of the latest rows, merge them into it in foreachBatch',
        )
    if not rows.isStreaming:
        raise QueryError(Code.BAD_OPTION, "write_stream was given a batch", "use rows.write")
    path = path_text(checkpoint)
    check_start(results_in(rows) or [result_of(rows)] if of is None else [result_of(of)], path)
    return warning_writer(rows.writeStream.outputMode("append").option("checkpointLocation", path))
