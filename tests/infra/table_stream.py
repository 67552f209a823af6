"""A stream from tables into a table, as docs/spark.md has it: `python table_stream.py FOLDER CODE JAR ...`.

CODE is a file with the page's program, in which FOLDER has taken the place of `/data`. Started again, it continues
from its checkpoint. A query that fails is started again in the same Spark, and its failure recorded in FOLDER/failures.
At the end FOLDER/result.parquet has the rows of the table. A worker can be trapped (`infra.traps`) where it writes.

`python table_stream.py FOLDER "" JAR ...` makes the tables from FOLDER/tables/NAME/NUMBER.parquet, a commit each.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import whenabouts as wa
from infra.traps import passing
from whenabouts.spark_plugin import local_session, write_stream

ICEBERG = "org.apache.iceberg.spark"


def session(folder: str, jars: tuple[str, ...]) -> SparkSession:
    """Spark with both kinds of tables; those of Iceberg are in the catalog `lake`."""
    return local_session(
        "from tables into a table",
        spark__jars=",".join(jars),
        spark__sql__extensions=f"io.delta.sql.DeltaSparkSessionExtension,{ICEBERG}.extensions.IcebergSparkSessionExtensions",
        spark__sql__catalog__spark_catalog="org.apache.spark.sql.delta.catalog.DeltaCatalog",
        spark__sql__catalog__lake=f"{ICEBERG}.SparkCatalog",
        spark__sql__catalog__lake__type="hadoop",
        spark__sql__catalog__lake__warehouse=f"{folder}/lake",
        spark__databricks__delta__snapshotPartitions=1,  # instead of 50 tasks for each look at a small table
    )


def make_tables(spark: SparkSession, folder: str) -> None:
    """The tables that the program reads: those of Iceberg have a dot in their names, those of Delta are folders."""
    for place in sorted(Path(folder, "tables").iterdir()):
        files = sorted(place.iterdir(), key=lambda path: int(path.stem))
        for number, file in enumerate(files):
            rows = spark.read.parquet(str(file)).coalesce(1)
            if "." not in place.name:
                rows.write.format("delta").mode("append").save(f"{folder}/{place.name}")
                continue
            if not number:
                spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {place.name.rpartition('.')[0]}")
                columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in rows.schema)
                spark.sql(f"CREATE TABLE {place.name} ({columns}) USING iceberg")
            rows.writeTo(place.name).append()


def runs_to_its_end(spark: SparkSession, folder: str, code: str) -> bool:
    """Run the page's program until it has read what there is; False if it failed before."""

    def trapped(rows: DataFrame, checkpoint: str) -> DataStreamWriter:
        return write_stream(rows.mapInArrow(passing(folder), rows.schema), checkpoint, of=rows)

    exec(code, {"spark": spark, "wa": wa, "write_stream": trapped})
    (query,) = spark.streams.active
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        with Path(folder, "failures").open("a") as file:
            file.write(repr(str(error)) + "\n")
        return False
    return True


def main(folder: str, program: str, *jars: str) -> None:
    spark = session(folder, jars)
    if not program:
        make_tables(spark, folder)
    else:
        code = Path(program).read_text(encoding="utf-8")
        while not runs_to_its_end(spark, folder, code):
            pass
        sink = re.search(r'(toTable|start)\("(.*?)"\)', code)
        assert sink is not None
        rows = spark.table(sink[2]) if sink[1] == "toTable" else spark.read.format("delta").load(sink[2])
        pq.write_table(rows.toArrow(), f"{folder}/result.parquet")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
