"""Timing conditions: `P(lo <= X2 - X1 <= hi) >= confidence`, written as `within`, `deadline`, `delay` or `between`.

X1 and X2 are the independent occurrence times of a left and a right event (ITC section 3; PTJoin section 2.2). The
papers assume d >= pi; here any `lo <= hi` is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from whenabouts.core.durations import Duration, format_bounds, parse_duration, parse_non_negative
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.times.limits import UNBOUNDED_US


@dataclass(frozen=True, slots=True)
class Condition:
    """`P(lo_us <= X2 - X1 <= hi_us) >= confidence`, bounds inclusive, in microseconds.

    Built by `within`, `deadline`, `delay` and `between`. Raises QueryError WA-2001 for a confidence outside (0, 1],
    WA-2005 for `lo > hi`.
    """

    lo_us: int
    hi_us: int
    confidence: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "confidence", _confidence(self.confidence))
        if self.lo_us > self.hi_us:
            raise QueryError(
                Code.EMPTY_CONDITION,
                f"the condition admits no difference: lo {self.lo_us} us > hi {self.hi_us} us",
                "swap the bounds",
            )

    @property
    def described(self) -> str:
        """The condition in words.

        >>> within("2 s", confidence=0.6).described, delay("1s", confidence=1).described
        ('-2 s <= right - left <= 2 s with confidence 0.6', 'right - left >= 1 s with confidence 1')
        """
        lo = None if self.lo_us <= -UNBOUNDED_US else self.lo_us
        hi = None if self.hi_us >= UNBOUNDED_US else self.hi_us
        return f"{format_bounds('right - left', lo, hi)} with confidence {self.confidence:g}"

    @property
    def one_sided(self) -> bool:
        """Whether a bound is missing, so that no row could ever leave the state of a stream."""
        return self.lo_us <= -UNBOUNDED_US or self.hi_us >= UNBOUNDED_US

    def require_two_sided(self) -> None:
        """Refuse a one-sided condition (on a stream) with QueryError WA-2004, naming the missing argument."""
        if self.one_sided:
            argument = "since= to deadline(...)" if self.lo_us <= -UNBOUNDED_US else "until= to delay(...)"
            raise QueryError(
                Code.ONE_SIDED_ON_STREAM,
                "a condition with only one bound would keep every row of a stream forever",
                f"add {argument}, or use between(lo, hi)",
            )


def between(lo: Duration, hi: Duration, *, confidence: float) -> Condition:
    """`lo <= X2 - X1 <= hi`: the right event follows the left one by at least `lo` and at most `hi`.

    >>> between("-1s", "5s", confidence=0.5)
    Condition(lo_us=-1000000, hi_us=5000000, confidence=0.5)
    """
    return Condition(parse_duration(lo, name="lo"), parse_duration(hi, name="hi"), confidence)


def within(d: Duration, *, confidence: float) -> Condition:
    """`|X2 - X1| <= d`: the mutual deadline of ITC, `WINDOW(A, B) = d` of PTJoin. Negative `d`: WA-2003.

    >>> within("2 s", confidence=0.6)
    Condition(lo_us=-2000000, hi_us=2000000, confidence=0.6)
    """
    d_us = parse_non_negative(d, name="within")
    return Condition(-d_us, d_us, confidence)


def deadline(d: Duration, since: Duration | None = None, *, confidence: float) -> Condition:
    """`X2 - X1 <= d`, and `>= since` where given: the right event comes at most `d` after the left one.

    Without `since` the condition is one-sided: fine on finite input, refused on a stream.

    >>> deadline("5s", since="0s", confidence=0.9)
    Condition(lo_us=0, hi_us=5000000, confidence=0.9)
    """
    lo_us = -UNBOUNDED_US if since is None else parse_duration(since, name="since")
    return Condition(lo_us, parse_duration(d, name="deadline"), confidence)


def delay(d: Duration, until: Duration | None = None, *, confidence: float) -> Condition:
    """`X2 - X1 >= d`, and `<= until` where given: the right event comes no sooner than `d` after the left one.

    >>> delay("1s", until="1m", confidence=0.9)
    Condition(lo_us=1000000, hi_us=60000000, confidence=0.9)
    """
    hi_us = UNBOUNDED_US if until is None else parse_duration(until, name="until")
    return Condition(parse_duration(d, name="delay"), hi_us, confidence)


def _confidence(value: float) -> float:
    try:
        confidence = float(value)
    except (TypeError, ValueError):
        confidence = math.nan
    if not 0.0 < confidence <= 1.0:
        raise QueryError(Code.BAD_CONFIDENCE, f"confidence is {value!r}", "give a number in (0, 1]")
    return confidence
