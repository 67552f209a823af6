"""What files say of the streams that queries are planned over: their columns, their times, how many rows a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from whenabouts.cli.options import time_spec

if TYPE_CHECKING:
    import pyarrow as pa

    from whenabouts.core.times.time_specs import TimeSpec
    from whenabouts.planner import Stream


def streams_of(paths: Mapping[str, str], arguments: dict[str, Any]) -> dict[str, Stream]:
    """Streams by name, from their paths and the options of times; all files are read once."""
    from whenabouts.core.sources.files import find_files, read_file, with_times_found
    from whenabouts.core.times.time_specs import Interval
    from whenabouts.planner import Stream
    from whenabouts.planner.text_queries import time_of

    found = {}
    for name, path in paths.items():
        tables = [with_times_found(read_file(file)) for file in find_files(path)[0]]
        schema = tables[0].schema
        time = _time(name, arguments) or time_of(name, schema)
        rate, longest_us = _measured(name, tables, schema, time)
        if isinstance(time, Interval) and time.max_uncertainty_us is None:
            time = replace(time, max_uncertainty=longest_us)
        found[name] = Stream(schema=schema, time=time, rate=rate, source="measured")
    return found


def _time(name: str, arguments: dict[str, Any]) -> TimeSpec | None:
    """The time that `--time` says: of this stream, else of all."""
    spec: TimeSpec | None = None
    for given in arguments["times"]:
        of, equals, rest = given.partition("=")
        if equals and of != name:
            continue
        read = time_spec(
            rest if equals else given, "--time", arguments["max_uncertainty"], arguments["min_uncertainty"]
        )
        spec = read if equals or spec is None else spec
    return spec


def _measured(name: str, tables: list[pa.Table], schema: pa.Schema, time: TimeSpec) -> tuple[float | None, int]:
    """Rows per second of event time (None: they span none), and the greatest length of an interval."""
    import pyarrow as pa

    from whenabouts.core.runtime.event_reader import EventReader, times

    EventReader(0, name, schema, time)  # says what is wrong with the columns
    needed = list(dict.fromkeys([*time.columns, *filter(None, [time.template_column])]))
    reader = EventReader(0, name, pa.schema([schema.field(column) for column in needed]), time)
    rows, first, last, longest = 0, 2**63 - 1, -(2**63), 0
    for table in tables:
        for batch in table.select(needed).to_batches():
            t_min, t_max = times(reader.read(batch).block)
            if len(t_max):
                rows += len(t_max)
                first, last = min(first, int(t_max.min())), max(last, int(t_max.max()))
                longest = max(longest, int((t_max - t_min).max()))
    return (rows / (last - first) * 1e6 if last > first else None), longest
