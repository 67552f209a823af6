"""What files tell about the streams of a plan: columns, times and rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from whenabouts.cli.named_options import time_found, times_by_name
from whenabouts.cli.options import check_uncertainty

if TYPE_CHECKING:
    import pyarrow as pa

    from whenabouts.core.times.time_specs import TimeSpec
    from whenabouts.planner import Stream


def streams_of(paths: Mapping[str, str], arguments: dict[str, Any]) -> dict[str, Stream]:
    """Streams by name, from their paths and the options for times. All files are read once."""
    from whenabouts.core.sources.files import find_files, read_file, with_times_found
    from whenabouts.core.times.time_specs import Interval
    from whenabouts.planner import Stream

    times = times_by_name(list(paths), arguments)
    found = {}
    for name, path in paths.items():
        tables = [with_times_found(read_file(file)) for file in find_files(path)[0]]
        schema = tables[0].schema
        time = times.get(name) or time_found(name, schema, arguments)
        rate, longest_us = _measured(name, tables, schema, time)
        if isinstance(time, Interval) and time.max_uncertainty_us is None:
            time = replace(time, max_uncertainty=longest_us)
        found[name] = Stream(schema=schema, time=time, rate=rate, source="measured")
    check_uncertainty((each.time for each in found.values() if each.time is not None), arguments)
    return found


def _measured(name: str, tables: list[pa.Table], schema: pa.Schema, time: TimeSpec) -> tuple[float | None, int]:
    """Rows per second of event time (None if all are at one instant), and the greatest length of an interval."""
    import pyarrow as pa

    from whenabouts.core.runtime.blocks import times
    from whenabouts.core.runtime.event_reader import EventReader
    from whenabouts.core.times.limits import ALWAYS_US, NEVER_US

    EventReader(0, name, schema, time)  # reports what is wrong with the columns
    needed = list(dict.fromkeys([*time.columns, *filter(None, [time.template_column])]))
    reader = EventReader(0, name, pa.schema([schema.field(column) for column in needed]), time)
    rows, first, last, longest = 0, ALWAYS_US, NEVER_US, 0
    for table in tables:
        for batch in table.select(needed).to_batches():
            t_min, t_max = times(reader.read(batch).block)
            if len(t_max):
                rows += len(t_max)
                first, last = min(first, int(t_max.min())), max(last, int(t_max.max()))
                longest = max(longest, int((t_max - t_min).max()))
    return (rows / (last - first) * 1e6 if last > first else None), longest
