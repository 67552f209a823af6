"""Explains why a pair of rows is in the result of a timing join, or is not.

The rows pass through the join's own reader, keys, kernel and eviction bound, so the answer agrees with the join.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from textwrap import wrap
from typing import Any

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.value_texts import texts
from whenabouts.core.durations import format_duration
from whenabouts.core.errors import REASONS, Code, QueryError
from whenabouts.core.explain.pair_picture import PairPicture
from whenabouts.core.explain.pair_rows import PairRow, Row, read_pair
from whenabouts.core.frames.kinds import Frame
from whenabouts.core.hosting.input_checks import check_input
from whenabouts.core.html_tables import html_table
from whenabouts.core.runtime.keys import NULL_KEY
from whenabouts.core.runtime.option_checks import refused
from whenabouts.core.times.conditions import Condition
from whenabouts.core.times.limits import UNBOUNDED_US
from whenabouts.core.timing_join.modes import LEFT, RIGHT
from whenabouts.core.timing_join.operator import TimingJoinOperator
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.timing_join.settings import TimingJoinSettings
from whenabouts.core.timing_join.where import described_where

_FIRST = np.zeros(1, np.int32)  # the position of a side's only row


class Reason(StrEnum):
    """What decides about a pair, in the order in which it is checked."""

    MALFORMED = "malformed"
    """A row is invalid: it is in the rejects."""
    LATE = "late"
    """A row's `t_max` was behind the watermark when it arrived: it is in the rejects."""
    KEY = "key"
    """The keys differ, or one is null."""
    EVICTED = "evicted"
    """One row was evicted before the other came, since no future row could match it."""
    OUTSIDE_WINDOW = "outside window"
    """No possible values of the two times meet the condition."""
    PROBABILITY = "probability"
    """The condition can hold, but with a probability below the confidence (0 if only single instants meet it)."""
    WHERE = "where"
    """The timing condition holds, but the query's `where` is not true."""
    MATCH = "match"
    """The pair matches."""


@dataclass(frozen=True, slots=True)
class PairAnswer:
    """Why a pair matches or not; true, like `matched`, if and only if the pair matches.

    `probability`: of the timing condition, even if something else excludes the pair; None if a row has no usable time.
    `code`: the reject code of a late or malformed row, otherwise None. `sentence`: the answer in words.
    """

    reason: Reason
    sentence: str
    probability: float | None = None
    code: Code | None = None
    picture: PairPicture | None = field(default=None, compare=False, repr=False)

    def _repr_html_(self) -> str:
        probability = "" if self.probability is None else f"{self.probability:.6g}"
        rows = [("reason", self.reason), ("probability", probability), ("code", self.code or "")]
        return html_table("A pair" if self.matched else "No pair", ["", ""], rows, self.sentence)

    def plot(self) -> Any:
        """A `matplotlib.figure.Figure`: both densities, and that of right minus left with the probability shaded.

        Raises QueryError WA-2007 where matplotlib is not installed, and for a row without a usable time.

        >>> import whenabouts as wa
        >>> query = wa.TimingJoin(left_time=wa.Point("t"), right_time=wa.Interval("a", "b"),
        ...                       condition=wa.within("5us", confidence=0.6))
        >>> figure = wa.why_not({"t": 0}, {"a": 1, "b": 11}, query=query).plot()
        >>> len(figure.axes)
        2
        """
        if self.picture is None:
            raise QueryError(Code.NOT_AVAILABLE, f"there is nothing to draw: {self.sentence}", "give two valid rows")
        return self.picture.figure()

    @property
    def matched(self) -> bool:
        """Whether the pair matches."""
        return self.reason is Reason.MATCH

    def __bool__(self) -> bool:
        return self.matched

    def __str__(self) -> str:
        return self.sentence


def why_not(
    left_row: Row,
    right_row: Row,
    *,
    query: TimingJoin,
    left_watermark_us: int | None = None,
    right_watermark_us: int | None = None,
) -> PairAnswer:
    """Why this left and this right row are a pair in `query`'s result, or are not.

    A row is a dict of column values, or any dataframe with one row. Only its key, time and template columns are used,
    and those of `where`. Types are compared as in the join (an integer key on one side and text on the other is an
    error, not a mismatch). On a stream, give the watermark in microseconds that was in force when each row arrived;
    without them the rows are treated as finite input, where nothing is late or evicted.

    The answer is about this pair alone. The result of outer, semi and anti joins, and of `best=`, depends on other
    pairs too: ask about those.

    Raises: InputError WA-1062 for a dataframe without exactly one row; the query's own errors for such columns
    (InputError WA-1xxx, QueryError WA-2xxx). Cost: O(1), about a millisecond once the kernels are loaded.

    >>> import whenabouts as wa
    >>> query = wa.TimingJoin(left_time=wa.Interval("a", "b"), right_time=wa.Point("t"), on="k",
    ...                       condition=wa.within("5us", confidence=0.6))
    >>> answer = wa.why_not({"a": 0, "b": 10, "k": 1}, {"t": 11, "k": 1}, query=query)
    >>> bool(answer), str(answer.reason), answer.probability
    (False, 'probability', 0.4)
    >>> print(answer)
    probability 0.4 < 0.6: right minus left lies between 1 us and 11 us, the condition asks for -5 us to 5 us
    """
    a_timing_join(query)
    for name, row in zip(query.inputs, (left_row, right_row), strict=True):
        check_input(name, row, (Mapping, Frame), "give a dict of values, or a dataframe of one row")
    operator, sides = read_pair(left_row, right_row, query, (left_watermark_us, right_watermark_us))
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
            return PairAnswer(Reason.LATE, _late_sentence(side, p, _meets(sides, p, query.condition)), p, Code.LATE)
    for answer in (
        _other_key(operator, blocks, p),
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


def malformed(side: str, code: Code) -> PairAnswer:
    """The answer for a row of the input `side` that was rejected with `code` while reading.

    >>> print(malformed("left", Code.NULL_TIME))
    malformed: the left row is rejected with WA-1003, a time is null
    """
    return PairAnswer(
        Reason.MALFORMED, f"malformed: the {side} row is rejected with {code}, {REASONS[code]}", code=code
    )


def _late_sentence(side: PairRow, p: float, meets: bool) -> str:
    behind = format_duration(side.watermark_us - side.t_max_us)
    meant = "it would" if meets else "it would not"
    return (
        f"late: the {side.name} row's t_max {side.instant(side.t_max_us)} was {behind} behind the watermark when it "
        f"came ({Code.LATE}); in time {meant} have met the condition (probability {_number(p)})"
    )


def _other_key(operator: TimingJoinOperator, blocks: list[pa.Table], p: float) -> PairAnswer | None:
    """The answer if the rows' keys differ or one is null, otherwise None."""
    if not operator.keys.names:
        return None
    left, right = (int(code[0]) for code in operator.keys.codes(blocks))
    if left == right and left != NULL_KEY:
        return None
    of_sides = [(operator.keys.of(side), block) for side, block in enumerate(blocks)]
    values = [{name: _shown(block.column(name).chunk(0)) for name in names} for names, block in of_sides]
    for side, of_side in zip(operator.query.inputs, values, strict=True):
        for name, value in of_side.items():
            if value is None:
                return PairAnswer(Reason.KEY, f"key: {name!r} of the {side} row is null, which equals nothing", p)
    of_left, of_right = (", ".join(f"{name}={value}" for name, value in side.items()) for side in values)
    return PairAnswer(Reason.KEY, f"key: left has {of_left}, right has {of_right}", p)


def _shown(key: pa.Array) -> str | None:
    (text,) = texts(key)
    return repr(text) if text is not None and pa.types.is_string(key.type) else text


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
        f"and the {other.name} row came later (probability {_number(p)})",
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
        return PairAnswer(Reason.MATCH, f"match: possible, with probability {_number(p)}: {asked}", p)
    if not condition.possible and _meets(sides, p, condition):
        return PairAnswer(Reason.MATCH, f"match: probability {_compared(p, '>=', condition.confidence)}: {asked}", p)
    if p == 0.0 and not _can_hold(sides, condition):
        return PairAnswer(Reason.OUTSIDE_WINDOW, f"outside window: {asked}", p)
    only = "" if p else ", which only single instants satisfy"
    return PairAnswer(Reason.PROBABILITY, f"probability {_compared(p, '<', condition.confidence)}: {asked}{only}", p)


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
    return PairAnswer(Reason.WHERE, f"where: {asked} is not true of these rows (probability {_number(p)})", p)


def _window(lo_us: int, hi_us: int) -> str:
    if lo_us <= -UNBOUNDED_US:
        return f"at most {format_duration(hi_us)}"
    if hi_us >= UNBOUNDED_US:
        return f"at least {format_duration(lo_us)}"
    return f"{format_duration(lo_us)} to {format_duration(hi_us)}"


def _compared(p: float, sign: str, confidence: float) -> str:
    """A comparison of two numbers, with as many digits as it needs to be true."""
    short = f"{p:.6g}", f"{confidence:.6g}"
    left, right = short if (p == confidence) == (short[0] == short[1]) else (repr(p), repr(confidence))
    return f"{left} {sign} {right}"


def _number(p: float) -> str:
    """A probability with six digits; an uncertain one is never shown as 1."""
    short = f"{p:.6g}"
    return repr(p) if short == "1" and p < 1.0 else short
