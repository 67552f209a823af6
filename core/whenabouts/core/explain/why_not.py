"""Why is a pair of rows in the result of a timing join, or not in it?

The rows go the way that they go in the join - the operator's reader, its keys, its kernel, its bound on what a buffer
keeps - so that the answer cannot differ from what the join does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.value_texts import texts
from whenabouts.core.durations import format_duration
from whenabouts.core.errors import REASONS, Code, InputError
from whenabouts.core.hosting.input_checks import check_input
from whenabouts.core.runtime.event_reader import templates_of, times
from whenabouts.core.runtime.key_names import of_input
from whenabouts.core.runtime.keys import NULL_KEY
from whenabouts.core.runtime.option_checks import refused
from whenabouts.core.runtime.protocol import NO_WATERMARK
from whenabouts.core.times.conditions import UNBOUNDED_US, Condition
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.timing_join.modes import LEFT, RIGHT
from whenabouts.core.timing_join.operator import TimingJoinOperator
from whenabouts.core.timing_join.query import TimingJoin

Row: TypeAlias = Mapping[str, Any] | pa.RecordBatch | pa.Table

_FIRST = np.zeros(1, np.int32)  # the position of the one row that a side has


class Reason(StrEnum):
    """What decided about a pair, in the order in which it is asked."""

    MALFORMED = "malformed"
    """A row cannot be used: it is in the rejects."""
    LATE = "late"
    """A row's `t_max` was behind the watermark when it arrived: it is in the rejects."""
    KEY = "key"
    """The keys differ, or one is null."""
    EVICTED = "evicted"
    """One row had been given up before the other came, since no row could match it any more."""
    OUTSIDE_WINDOW = "outside window"
    """Wherever in their uncertainty the two times lie, the condition cannot hold."""
    PROBABILITY = "probability"
    """The condition can hold, with a probability below the confidence: 0 where only single instants satisfy it."""
    MATCH = "match"
    """The pair matches."""


@dataclass(frozen=True, slots=True)
class PairAnswer:
    """The answer to one "why?": true (as `matched`) if and only if the pair matches.

    `probability`: of the timing condition, whatever else stands against the pair; None where a row has no usable time.
    `code`: what the rejects say of the row that was late or malformed, else None. `sentence`: all of it for people.
    """

    reason: Reason
    sentence: str
    probability: float | None = None
    code: Code | None = None

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
    """Why this left and this right row are a pair of `query`'s result, or are not.

    A row is a dict of column values, or an Arrow table or record batch of one row; of its columns the keys, the times
    and the template are looked at. Types are compared as in the join (an integer key on one side and text on the other
    is an error, not a mismatch). On a stream, give the watermark that was in force when each row arrived, in
    microseconds; without them the rows are judged as finite input, where nothing is late or evicted.

    It speaks of the pair alone. Which rows come out in outer, semi and anti joins, or with only the best partner kept,
    depends on other pairs too: ask about those pairs.

    Raises: InputError WA-1062 for a table of other than one row; what the query itself raises for such columns
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
        check_input(name, row, (Mapping, pa.RecordBatch, pa.Table), "give a dict of values, or a table of one row")
    operator, sides = _read(left_row, right_row, query, (left_watermark_us, right_watermark_us))
    for side in sides:
        if side.fault is not None:
            return malformed(side.name, side.fault)
    blocks = [side.block for side in sides]
    p = float(operator.probabilities(blocks[LEFT], blocks[RIGHT], _FIRST, _FIRST)[0])
    for side in sides:
        if side.t_max_us < side.watermark_us:
            return PairAnswer(Reason.LATE, _late_sentence(side, p, query), p, Code.LATE)
    for stands_against in (_other_key(operator, blocks, p), _evicted(operator, sides, p)):
        if stands_against is not None:  # it is false, as every answer but a match is
            return stands_against
    return _judged(sides, p, query)


def a_timing_join(query: Any) -> None:
    """Raise QueryError WA-2006 for another object."""
    if not isinstance(query, TimingJoin):
        raise refused("query", query, "give a TimingJoin")


def malformed(side: str, code: Code) -> PairAnswer:
    """The answer for a row of the input `side` that was rejected under `code` before it could be timed.

    >>> print(malformed("left", Code.NULL_TIME))
    malformed: the left row is rejected with WA-1003, a time is null
    """
    return PairAnswer(
        Reason.MALFORMED, f"malformed: the {side} row is rejected with {code}, {REASONS[code]}", code=code
    )


class _Side(NamedTuple):
    """One row as the join sees it, and the watermark in force when it came (`NO_WATERMARK` on finite input)."""

    name: str
    block: pa.Table
    fault: Code | None
    watermark_us: int
    shows_dates: bool
    time: TimeSpec

    @property
    def t_min_us(self) -> int:
        """The earliest that it can have happened."""
        return int(times(self.block)[0][0])

    @property
    def t_max_us(self) -> int:
        """The latest that it can have happened."""
        return int(times(self.block)[1][0])

    @property
    def stretches(self) -> list[tuple[int, int]]:
        """Where it can have happened: of a template, the buckets that are not empty."""
        number = templates_of(self.block)
        if number is None:
            return [(self.t_min_us, self.t_max_us)]
        buckets = self.time.templates[number[0]][1].exact
        return [(self.t_max_us + lo, self.t_max_us + hi) for lo, hi, p in buckets if p]

    def instant(self, us: int) -> str:
        """An instant in the form of the row's own times: ISO 8601, or microseconds."""
        if not self.shows_dates:
            return f"{us} us"
        try:
            return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)).isoformat()
        except OverflowError:  # outside the calendar: a watermark may be
            return f"{us} us"


def _read(
    left_row: Row, right_row: Row, query: TimingJoin, watermarks: tuple[int | None, int | None]
) -> tuple[TimingJoinOperator, list[_Side]]:
    """The operator of these rows' columns, and the rows as its readers read them."""
    specs = (query.left_time, query.right_time)
    rows = [
        _one_row(
            row, (*of_input(query.key_columns, place), *spec.columns, *filter(None, (spec.template_column,))), name
        )
        for place, (row, spec, name) in enumerate(zip((left_row, right_row), specs, query.inputs, strict=True))
    ]
    rows = [_typed_nulls(rows[place], rows[1 - place], query, place) for place in (LEFT, RIGHT)]
    streaming = any(watermark is not None for watermark in watermarks)
    operator = query.operator([row.schema for row in rows], streaming=streaming)
    sides = []
    for reader, row, watermark, spec in zip(operator.readers, rows, watermarks, specs, strict=True):
        block, rejected = reader.read(row)
        sides.append(
            _Side(
                reader.name,
                pa.Table.from_batches([block]),
                rejected[0].code if rejected else None,
                NO_WATERMARK if watermark is None else watermark,
                pa.types.is_timestamp(row.schema.field(spec.columns[-1]).type),
                spec,
            )
        )
    return operator, sides


def _one_row(row: Row, needed: tuple[str, ...], side: str) -> pa.RecordBatch:
    """The needed columns of a row; one that is not there is the operator's to miss."""
    names = list(dict.fromkeys(needed))
    if isinstance(row, Mapping):
        return pa.RecordBatch.from_pydict({name: _one_value(row[name], name, side) for name in names if name in row})
    if row.num_rows != 1:
        problem = f"the {side} row must be a table of one row, it has {row.num_rows}"
        raise InputError(Code.NOT_AN_INPUT, problem, "take one: table.slice(n, 1)")
    table = pa.Table.from_batches([row]) if isinstance(row, pa.RecordBatch) else row
    kept = table.select([name for name in names if name in table.schema.names]).combine_chunks()
    return kept.to_batches()[0] if kept.num_columns else pa.RecordBatch.from_pydict({})


def _one_value(value: object, name: str, side: str) -> pa.Array:
    try:
        return pa.array([value])
    except (pa.ArrowException, OverflowError) as error:
        raise InputError(
            Code.WRONG_TYPE,
            f"column {name!r} of the {side} row is {value!r}, which Arrow has no type for",
            "give times as datetime or whole microseconds, keys as numbers or text",
        ) from error


def _typed_nulls(row: pa.RecordBatch, other: pa.RecordBatch, query: TimingJoin, side: int) -> pa.RecordBatch:
    """A None in a dict has no type: as a key it takes the other row's, as a template it is text."""
    partner = dict(zip(of_input(query.key_columns, side), of_input(query.key_columns, 1 - side), strict=True))
    template = {query.left_time.template_column, query.right_time.template_column} - {None}
    for place, field in enumerate(row.schema):
        if not pa.types.is_null(field.type):
            continue
        if partner.get(field.name) in other.schema.names:
            row = row.set_column(place, field.name, pa.nulls(1, other.schema.field(partner[field.name]).type))
        elif field.name in template:
            row = row.set_column(place, field.name, pa.nulls(1, pa.string()))
    return row


def _late_sentence(side: _Side, p: float, query: TimingJoin) -> str:
    behind = format_duration(side.watermark_us - side.t_max_us)
    meant = "it would" if p >= query.condition.confidence else "it would not"
    return (
        f"late: the {side.name} row's t_max {side.instant(side.t_max_us)} was {behind} behind the watermark when it "
        f"came ({Code.LATE}); in time {meant} have met the condition (probability {_number(p)})"
    )


def _other_key(operator: TimingJoinOperator, blocks: list[pa.Table], p: float) -> PairAnswer | None:
    """The answer where the rows' keys keep them apart."""
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


def _evicted(operator: TimingJoinOperator, sides: list[_Side], p: float) -> PairAnswer | None:
    """The answer where the row that came first was given up under a watermark that the other one came after.

    The bound moves with the watermark, so the watermark at which a row goes follows from the bound at 0.
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


def _judged(sides: list[_Side], p: float, query: TimingJoin) -> PairAnswer:
    """The answer of the condition itself."""
    left, right = sides
    condition = query.condition
    least, greatest = right.t_min_us - left.t_max_us, right.t_max_us - left.t_min_us
    lies = f"is {format_duration(least)}"
    if least != greatest:
        lies = f"lies between {format_duration(least)} and {format_duration(greatest)}"
    asked = f"right minus left {lies}, the condition asks for {_window(condition.lo_us, condition.hi_us)}"
    if p >= condition.confidence:
        return PairAnswer(Reason.MATCH, f"match: probability {_compared(p, '>=', condition.confidence)}: {asked}", p)
    if p == 0.0 and not _can_hold(left, right, condition):
        return PairAnswer(Reason.OUTSIDE_WINDOW, f"outside window: {asked}", p)
    only = "" if p else ", which only single instants satisfy"
    return PairAnswer(Reason.PROBABILITY, f"probability {_compared(p, '<', condition.confidence)}: {asked}{only}", p)


def _can_hold(left: _Side, right: _Side, condition: Condition) -> bool:
    """Whether any two possible times meet the condition: ends that touch do, though with probability 0."""
    return any(
        first - end <= condition.hi_us and last - start >= condition.lo_us
        for start, end in left.stretches
        for first, last in right.stretches
    )


def _window(lo_us: int, hi_us: int) -> str:
    if lo_us <= -UNBOUNDED_US:
        return f"at most {format_duration(hi_us)}"
    if hi_us >= UNBOUNDED_US:
        return f"at least {format_duration(lo_us)}"
    return f"{format_duration(lo_us)} to {format_duration(hi_us)}"


def _compared(p: float, sign: str, confidence: float) -> str:
    """Two numbers with as many digits as their comparison needs."""
    short = f"{p:.6g}", f"{confidence:.6g}"
    told = short if (p == confidence) == (short[0] == short[1]) else (repr(p), repr(confidence))
    return f"{told[0]} {sign} {told[1]}"


def _number(p: float) -> str:
    """A probability to six digits; one that is not certain never reads 0 or 1."""
    short = f"{p:.6g}"
    return repr(p) if short == "1" and p < 1.0 else short
