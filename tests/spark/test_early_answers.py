"""Early answers of `coalesce` on Spark: a `foreachBatch` applies them to a table by key, as docs/coalescing.md does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from whenabouts.conformance import multiset
from whenabouts.core.local import coalesce as local_coalesce
from whenabouts.spark_plugin import coalesce

FILES = [
    pa.table(
        {"room": ["a"] * len(t), "t": pa.array([s * 1_000_000 for s in t], pa.timestamp("us", "UTC")), "lamp": lamp}
    )
    for t, lamp in [([1, 2, 5], ["on"] * 3), ([4], ["off"]), ([3, 9], ["off", "on"]), ([8], ["off"])]
]
KEY = ["room", "valid_from"]


def test_a_batch_merges_early_answers_into_a_table(
    stream_of: Callable[[Sequence[pa.Table]], DataFrame], tmp_path: Path
) -> None:
    """At each micro-batch the table has the rows of a stream that ends there. A key changes once in a batch."""
    held: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    tables: list[dict[tuple[Any, ...], tuple[Any, ...]]] = []
    ops: set[str] = set()

    def merge(changes: DataFrame, number: int) -> None:
        ops.update(row.op for row in changes.collect())
        latest = changes.where("op <> 'update_before'").toArrow()
        rows = latest.drop_columns(["op"])
        keys = list(zip(*(multiset.cells(rows.column(name)) for name in KEY), strict=True))
        assert len(keys) == len(set(keys))
        for key, op, row in zip(keys, latest["op"].to_pylist(), multiset.rows(rows).elements(), strict=True):
            if op == "delete":
                del held[key]
            else:
                held[key] = row
        tables.append(dict(held))

    runs = coalesce(stream_of(FILES), time="t", group="room", values="lamp", lateness="10 s", buckets=2, emit="early")
    writer = runs.writeStream.foreachBatch(merge).option("checkpointLocation", (tmp_path / "checkpoint").as_uri())
    writer.trigger(availableNow=True).start().awaitTermination()
    assert ops == {"insert", "update_before", "update_after", "delete"}
    for number in range(1, len(FILES) + 1):
        final = local_coalesce(pa.concat_tables(FILES[:number]), time="t", group="room", values="lamp")
        assert sorted(multiset.rows(final).elements(), key=repr) in [
            sorted(table.values(), key=repr) for table in tables
        ], f"after file {number}"
