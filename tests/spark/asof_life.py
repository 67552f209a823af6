"""One run of the streaming program of docs/asof-join.md: `python asof_life.py FOLDER`.

It takes in what files there are in FOLDER/trades and FOLDER/quotes and ends; started again, it continues from the
checkpoint in FOLDER. Only the paths and the trigger differ from the page.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from whenabouts.spark_plugin import local_session

PAGE = Path(__file__).parents[2] / "docs" / "asof-join.md"


def documented() -> str:
    """The page's program."""
    return (
        PAGE.read_text(encoding="utf-8")
        .partition("A program on Spark:")[2]
        .partition("```python\n")[2]
        .partition("```")[0]
    )


def main(folder: str) -> None:
    spark = local_session("a life of an as-of join")
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    names: dict[str, Any] = {}
    for side, column in (("trades", "id"), ("quotes", "bid")):
        rows = spark.readStream.schema(f"symbol string, ts timestamp, {column} bigint")
        names[side] = rows.option("maxFilesPerTrigger", 1).parquet(f"{folder}/{side}")
    program = documented().replace("/data", folder).replace(".start(", ".trigger(availableNow=True).start(")
    exec(program, names)
    (running,) = spark.streams.active
    running.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
