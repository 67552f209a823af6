"""Timing conditions: `P(lo <= X2 - X1 <= hi) >= confidence`, written as `within`, `deadline`, `delay` or `between`.

`possibly` asks for the pairs that can meet a condition at all, `overlaps` for those whose times can coincide. X1 and X2
are the independent occurrence times of a left and a right event (ITC section 3; PTJoin section 2.2). The papers assume
d >= pi; here any `lo <= hi` is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from whenabouts.core.durations import (
    MAX_DURATION_US,
    Duration,
    format_bounds,
    parse_duration,
    parse_non_negative,
    whole_of,
)
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.times.limits import ALWAYS_US, NEVER_US, UNBOUNDED_US

LEAST_CONFIDENCE = 5e-324
"""As a confidence: every pair that is possible at all. The smallest positive double."""


class _Possible(float):
    """The confidence of `possibly`."""

    def __repr__(self) -> str:
        return "POSSIBLE"

    def __str__(self) -> str:
        return "of possibly, 0"


class _Unsaid(float):
    """The confidence of a condition without one."""

    def __repr__(self) -> str:
        return "UNSAID"


POSSIBLE = _Possible(0.0)
UNSAID = _Unsaid(-1.0)


@dataclass(frozen=True, slots=True)
class Condition:
    """`P(lo_us <= X2 - X1 <= hi_us) >= confidence`, bounds inclusive, in microseconds.

    Built by `within`, `deadline`, `delay`, `between`, `possibly` and `overlaps`. Raises QueryError WA-2001 for a
    confidence outside (0, 1], WA-2002 for bounds that are no integers, or longer than durations are but for those that
    bound nothing (`UNBOUNDED_US`), WA-2005 for bounds that admit nothing.
    """

    lo_us: int
    hi_us: int
    confidence: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "confidence", _confidence(self.confidence))
        for name, bound in (("lo_us", self.lo_us), ("hi_us", self.hi_us)):
            if (whole := whole_of(bound)) is None:
                raise QueryError(Code.BAD_DURATION, f"{name} is {bound!r}", "give whole microseconds, or use within()")
            # One more: `decided_by` widens the longest.
            if MAX_DURATION_US + 1 < abs(whole) < UNBOUNDED_US or not NEVER_US <= whole <= ALWAYS_US:
                raise QueryError(
                    Code.BAD_DURATION,
                    f"{name} is {whole}",
                    "durations end at about 9,100 years; 2**62 is no bound at all",
                )
            object.__setattr__(self, name, whole)
        if self.lo_us > self.hi_us:
            raise QueryError(
                Code.EMPTY_CONDITION,
                f"the condition admits no difference: lo {self.lo_us} us > hi {self.hi_us} us",
                "swap the bounds",
            )
        if self.lo_us >= UNBOUNDED_US or self.hi_us <= -UNBOUNDED_US:
            raise QueryError(
                Code.EMPTY_CONDITION,
                f"the condition admits no difference: from {self.lo_us} us to {self.hi_us} us",
                "no bound at all is lo_us=-(2**62) or hi_us=2**62",
            )

    @property
    def described(self) -> str:
        """The condition in words.

        >>> within("2 s", confidence=0.6).described, delay("1s", confidence=1).described
        ('-2 s <= right - left <= 2 s with confidence 0.6', 'right - left >= 1 s with confidence 1')
        >>> possibly(within("2 s")).described
        'possibly -2 s <= right - left <= 2 s'
        """
        lo = None if self.lo_us <= -UNBOUNDED_US else self.lo_us
        hi = None if self.hi_us >= UNBOUNDED_US else self.hi_us
        bounds = format_bounds("right - left", lo, hi)
        if self.possible:
            return f"possibly {bounds}"
        return f"{bounds} with confidence {self.confidence:g}" if self.says_confidence else bounds

    @property
    def possible(self) -> bool:
        """Whether the condition is one of `possibly`."""
        return isinstance(self.confidence, _Possible)

    @property
    def says_confidence(self) -> bool:
        """Whether it has a confidence, or is one of `possibly`: only then it is a condition for a timing join."""
        return not isinstance(self.confidence, _Unsaid)

    def decided_by(self, *, instants: bool) -> Condition:
        """A condition with a confidence that holds for the same pairs; `instants`: both times are exact.

        Supports are closed and have integer ends. So that of D, which is [s, e], touches [lo, hi] if and only if it
        shares more than one point with [lo - 1, hi + 1], that is, if it has a probability above 0 there. But D is a
        single instant where both times are exact: there what is possible is certain. Pairs of two exact rows on sides
        that also have uncertain rows are distinguished by `probability.possibility`.

        >>> possibly(within("2us")).decided_by(instants=False)
        Condition(lo_us=-3, hi_us=3, confidence=5e-324)
        """
        if not self.possible:
            return self
        if instants:
            return Condition(self.lo_us, self.hi_us, 1.0)
        lo = self.lo_us if self.lo_us <= -UNBOUNDED_US else self.lo_us - 1
        hi = self.hi_us if self.hi_us >= UNBOUNDED_US else self.hi_us + 1
        return Condition(lo, hi, LEAST_CONFIDENCE)

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


def between(lo: Duration, hi: Duration, *, confidence: float = UNSAID) -> Condition:
    """`lo <= X2 - X1 <= hi`: the right event follows the left one by at least `lo` and at most `hi`.

    Without a confidence it is for `possibly`, and for windows of exact times.

    >>> between("-1s", "5s", confidence=0.5)
    Condition(lo_us=-1000000, hi_us=5000000, confidence=0.5)
    """
    return Condition(parse_duration(lo, name="lo"), parse_duration(hi, name="hi"), confidence)


def within(d: Duration, *, confidence: float = UNSAID) -> Condition:
    """`|X2 - X1| <= d`: the mutual deadline of ITC, `WINDOW(A, B) = d` of PTJoin. Negative `d`: WA-2003.

    >>> within("2 s", confidence=0.6)
    Condition(lo_us=-2000000, hi_us=2000000, confidence=0.6)
    """
    d_us = parse_non_negative(d, name="within")
    return Condition(-d_us, d_us, confidence)


def deadline(d: Duration, since: Duration | None = None, *, confidence: float = UNSAID) -> Condition:
    """`X2 - X1 <= d`, and `>= since` where given: the right event comes at most `d` after the left one.

    Without `since` the condition is one-sided: fine on finite input, refused on a stream.

    >>> deadline("5s", since="0s", confidence=0.9)
    Condition(lo_us=0, hi_us=5000000, confidence=0.9)
    """
    lo_us = -UNBOUNDED_US if since is None else parse_duration(since, name="since")
    return Condition(lo_us, parse_duration(d, name="deadline"), confidence)


def delay(d: Duration, until: Duration | None = None, *, confidence: float = UNSAID) -> Condition:
    """`X2 - X1 >= d`, and `<= until` where given: the right event comes no sooner than `d` after the left one.

    >>> delay("1s", until="1m", confidence=0.9)
    Condition(lo_us=1000000, hi_us=60000000, confidence=0.9)
    """
    hi_us = UNBOUNDED_US if until is None else parse_duration(until, name="until")
    return Condition(parse_duration(d, name="delay"), hi_us, confidence)


def possibly(condition: Condition) -> Condition:
    """The pairs that can meet a condition at all: some instants of the two times, ends included, meet it.

    So touching ends count, although their probability is 0: `probability` is that of the condition, here from 0 to 1.
    A histogram can have happened in its buckets with a probability above 0, ends included. A confidence of the
    condition, which needs none here, is not used.

    >>> possibly(within("2 s")) == possibly(within("2 s", confidence=0.6))
    True
    >>> possibly(deadline("5s", since="0s")).described
    'possibly 0 us <= right - left <= 5 s'
    """
    if not isinstance(condition, Condition):
        raise QueryError(
            Code.BAD_OPTION, f"possibly is given a {type(condition).__name__}", "give a condition, as within('2 s')"
        )
    return Condition(condition.lo_us, condition.hi_us, POSSIBLE)


def overlaps() -> Condition:
    """The two times can coincide: intervals share at least a point. The same as `possibly(within(0))`.

    >>> overlaps().described
    'possibly 0 us <= right - left <= 0 us'
    """
    return Condition(0, 0, POSSIBLE)


def _confidence(value: float) -> float:
    return value if isinstance(value, _Possible | _Unsaid) else confidence_of(value)


def confidence_of(value: Any, name: str = "confidence") -> float:
    """A confidence as a float; `name`: what the error calls it. Raises QueryError WA-2001 unless it is in (0, 1].

    >>> confidence_of("0.5"), confidence_of(1)
    (0.5, 1.0)
    """
    try:
        confidence = float(value)
    except (TypeError, ValueError):
        confidence = math.nan
    if not 0.0 < confidence <= 1.0:
        raise QueryError(Code.BAD_CONFIDENCE, f"{name} is {value!r}", "give a number in (0, 1]")
    return confidence
