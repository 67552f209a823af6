"""A run of the streams on Flink: `python flink_program.py FOLDER [SAVEPOINT]`.

Without a savepoint it is the first run: it reads slowly, and stops with a savepoint in FOLDER/checkpoints after some
rows. With a savepoint it is the next run, to the end of the input. Rows go to FOLDER/rows/QUERY/LIFE; rows of
timing joins have their event time as a last value.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyflink.common import Row, Types, WatermarkStrategy
from pyflink.datastream import DataStream
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.java_gateway import get_gateway

from checkpoints import queries
from whenabouts.flink_plugin import coalesce, local_environment, timing_join, window_join

EVENT = Types.ROW_NAMED(
    ["t_min", "t_max", "kind", "k", "level", "id"],
    [Types.LONG(), Types.LONG(), Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG()],
)
SLOWLY_S = 0.1
"""Seconds per event in the first run."""


class Event:
    """The event of a number. In the first run it is slow."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._events = [Row(*row.values()) for row in queries.all_events_in_microseconds().to_pylist()]

    def __call__(self, number: int) -> Row:
        time.sleep(self._seconds)
        return self._events[number]


def microseconds(instant: object) -> int:
    """Since 1970. In thread mode an instant is Java's."""
    return (datetime.fromisoformat(str(instant)) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


class Append:
    """Writes rows to a file as lines of JSON; between two savepoints each row is seen once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, row: Row) -> int:
        with self._path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(list(row), default=microseconds) + "\n")
        return 0


def results(events: DataStream) -> Iterator[tuple[str, DataStream]]:
    """The queries' results by name."""
    for name, options in queries.TIMING_JOINS.items():
        yield name, timing_join(events, events, **options, lateness=queries.TWO_STREAMS, buckets=2, name=name)
    streams = dict.fromkeys("abc", events)
    yield "window", window_join(streams, **queries.WINDOW_JOIN, lateness=queries.ONE_STREAM, buckets=2, name="window")
    yield "coalesce", coalesce(events, **queries.COALESCE, lateness=queries.ONE_STREAM, buckets=2, name="coalesce")


def main(folder: Path, savepoint: str | None = None) -> None:
    """Run all queries in one job."""
    recovery = {} if savepoint is None else {"execution__state_recovery__path": savepoint}
    env = local_environment(1, mode="thread", **recovery)
    numbers = env.from_source(
        NumberSequenceSource(0, queries.LIVES * queries.ROWS - 1), WatermarkStrategy.no_watermarks(), "numbers"
    )
    event = Event(SLOWLY_S if savepoint is None else 0.0)
    events = numbers.uid("numbers").map(event, EVENT).uid("events")
    final = folder / "rows" / "best" / "0.jsonl"
    for name, result in results(events):
        path = folder / "rows" / name / ("0.jsonl" if savepoint is None else "1.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        result.map(Append(path), Types.INT()).uid(f"{name}-lines").print().uid(f"{name}-end")
    job = env.execute_async("a life")
    if savepoint is None:
        while not final.exists() and not job.get_job_execution_result().done():
            time.sleep(0.1)
        form = get_gateway().jvm.org.apache.flink.core.execution.SavepointFormatType.CANONICAL
        # PyFlink's own stop_with_savepoint calls a method that Flink 2 does not have.
        job._j_job_client.stopWithSavepoint(False, (folder / "checkpoints").as_uri(), form).get()
    else:
        job.get_job_execution_result().result()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
