"""Explains why a pair of rows is in the result of a timing join or an as-of join, or is not.

The rows pass through the join's own reader, keys, kernel and eviction bound, so the answer agrees with the join.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from textwrap import wrap
from typing import Any

import numpy as np
import pyarrow as pa

from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.durations import format_duration, whole_of
from whenabouts.core.errors import Code
from whenabouts.core.explain.pair_answer import (
    PairAnswer,
    Reason,
    compared,
    late_sentence,
    malformed,
    number,
    other_key,
)
from whenabouts.core.explain.pair_picture import PairPicture
from whenabouts.core.explain.pair_rows import PairRow, Row, read_pair
from whenabouts.core.explain.why_not_asof import why_not_asof
from whenabouts.core.frames.kinds import Frame
from whenabouts.core.hosting.input_checks import check_input
from whenabouts.core.joins.sides import LEFT, RIGHT, SIDES
from whenabouts.core.runtime.option_checks import refused
from whenabouts.core.times.conditions import Condition
from whenabouts.core.times.limits import UNBOUNDED_US
from whenabouts.core.timing_join.operator import TimingJoinOperator
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.timing_join.settings import TimingJoinSettings
from whenabouts.core.timing_join.where import described_where

_ROW = "give a dict of values, or a dataframe of one row"

_FIRST = np.zeros(1, np.int32)  # the position of a side's only row


def why_not(
    left_row: Row,
    right_row: Row,
    *,
    query: TimingJoin | AsofJoin,
    right: Any = None,
    left_watermark_us: int | None = None,
    right_watermark_us: int | None = None,
) -> PairAnswer:
    """Why this left and this right row are a pair in `query`'s result, or are not.

    A row is a dict of column values, or any dataframe with one row. Only its key, time and template columns are used,
    and those of `where`. Types are compared as in the join (an integer key on one side and text on the other is an
    error, not a mismatch). On a stream, give the watermark in microseconds that was in force when each row arrived;
    without them the rows are treated as finite input, where nothing is late or evicted.

    **As-of joins** need `right`, all right rows (any dataframe): rows block each other. `right_row` is then the number
    of one of them, or what one of them has in some columns. The answer names the right rows that are more probable.

    A timing join's answer is about this pair alone. The result of outer, semi and anti joins, and of `best=`, depends
    on other pairs too: ask about those.

    Raises: InputError WA-1062 for a dataframe without exactly one row, and for a row that `right` does not have; the
    query's own errors for such columns (InputError WA-1xxx, QueryError WA-2xxx). Cost: O(1), about a millisecond once
    the kernels are loaded; as-of joins O(right rows).

    >>> import pyarrow as pa
    >>> import whenabouts as wa
    >>> query = wa.TimingJoin(left_time=wa.Interval("a", "b"), right_time=wa.Point("t"), on="k",
    ...                       condition=wa.within("5us", confidence=0.6))
    >>> answer = wa.why_not({"a": 0, "b": 10, "k": 1}, {"t": 11, "k": 1}, query=query)
    >>> bool(answer), str(answer.reason), answer.probability
    (False, 'probability', 0.4)
    >>> print(answer)
    probability 0.4 < 0.6: right minus left lies between 1 us and 11 us, the condition asks for -5 us to 5 us

    >>> quotes = {"t0": [0, 5], "t1": [8, 9], "bid": [100, 101]}
    >>> query = wa.AsofJoin(left_time=wa.Point("t"), right_time=wa.Interval("t0", "t1"), confidence=0.4)
    >>> print(wa.why_not({"t": 7}, {"bid": 101}, query=query, right=pa.table(quotes)))
    less probable: it prevails with 0.4375 (right row 0 with 0.5, none with 0.0625)
    """
    watermarks = left_watermark_us, right_watermark_us
    for name, watermark in zip(SIDES, watermarks, strict=True):
        if watermark is not None and whole_of(watermark) is None:
            raise refused(f"{name}_watermark_us", watermark, "give whole microseconds since 1970, or None")
    if not isinstance(query, TimingJoin | AsofJoin):
        raise refused("query", query, "give a TimingJoin or an AsofJoin")
    check_input("left", left_row, (Mapping, Frame), _ROW)
    if isinstance(query, AsofJoin):
        check_input("right", right_row, (Mapping, Frame, int), f"{_ROW}, or its number in right=")
        if right is None:
            raise refused("right", right, "an as-of join's answer depends on all right rows: give them")
        return why_not_asof(left_row, right_row, right, query, watermarks)
    check_input("right", right_row, (Mapping, Frame), _ROW)
    whole = (LEFT, RIGHT) if query.where is not None else ()  # it may read every column
    operator, sides = read_pair(left_row, right_row, query, watermarks, whole=whole)
    for side in sides:
        if side.fault is not None:
            return malformed(side.name, side.fault)
    answer = _answer(operator, sides, query)
    condition = query.condition
    together = re.sub(r"(?<=\d) (?=[a-z])", "\N{NO-BREAK SPACE}", answer.sentence)  # a number and its unit
    title = "\n".join(wrap(together, 90))
    picture = PairPicture(sides[LEFT].buckets, sides[RIGHT].buckets, condition.lo_us, condition.hi_us, title)
    return replace(answer, picture=picture)


def _answer(operator: TimingJoinOperator, sides: list[PairRow], query: TimingJoin) -> PairAnswer:
    blocks = [side.block for side in sides]
    p = float(operator.matching.probabilities(blocks[LEFT], blocks[RIGHT], _FIRST, _FIRST)[0])
    for side in sides:
        if side.t_max_us < side.watermark_us:
            met = "it would" if _meets(sides, p, query.condition) else "it would not"
            meant = f"{met} have met the condition (probability {number(p)})"
            return PairAnswer(Reason.LATE, late_sentence(side, meant), p, Code.LATE)
    for answer in (
        other_key(operator.keys, operator.query.inputs, blocks, p),
        _evicted(operator, sides, p),
        _excluded(operator, blocks, sides, p),
    ):
        if answer is not None:  # not a truth test: an answer other than a match is false
            return answer
    return _judged(sides, p, query)


def a_timing_join(query: Any) -> None:
    """Raise QueryError WA-2006 unless the query is a `TimingJoin`."""
    if not isinstance(query, TimingJoin):
        raise refused("query", query, "give a TimingJoin")


def _evicted(operator: TimingJoinOperator, sides: list[PairRow], p: float) -> PairAnswer | None:
    """The answer if the row that came first was evicted before the other came, otherwise None.

    The eviction bound is the watermark plus a constant, so the bound at watermark 0 gives the watermark of eviction.
    """
    first = LEFT if sides[LEFT].watermark_us <= sides[RIGHT].watermark_us else RIGHT
    gone, other = sides[first], sides[1 - first]
    if gone.watermark_us == other.watermark_us or gone.t_max_us >= operator.obsolete_before(first, other.watermark_us):
        return None
    at_us = gone.t_max_us + 1 - operator.obsolete_before(first, 0)
    return PairAnswer(
        Reason.EVICTED,
        f"evicted: no {other.name} row from watermark {gone.instant(at_us)} on could match the {gone.name} row, "
        f"and the {other.name} row came later (probability {number(p)})",
        p,
    )


def _judged(sides: list[PairRow], p: float, query: TimingJoinSettings) -> PairAnswer:
    """The answer from the timing condition."""
    left, right = sides
    condition = query.condition
    least, greatest = right.t_min_us - left.t_max_us, right.t_max_us - left.t_min_us
    lies = f"is {format_duration(least)}"
    if least != greatest:
        lies = f"lies between {format_duration(least)} and {format_duration(greatest)}"
    asked = f"right minus left {lies}, the condition asks for {_window(condition.lo_us, condition.hi_us)}"
    if condition.possible and _meets(sides, p, condition):
        return PairAnswer(Reason.MATCH, f"match: possible, with probability {number(p)}: {asked}", p)
    if not condition.possible and _meets(sides, p, condition):
        return PairAnswer(Reason.MATCH, f"match: probability {compared(p, '>=', condition.confidence)}: {asked}", p)
    if p == 0.0 and not _can_hold(sides, condition):
        return PairAnswer(Reason.OUTSIDE_WINDOW, f"outside window: {asked}", p)
    only = "" if p else ", which only single instants satisfy"
    return PairAnswer(Reason.PROBABILITY, f"probability {compared(p, '<', condition.confidence)}: {asked}{only}", p)


def _meets(sides: list[PairRow], p: float, condition: Condition) -> bool:
    """Whether two rows meet the timing condition, with a probability p of it."""
    return _can_hold(sides, condition) if condition.possible else p >= condition.confidence


def _can_hold(sides: list[PairRow], condition: Condition) -> bool:
    """Whether any two possible times meet the condition, be it with probability 0 where only ends touch."""
    left, right = sides
    return any(
        first - end <= condition.hi_us and last - start >= condition.lo_us
        for start, end in left.support
        for first, last in right.support
    )


def _excluded(
    operator: TimingJoinOperator, blocks: list[pa.Table], sides: list[PairRow], p: float
) -> PairAnswer | None:
    """The answer if the rows meet the timing condition but not `where`, otherwise None."""
    where = operator.matching.where
    if where is None or not _judged(sides, p, operator.query):
        return None
    if where.holds(blocks[LEFT], blocks[RIGHT], _FIRST, _FIRST)[0]:
        return None
    asked = described_where(operator.query.where)
    return PairAnswer(Reason.WHERE, f"where: {asked} is not true of these rows (probability {number(p)})", p)


def _window(lo_us: int, hi_us: int) -> str:
    if lo_us <= -UNBOUNDED_US:
        return f"at most {format_duration(hi_us)}"
    if hi_us >= UNBOUNDED_US:
        return f"at least {format_duration(lo_us)}"
    return f"{format_duration(lo_us)} to {format_duration(hi_us)}"
