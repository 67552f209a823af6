"""A picture of a stretch of time: the events of both inputs of a timing join, and the pairs among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.errors import Code, InputError
from whenabouts.core.explain.pair_picture import (
    LEFT_COLOUR,
    MATCH_COLOUR,
    RIGHT_COLOUR,
    new_figure,
    unit_of,
)
from whenabouts.core.explain.why_not import a_timing_join
from whenabouts.core.frames.kinds import GivenFrames
from whenabouts.core.joins.output_columns import PROBABILITY, output_names
from whenabouts.core.joins.sides import LEFT, RIGHT
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.key_names import of_input
from whenabouts.core.runtime.option_checks import whole_number
from whenabouts.core.runtime.protocol import Reader
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.timing_join.settings import TimingJoinSettings

Spans = tuple[IntArray, IntArray]
"""The least and greatest instants of events, in microseconds."""


def timeline(left: Any, right: Any, pairs: Any, *, query: TimingJoin, start: int = 0, events: int = 60) -> Any:
    """A `matplotlib.figure.Figure` of a stretch of two inputs: a bar for each event, a line for each pair.

    `left`, `right`: dataframes; `pairs`: what `timing_join` gave for them with the options of `query`, their time
    columns among its own. The stretch has so many `events` of both inputs together, beginning with number `start` in
    order of time. A bar reaches from `t_min` to `t_max`; the stronger a line, the greater the probability. Rows without
    a usable time or a partner's time are left out.

    Raises: the errors of the query for such columns; InputError WA-1001 for pairs without times, WA-1002 for pairs of
    other inputs; QueryError WA-2007 where matplotlib is not installed. Cost:
    O(n log n) for finding the stretch, and drawing it.

    >>> import whenabouts as wa
    >>> doors, lamps = pa.table({"t": [0, 90]}), pa.table({"a": [5, 200], "b": [15, 300]})
    >>> query = wa.TimingJoin(left_time=wa.Point("t"), right_time=wa.Interval("a", "b"),
    ...                       condition=wa.within("20us", confidence=0.9))
    >>> figure = wa.timeline(doors, lamps, wa.run(query, [doors, lamps]), query=query)
    >>> figure.axes[0].get_title()
    '4 events, 1 pair'
    """
    a_timing_join(query)
    start, events = whole_number("start", start, 0), whole_number("events", events)
    tables = GivenFrames({"left": left, "right": right, "pairs": pairs}).tables
    operator = query.operator([table.schema for table in tables[:2]], streaming=False)
    sides = [_spans(reader, table) for reader, table in zip(operator.readers, tables[:2], strict=True)]
    of_pairs = _pair_spans(operator.readers, tables, operator.query)
    first, last = _stretch(sides, start, events)
    return _figure([_within(side, first, last) for side in sides], of_pairs, first, last)


def _spans(reader: Reader, table: pa.Table) -> Spans:
    blocks = [reader.read(batch).block for batch in table.to_batches()]
    return times(pa.Table.from_batches(blocks, reader.block_schema).combine_chunks())


def _pair_spans(
    readers: tuple[Reader, ...], tables: list[pa.Table], query: TimingJoinSettings
) -> tuple[Spans, Spans, FloatArray]:
    """The times of the left and the right row of each pair, and its probability."""
    left, right, pairs = tables
    of_left, of_right = (of_input(query.key_columns, input) for input in (LEFT, RIGHT))
    names = output_names(left.column_names, right.column_names, of_left, query.suffixes)
    keys = dict(zip(of_right, of_left, strict=True))
    shown = [names[LEFT], names[RIGHT] | {name: key for name, key in keys.items() if name in right.column_names}]
    specs = (query.left_time, query.right_time)
    for side, spec in zip(shown, specs, strict=True):
        for column in (*spec.columns, *filter(None, (spec.template_column,))):
            pairs = pairs.filter(pc.is_valid(_of_pairs(pairs, side[column])))
    try:
        rows = [
            pa.Table.from_arrays(
                [_or_nulls(pairs, side[field.name], field.type) for field in table.schema], schema=table.schema
            )
            for side, table in zip(shown, (left, right), strict=True)
        ]
        chances = pc.cast(_or_nulls(pairs, PROBABILITY, pa.float64()), pa.float64()).fill_null(1.0).to_numpy()
    except (pa.ArrowException, ValueError) as error:
        raise InputError(Code.WRONG_TYPE, f"the pairs do not have the types of the inputs: {error}", _GIVE) from error
    spans = [_spans(reader, table) for reader, table in zip(readers, rows, strict=True)]
    if any(len(ends) != pairs.num_rows for ends, _ in spans):
        raise InputError(Code.WRONG_TYPE, "the pairs have times that the query rejects", _GIVE)
    return spans[LEFT], spans[RIGHT], chances


_GIVE = "give what timing_join gave for these inputs with the query's options"


def _of_pairs(pairs: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in pairs.column_names:
        problem = f"the pairs have no column {name!r}, which is a time: they have {', '.join(pairs.column_names)}"
        raise InputError(Code.MISSING_COLUMN, problem, _GIVE)
    return pairs.column(name)


def _or_nulls(pairs: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """A column, or NULL where it is not needed: the result may be without."""
    return pairs.column(name) if name in pairs.column_names else pa.nulls(pairs.num_rows, kind)


def _stretch(sides: list[Spans], start: int, events: int) -> tuple[int, int]:
    """The first and the last instant of the events with these numbers, in order of their latest instants."""
    least, greatest = (np.concatenate([side[end] for side in sides]) for end in (0, 1))
    chosen = np.argsort(greatest, kind="stable")[start : start + events]
    return (int(least[chosen].min()), int(greatest[chosen].max())) if len(chosen) else (1, 0)


def _within(side: Spans, first: int, last: int) -> Spans:
    least, greatest = side
    inside = (greatest >= first) & (greatest <= last)
    order = np.argsort(least[inside], kind="stable")
    return least[inside][order], greatest[inside][order]


def _lanes(spans: Spans) -> IntArray:
    """A lane for each bar, so that none covers another one; the bars are in order of their beginnings.

    >>> _lanes((np.array([0, 5, 12]), np.array([10, 8, 20]))).tolist()
    [0, 1, 0]
    """
    free: list[int] = []  # by lane, where its last bar ends
    found = []
    for least, greatest in zip(*(end.tolist() for end in spans), strict=True):
        lane = next((lane for lane, end in enumerate(free) if end < least), len(free))
        free[lane : lane + 1] = [greatest]
        found.append(lane)
    return np.array(found, np.int64)


def _figure(sides: list[Spans], pairs: tuple[Spans, Spans, FloatArray], first: int, last: int) -> Any:
    figure = new_figure((9, 3.2))
    axes = figure.subplots()
    unit, per_unit = unit_of(last - first)
    width = max(last - first, 1) / 300  # of the bar of a point
    places: list[dict[tuple[int, int], float]] = []
    looks = ((LEFT_COLOUR, 1, "left"), (RIGHT_COLOUR, -1, "right"))
    for side, (colour, direction, label) in zip(sides, looks, strict=True):
        at = direction * (1.5 + 0.8 * _lanes(side)) if len(side[0]) else np.empty(0)
        shown = [np.maximum(side[1] - side[0], width) / per_unit, (side[0] - first) / per_unit]
        axes.barh(at, shown[0], left=shown[1], height=0.55, color=colour, alpha=0.75)
        axes.bar(0, 0, 0, color=colour, alpha=0.75, label=label)  # for the legend, of a side without events too
        places.append(dict(zip(zip(*(end.tolist() for end in side), strict=True), at.tolist(), strict=True)))
    drawn = 0
    for of_left, of_right, p in zip(zip(*pairs[0], strict=True), zip(*pairs[1], strict=True), pairs[2], strict=True):
        if of_left in places[LEFT] and of_right in places[RIGHT]:
            drawn += 1
            middles = [(sum(span) / 2 - first) / per_unit for span in (of_left, of_right)]
            heights = [places[LEFT][of_left] - 0.28, places[RIGHT][of_right] + 0.28]
            axes.plot(middles, heights, color=MATCH_COLOUR, alpha=0.25 + 0.75 * float(p), lw=1 + 1.5 * float(p))
    number = sum(len(side[0]) for side in sides)
    axes.use_sticky_edges = False  # a bar at an end is not drawn on the frame
    axes.margins(x=0.02)
    axes.set(xlabel=f"{unit} after the first instant", yticks=[])
    axes.set_title(f"{number} event{'s' * (number != 1)}, {drawn} pair{'s' * (drawn != 1)}", fontsize="medium")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0, ncols=2, frameon=False)
    return figure
