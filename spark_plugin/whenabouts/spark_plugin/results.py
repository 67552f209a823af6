"""A query's tagged rows and what is read of them, and how they are found again in the plan of any DataFrame."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.functions import bool_or, col, explode, from_json

from whenabouts.core.errors import Code, QueryError
from whenabouts.core.hosting.column_case import told_apart
from whenabouts.core.hosting.host import COUNTS, OUTPUT, REJECTED, Hosting
from whenabouts.core.hosting.micro_batch_watermark import delay_ms
from whenabouts.spark_plugin.batch_host import BatchHost
from whenabouts.spark_plugin.plans import aliased
from whenabouts.spark_plugin.sessions import ignores_case
from whenabouts.spark_plugin.tagged_rows import BLOB, TAG, TAGGED, Unpacker
from whenabouts.spark_plugin.workers import Stage

WATERMARK_KEY = "spark.watermarkDelayMs"
"""How Spark marks an event time column in a plan. The clock itself runs in the plan's nodes, so that a column that went
through Python needs only its mark back. (`eventTimeColumnName` would do it for a stateful operator's own rows, but
refuses times before 1970.)"""

_MARK = "whenabouts_"
_hostings: dict[str, Hosting] = {}
"""By the alias of their rows in plans, see `marked`. Equal queries have one alias, so that a program that makes the
same query again and again (in `foreachBatch`) does not grow."""


@dataclass(frozen=True)
class Result:
    """A query's rows in Spark, and how to read them: tagged rows or, if `packed`, what `BatchHost` makes them of."""

    rows: DataFrame
    hosting: Hosting
    packed: bool = False

    @cached_property
    def tagged(self) -> DataFrame:
        """The tagged rows. Of packed rows they are declared only here: most batches are asked for their output alone,
        and each stage that is declared costs some milliseconds."""
        if not self.packed:
            return self.rows
        return self.rows.mapInArrow(Stage(self.hosting.query.described, BatchHost(self.hosting).run), TAGGED)

    def present_tags(self) -> set[int]:
        """The tags that rows have; a Spark job over all of them."""
        tags = OUTPUT, REJECTED, COUNTS
        found = self.tagged.agg(*(bool_or(col(TAG) == tag) for tag in tags)).collect()[0]
        return {tag for tag, is_there in zip(tags, found, strict=True) if is_there}

    @property
    def output(self) -> DataFrame:
        """The output rows; an event time column carries the watermark on."""
        operator = self.hosting.operator()
        if self.packed:
            host = BatchHost(self.hosting)
            rows = self.rows.mapInArrow(Stage(self.hosting.query.described, host.output), host.output_schema)
        else:
            # The few rejects and counts go to Python, too, and are left out there. A filter costs more: a projection
            # whose code is generated in every micro-batch.
            rows = self._rows(self.tagged, OUTPUT, "rows", operator.output_schema)
        if operator.event_time is None:
            return rows
        delay = max(map(delay_ms, self.hosting.query.lateness_us))
        return rows.withMetadata(operator.event_time, {WATERMARK_KEY: delay})

    @property
    def rejects(self) -> DataFrame:
        """The rejected rows."""
        schema = self.hosting.rejects_schema
        rows = self._rows(self.tagged.where(col(TAG) == REJECTED), REJECTED, "rejects", schema)
        return rows.toDF(*told_apart(schema.names)) if ignores_case(self.rows.sparkSession) else rows

    def _rows(self, tagged: DataFrame, tag: int, what: str, schema: pa.Schema) -> DataFrame:
        unpacker = Unpacker(tag, schema)
        stage = Stage(f"{what} of {self.hosting.query.described}", unpacker.unpack)
        return tagged.mapInArrow(stage, unpacker.spark_schema)

    @property
    def counts(self) -> DataFrame:
        """The counts of `whenabouts.core.metrics`: `name`, `value`, one row per step and name, to be summed."""
        parsed = from_json(col(BLOB).cast("string"), "map<string, bigint>")
        return self.tagged.where(col(TAG) == COUNTS).select(explode(parsed).alias("name", "value"))


def empty(rows: DataFrame) -> DataFrame:
    """None of the rows. Spark plans no work for it."""
    return rows.where("false")


def marked(rows: DataFrame, hosting: Hosting) -> Result:
    """A result that `results_in` finds in plans. `rows`: a stream's tagged rows, or packed rows for `BatchHost`."""
    mark = _MARK + sha256(cloudpickle.dumps(hosting)).hexdigest()[:16]  # type: ignore[no-untyped-call]
    _hostings[mark] = hosting
    return _result(rows.alias(mark), hosting)


def _result(rows: DataFrame, hosting: Hosting) -> Result:
    return Result(rows, hosting, packed=not hosting.streaming)


def results_in(df: DataFrame) -> list[Result]:
    """The queries of this process that a DataFrame is derived from, without those that these are derived from."""
    found = [(_hostings.get(mark), rows) for mark, rows in aliased(df, _MARK)]
    return [_result(rows, hosting) for hosting, rows in found if hosting is not None]


def result_of(df: DataFrame) -> Result:
    """The one query that a DataFrame comes from. Raises QueryError WA-2006 where there is none, or more than one."""
    results = results_in(df)
    if len(results) == 1:
        return results[0]
    if results:
        queries = "; ".join(result.hosting.query.described for result in results)
        raise QueryError(
            Code.BAD_OPTION,
            f"this DataFrame comes from {len(results)} queries: {queries}",
            "give what a function of the package returned",
        )
    raise QueryError(
        Code.BAD_OPTION,
        "this DataFrame did not come from whenabouts, or its plan does not show it",
        "give what a function of the package returned, to write_stream as of=; a plan is cut by checkpoint(), and over "
        "Spark Connect hidden by a view",
    )
