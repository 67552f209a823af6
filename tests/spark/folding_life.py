"""One run of a stream that folds payments into orders: `python folding_life.py FOLDER AGGREGATES`.

The program takes in what files there are in FOLDER/orders and FOLDER/payments, adds its rows to FOLDER/answers and
ends; started again, it continues from FOLDER/checkpoint. AGGREGATES are JSON.
"""

from __future__ import annotations

import json
import sys

import whenabouts as wa
from whenabouts.spark_plugin import local_session, write_stream

COLUMNS = {
    "orders": "account bigint, t timestamp, id bigint",
    "payments": "account bigint, t0 timestamp, t1 timestamp, amount bigint",
}
CALL = {
    "on": "account", "left_time": wa.Point("t"), "right_time": wa.Interval("t0", "t1", max_uncertainty="2 s"),
    "condition": wa.between("0 s", "5 minutes", confidence=0.9), "folding": "always",
}  # fmt: skip


def main(folder: str, aggregates: str) -> None:
    spark = local_session("a life of a folding stream")
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    rows = spark.readStream.option("maxFilesPerTrigger", 1)
    orders, payments = (rows.schema(columns).parquet(f"{folder}/{side}") for side, columns in COLUMNS.items())
    found = wa.join_aggregate(
        orders, payments, **CALL, aggregates=json.loads(aggregates), lateness="10 s", buckets=2
    )  # fmt: skip
    writer = write_stream(found, f"{folder}/checkpoint").format("parquet").option("path", f"{folder}/answers")
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
