"""The state that a stream over these files would hold, in an as-of join."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from whenabouts.cli.expected_pairs import keyed_times
from whenabouts.cli.inputs import Input
from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.costs.choices import Workload
from whenabouts.core.durations import format_duration, parse_duration


def state_lines(query: AsofJoin, inputs: tuple[Input, ...]) -> list[str]:
    """How long rows are kept, and how many are held on average at the rates and keys of the files.

    A file is a step. No numbers if a side has no rows, or if all of them have one time. O(rows).
    """
    from whenabouts.planner.byte_sizes import format_bytes
    from whenabouts.planner.state_forecast import expected_state, row_bytes

    load = _measured(query, inputs)
    if load is None:
        return query.kept
    schemas = [source.schema for source in inputs]
    load = replace(load, row_bytes=row_bytes(query, schemas))
    found = expected_state(query, load)
    rates = ", ".join(f"{name} {rate:,.4g} rows/s" for name, rate in load.rates.items())
    held = ", ".join(f"{name} {each.rows:,.0f} rows {format_bytes(each.bytes)}" for name, each in found.items())
    of_keys = query.held(1, load).rows
    return [
        *query.kept,
        f"at {rates}, keys {load.keys:,.0f}, in steps of {format_duration(parse_duration(load.every))}: state {held}",
        f"of its right rows {of_keys:,.0f} are kept for their keys, {of_keys / load.keys:.3g} for each",
    ]


def _measured(query: AsofJoin, inputs: tuple[Input, ...]) -> Workload | None:
    """The rates of both sides, the keys of the right one, and the event time of a file."""
    sides = keyed_times(inputs, (query.left_time, query.right_time), query.key_columns)
    if not all(len(side.t_max) for side in sides):
        return None
    span_us = max(int(side.t_max.max()) for side in sides) - min(int(side.t_max.min()) for side in sides)
    if not span_us:
        return None
    rates = {name: len(side.t_max) / (span_us / 1e6) for name, side in zip(query.inputs, sides, strict=True)}
    step_us = span_us // max(len(source.tables) for source in inputs)
    return Workload(rates, len(np.unique(sides[1].code)), step_us, source="measured")
