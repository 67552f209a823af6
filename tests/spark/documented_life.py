"""One run of a streaming program of the documentation: `python documented_life.py FOLDER PAGE AFTER SCHEMAS`.

The program is the one that follows the words AFTER on docs/PAGE. SCHEMAS are the columns of its streams by name, as
JSON: it takes in what files there are in FOLDER/<name> and ends; started again, it continues from the checkpoint in
FOLDER. Only the paths and the trigger differ from the page.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from whenabouts.spark_plugin import local_session

DOCS = Path(__file__).parents[2] / "docs"


def documented(page: str, after: str) -> str:
    """The program of a page."""
    _, found, rest = (DOCS / page).read_text(encoding="utf-8").partition(after)
    assert found, f"{page} has no longer {after!r}"
    return rest.partition("```python\n")[2].partition("```")[0]


def main(folder: str, page: str, after: str, schemas: str) -> None:
    spark = local_session("a life of a documented stream")
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    names: dict[str, Any] = {}
    for side, columns in json.loads(schemas).items():
        rows = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1)
        names[side] = rows.parquet(f"{folder}/{side}")
    program = documented(page, after).replace("/data", folder).replace(".start(", ".trigger(availableNow=True).start(")
    exec(program, names)
    (running,) = spark.streams.active
    running.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
