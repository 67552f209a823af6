"""The demo's query, and its runs on engines."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.cli.engines import engine_of, run_on
from whenabouts.cli.inputs import Input
from whenabouts.core.errors import Code, EngineError

if TYPE_CHECKING:
    from whenabouts.cli.progress import ProgressDisplay
    from whenabouts.core.times.conditions import Condition
    from whenabouts.core.timing_join.query import TimingJoin

LATENESS = "1 day"
"""Files contain the flights scheduled in a quarter; the most delayed one left 22 hours late."""

WINDOW = "60 minutes"
CONFIDENCE = 0.8


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of one run: its pairs in a fixed order, the number of rejected rows, and seconds."""

    title: str
    pairs: pa.Table
    rejected: int
    seconds: float


def the_query(condition: Condition | None = None) -> TimingJoin:
    """Departures within 60 minutes of a report at the same airport, with probability at least 0.8; or `condition`."""
    from whenabouts.core import Interval, Lateness, within
    from whenabouts.core.timing_join.query import TimingJoin

    return TimingJoin(
        left_time=Interval("t_min", "t_max", max_uncertainty="1 minute"),
        right_time=Interval("t_min", "t_max", max_uncertainty="1 hour"),
        condition=condition or within(WINDOW, confidence=CONFIDENCE),
        on="origin",
        lateness=Lateness(left=LATENESS, right=LATENESS),
        suffixes=("", "_report"),
    )


def read_inputs(rows: int | None) -> tuple[Input, Input]:
    """The demo's two inputs, one table per quarterly file."""
    from whenabouts.cli.demo_tables import read_streams

    streams = read_streams(rows)
    flights, weather = (
        Input(name, tuple(tables), tables[0].slice(0, 0))
        for name, tables in (("left", streams.flights), ("right", streams.weather))
    )
    return flights, weather


@contextmanager
def starting(engine: str, rows: int) -> Iterator[None]:
    """Let an engine start its processes for a run over so many rows, while the block does something else.

    If it cannot start, the run will say why. The end waits for it: Python must not end within an import of the other
    thread, which may crash it.
    """
    start = engine_of(engine).start

    def begin() -> None:
        with suppress(Exception):
            if start is not None:
                start(rows)

    thread = threading.Thread(target=begin, name=f"start of {engine}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def run_demo(
    query: TimingJoin, inputs: Sequence[Input], engine: str, *, stream: bool, title: str, shown: ProgressDisplay
) -> RunResult:
    """One run of the query. Raises EngineError WA-3xxx if it fails."""
    shown.stage(title, sum(source.rows_in for source in inputs))
    started = perf_counter()
    found = run_on(engine, query, inputs, stream=stream, progress=shown)
    pairs = found.table()
    rejected = sum(batch.num_rows for batch in found.rejects)
    return RunResult(title, in_order(pairs), rejected, perf_counter() - started)


def in_order(pairs: pa.Table) -> pa.Table:
    """Sorted pairs, without the column that only streams have, so that runs can be compared row by row."""
    if "event_time" in pairs.schema.names:
        pairs = pairs.drop_columns("event_time")
    order = [(name, "ascending") for name in ("flight_id", "t_min_report", "gust_knots", "visibility")]
    return pairs.take(pc.sort_indices(pairs, order)).combine_chunks()


def require_equal(results: Sequence[RunResult]) -> None:
    """Raise EngineError WA-3005 unless all runs gave identical rows."""
    first = results[0]
    for other in results[1:]:
        if not other.pairs.equals(first.pairs) or other.rejected != first.rejected:
            raise EngineError(
                Code.ENGINE_FAILED,
                f"{first.title} and {other.title} gave different rows "
                f"({first.pairs.num_rows:,} and {other.pairs.num_rows:,} pairs)",
                "please report this",
            )
