"""Runs a command's query on a local Spark; imported only when Spark is chosen.

The plugin's harness does the work: it stages the inputs as Parquet files in our order, reads them in batch or as a
stream with a checkpoint, one file of every input a micro-batch, and tells the stream when they are used up.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from whenabouts.cli.tables import Input
from whenabouts.core.events import rejects_schema
from whenabouts.core.harness import Variant
from whenabouts.core.local import Outcome
from whenabouts.core.protocol import Query
from whenabouts.spark_plugin import check_environment

BUCKETS = 32
"""Into how many parts keys are split, on any machine: more than cores, so that they share the work evenly."""


def run_on_spark(query: Query, inputs: Sequence[Input], *, stream: bool) -> Outcome:
    """Run a query over the inputs' tables, one file each, and collect all that it gave.

    Raises: EngineError WA-3001 or WA-3002 where Spark cannot run here; what Spark raises passes through.
    """
    check_environment()
    from whenabouts.spark_plugin.harness import SparkHarness

    operator = query.operator([source.schema for source in inputs], streaming=stream)
    run = SparkHarness().open(query, Variant(streaming=stream, parallelism=BUCKETS))
    for source in inputs:
        run.source(source.name, [for_spark(table) for table in source.tables])
    outcome = run.collect()
    return Outcome(
        as_local(outcome.output, operator.output_schema),
        as_local(outcome.rejects, rejects_schema([reader.schema for reader in operator.readers])),
        outcome.metrics,
    )


def as_local(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The types that the local engine gives, undoing `for_spark`.

    >>> as_local(pa.table({"b": pa.array([None], pa.string())}), pa.schema({"b": pa.null()})).schema.types
    [DataType(null)]
    """
    columns = [
        pa.chunked_array([pa.nulls(table.num_rows)]) if pa.types.is_null(field.type) else column.cast(field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def for_spark(table: pa.Table) -> pa.Table:
    """Columns whose types Spark does not read from Parquet, in the nearest type that it does.

    >>> for_spark(pa.table({"a": pa.array(["x"]).dictionary_encode(), "b": pa.nulls(1)})).schema.types
    [DataType(string), DataType(string)]
    """
    from whenabouts.spark_plugin.arrow_types import in_spark_types

    return table.cast(in_spark_types(table.schema), safe=False)
