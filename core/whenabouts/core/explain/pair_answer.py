"""The answer to a question about a pair of rows, and the reasons that all joins share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa

from whenabouts.core.arrays.value_texts import texts
from whenabouts.core.durations import format_duration
from whenabouts.core.errors import REASONS, Code, QueryError
from whenabouts.core.explain.pair_picture import PairPicture
from whenabouts.core.explain.pair_rows import PairRow
from whenabouts.core.html_tables import html_table
from whenabouts.core.runtime.keys import NULL_KEY, Keys


class Reason(StrEnum):
    """What decides about a pair, in the order in which it is checked.

    `EVICTED` and `WHERE` are of timing joins alone; `EXACT_MATCH`, `OUTSIDE_TOLERANCE`, `CANNOT_PREVAIL` and
    `LESS_PROBABLE` of as-of joins alone.
    """

    MALFORMED = "malformed"
    """A row is invalid: it is in the rejects."""
    LATE = "late"
    """A row's `t_max` was behind the watermark when it arrived: it is in the rejects."""
    KEY = "key"
    """The keys differ, or one is null."""
    EVICTED = "evicted"
    """One row was evicted before the other came, since no future row could match it."""
    OUTSIDE_WINDOW = "outside window"
    """No possible values of the two times meet the condition; as-of: the right row is on the wrong side."""
    EXACT_MATCH = "exact match"
    """Both times are the same instant, and the as-of join has `allow_exact_matches=False`."""
    OUTSIDE_TOLERANCE = "outside tolerance"
    """The right row is farther from the left one than the as-of join's `tolerance`, for certain."""
    CANNOT_PREVAIL = "cannot prevail"
    """The right row would be an answer of the as-of join, but another one surely prevails over it."""
    PROBABILITY = "probability"
    """The condition can hold, but with a probability below the confidence (0 if only single instants meet it)."""
    LESS_PROBABLE = "less probable"
    """The right row prevails with the confidence, but another one is more probable, and only the best comes out."""
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
            raise QueryError(
                Code.NOT_AVAILABLE,
                f"there is nothing to draw: {self.sentence}",
                "pictures show two valid rows of a timing join",
            )
        return self.picture.figure()

    @property
    def matched(self) -> bool:
        """Whether the pair matches."""
        return self.reason is Reason.MATCH

    def __bool__(self) -> bool:
        return self.matched

    def __str__(self) -> str:
        return self.sentence


def malformed(side: str, code: Code) -> PairAnswer:
    """The answer for a row of the input `side` that was rejected with `code` while reading.

    >>> print(malformed("left", Code.NULL_TIME))
    malformed: the left row is rejected with WA-1003, a time is null
    """
    return PairAnswer(
        Reason.MALFORMED, f"malformed: the {side} row is rejected with {code}, {REASONS[code]}", code=code
    )


def late_sentence(side: PairRow, meant: str) -> str:
    """Why a row was late; `meant`: what it would have meant in time."""
    behind = format_duration(side.watermark_us - side.t_max_us)
    return (
        f"late: the {side.name} row's t_max {side.instant(side.t_max_us)} was {behind} behind the watermark when it "
        f"came ({Code.LATE}); in time {meant}"
    )


def other_key(keys: Keys, inputs: Sequence[str], blocks: list[pa.Table], p: float) -> PairAnswer | None:
    """The answer if the rows' keys differ or one is null, otherwise None."""
    if not keys.names:
        return None
    left, right = (int(code[0]) for code in keys.codes(blocks))
    if left == right and left != NULL_KEY:
        return None
    of_sides = [(keys.of(side), block) for side, block in enumerate(blocks)]
    values = [{name: _shown(block.column(name).chunk(0)) for name in names} for names, block in of_sides]
    for side, of_side in zip(inputs, values, strict=True):
        for name, value in of_side.items():
            if value is None:
                return PairAnswer(Reason.KEY, f"key: {name!r} of the {side} row is null, which equals nothing", p)
    of_left, of_right = (", ".join(f"{name}={value}" for name, value in side.items()) for side in values)
    return PairAnswer(Reason.KEY, f"key: left has {of_left}, right has {of_right}", p)


def _shown(key: pa.Array) -> str | None:
    (text,) = texts(key)
    return repr(text) if text is not None and pa.types.is_string(key.type) else text


def compared(p: float, sign: str, confidence: float) -> str:
    """A comparison of two numbers, with as many digits as it needs to be true."""
    short = f"{p:.6g}", f"{confidence:.6g}"
    left, right = short if (p == confidence) == (short[0] == short[1]) else (repr(p), repr(confidence))
    return f"{left} {sign} {right}"


def number(p: float) -> str:
    """A probability with six digits; an uncertain one is never shown as 1."""
    short = f"{p:.6g}"
    return repr(p) if short == "1" and p < 1.0 else short
