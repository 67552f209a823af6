"""Readings of clocks that may be wrong, and which part of their error matters in a join.

The model: a reading is `t = T + O + E`, where T is the true time. The *offset* O is one unknown number for the whole
clock domain, uniform in `[-offset, offset]`. The *own* error E differs from reading to reading; it is uniform in
`[-(jitter + drift * synchronised), jitter + drift * synchronised]`. O and all E are independent of each other and of T.

All readings of a domain have the same O, so it cancels in their differences. A join within a domain therefore uses
`t - E` as the time of an event; only a join across domains uses `t - O - E`. In both cases the two times of a pair are
independent, as PTJoin section 2 requires. They would not be if the offset were counted twice within a domain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.durations import Duration, parse_duration, parse_non_negative
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.times.distributions import TOLERANCE, spend_of, sum_of_uniforms
from whenabouts.core.times.templates import Template
from whenabouts.core.times.time_specs import Around, Distributed, Point, TimeSpec


@dataclass(frozen=True)
class Clock:
    """Readings of one clock domain, as made by `from_clock`.

    By itself it describes times across domains: offset and own error together. A join resolves it together with its
    other side (`resolve_clocks`).
    """

    t: str
    offset: Duration | None = None
    jitter: Duration = 0
    drift: float | str = 0
    synchronised: Duration | None = None
    domain: str | None = None
    tolerance: float = TOLERANCE
    domain_column: str | None = None

    def __post_init__(self) -> None:
        if self.domain_column is not None:
            column: object = self.domain_column
            if not isinstance(column, str) or not column:
                raise QueryError(
                    Code.BAD_OPTION, f"domain_column is {self.domain_column!r}", "name the column that names the clock"
                )
            if self.domain is not None:
                raise QueryError(
                    Code.BAD_OPTION,
                    f"the clock has domain={self.domain!r} and domain_column={self.domain_column!r}",
                    "give domain= if one clock made all readings, or domain_column= if it says which clock made which",
                )
        for name in ("offset", "jitter", "synchronised"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, parse_non_negative(value, name=name))
        object.__setattr__(self, "drift", _parts_per_million(self.drift))
        spend_of(self.tolerance)
        if self.drift and self.synchronised is None:
            raise QueryError(
                Code.BAD_OPTION,
                f"the clock drifts by {self.drift} ppm, but synchronised= is missing",
                "give synchronised=, the greatest time between two synchronisations",
            )
        parse_duration(self.own_us, name="jitter + drift * synchronised")

    @property
    def own_us(self) -> int:
        """Greatest own error of a reading: `jitter + drift * synchronised`, rounded up to a microsecond."""
        drifted = Fraction(self.drift) * parse_duration(self.synchronised or 0) / 1_000_000
        return parse_duration(self.jitter) + math.ceil(drifted)

    @cached_property
    def within_domain(self) -> Around:
        """Times relative to the domain's own clock, with the uniform own error."""
        return Around(self.t, self.own_us, self.own_us)

    @cached_property
    def beyond_domain(self) -> Around | Distributed:
        """True times: an interval if the offset or the own error is zero, otherwise their trapezoid as a template.

        Raises QueryError WA-2011 if the offset is not declared.
        """
        if self.offset is None:
            raise QueryError(
                Code.UNKNOWN_CLOCK_OFFSET,
                f"the offset of the clock of {self.t!r} is not declared",
                "give from_clock(..., offset=...), or the same domain=... on both sides if one clock stamped both",
            )
        offset = parse_duration(self.offset)
        if offset and self.own_us:
            return Distributed(self.t, templates=sum_of_uniforms(offset, self.own_us, tolerance=self.tolerance))
        return Around(self.t, offset + self.own_us, offset + self.own_us)

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of readings."""
        return (self.t,)

    @property
    def template_column(self) -> str | None:
        """None: all rows have the same distribution."""
        return None

    @property
    def min_uncertainty_us(self) -> int:
        """Length of every row's support, across domains."""
        return self.beyond_domain.min_uncertainty_us

    @property
    def max_uncertainty_us(self) -> int | None:
        """Length of every row's support, across domains."""
        return self.beyond_domain.max_uncertainty_us

    @property
    def templates(self) -> tuple[tuple[str, Template], ...]:
        """The one template, if both errors are above zero."""
        return self.beyond_domain.templates

    @property
    def end_columns(self) -> tuple[str | None, str | None]:
        """None: both ends are computed."""
        return self.beyond_domain.end_columns

    def ends(self, times: Sequence[IntArray], template: IntArray | None) -> tuple[IntArray, IntArray]:
        """The support of every row, across domains."""
        return self.beyond_domain.ends(times, template)


def from_clock(
    t: str,
    *,
    offset: Duration | None = None,
    jitter: Duration = 0,
    drift: float | str = 0,
    synchronised: Duration | None = None,
    domain: str | None = None,
    tolerance: float = TOLERANCE,
    domain_column: str | None = None,
) -> Clock:
    """Readings of a clock that may be wrong.

    - `offset`: how far the clock may be from the true time, in either direction; one unknown error that all readings of
      the domain share. None means unknown, which only joins within the domain allow.
    - `jitter`: a further error of each reading, independent of all others.
    - `drift` (parts per million) with `synchronised` (the greatest time between two synchronisations) widens the jitter
      by their product, the most that can accumulate between two synchronisations. It counts as each reading's own
      error, which is conservative: neighbouring readings drift alike.
    - `domain`: a name for what shares the offset: *one* clock. Machines that follow the same time server each have
      their own offset and are different domains.
    - `domain_column`: the column that says which clock made a reading, where a stream has readings of several clocks
      (the host of a log line). Each has an offset of its own of at most `offset`. It matters where several rows of one
      side are looked at together, to the chance functions of `join_aggregate`; there a row with a null in it is
      rejected (WA-1021).

    In a join of two sides of the same domain the offset cancels, and each time is uniform in `t` +- own error, exactly.
    In any other join (another domain, no domain, or no clock on the other side) each clock contributes offset + own
    error. The sum of these two independent uniform errors has a trapezoidal density; a template approximates it so that
    P is exact to within `tolerance` (see `distributions`). If one of the two is zero, the time is an interval, and
    exact.

    Raises QueryError: WA-2003 for negative durations; WA-2006 for a drift that is not a number >= 0 or comes without
    `synchronised`, for a tolerance outside [1e-6, 1), and for both a domain and its column. A join raises WA-2011 if it
    needs an undeclared offset, WA-2006 if its two sides declare different offsets for one domain, and WA-2007 for two
    sides with a domain column, since a pair's offsets may then cancel or not.

    >>> camera = from_clock("t", jitter="2 ms", drift=50, synchronised="1 minute", domain="camera")
    >>> resolve_clocks(camera, camera)[0]
    Around(t='t', before=5000, after=5000)
    """
    return Clock(t, offset, jitter, drift, synchronised, domain, tolerance, domain_column)


def resolve_clocks(left: TimeSpec, right: TimeSpec) -> tuple[TimeSpec, TimeSpec]:
    """The time specifications of a join's two sides with their clocks replaced; other specifications are unchanged.

    Raises QueryError WA-2011 if a needed offset is not declared, WA-2006 for two offsets of one domain, WA-2007 for
    domain columns on both sides.

    >>> within, beyond = from_clock("t", offset="1 s", domain="a"), from_clock("u", offset="2 s", domain="b")
    >>> resolve_clocks(within, beyond)
    (Around(t='t', before=1000000, after=1000000), Around(t='u', before=2000000, after=2000000))
    """
    if isinstance(left, Clock) and isinstance(right, Clock) and left.domain is not None and left.domain == right.domain:
        if None not in (left.offset, right.offset) and left.offset != right.offset:
            raise QueryError(
                Code.BAD_OPTION,
                f"domain {left.domain!r} has the offsets {left.offset} us and {right.offset} us",
                "a domain is one clock with one offset: name two domains, or give one offset",
            )
        return left.within_domain, right.within_domain
    require_one_domain_column([left, right])
    return _beyond("left", left), _beyond("right", right)


def require_one_domain_column(specs: Sequence[TimeSpec]) -> None:
    """Raise QueryError WA-2007 where several inputs of a join have a domain column: offsets would cancel in some pairs
    only."""
    columns = [spec.domain_column for spec in specs if isinstance(spec, Clock) and spec.domain_column is not None]
    if len(columns) > 1:
        raise QueryError(
            Code.NOT_AVAILABLE,
            f"{' and '.join(map(repr, columns))} are domain columns of two inputs, and readings of one clock on both "
            "sides share its offset",
            "join on these columns and give both sides the same domain=: rows of different clocks then never meet",
        )


def resolve_clocks_to_left(left: TimeSpec, right: TimeSpec) -> tuple[TimeSpec, TimeSpec]:
    """As `resolve_clocks`, for a join that compares right rows with each other too: the offsets of both clocks go to
    the left time.

    The offset of the right clock is common to all right rows, so a comparison among them does not see it. A left row
    at Y is compared with a right one at X by `Y - X`, where only the sum of both offsets counts. So the right times
    have their own errors, the left ones their own and both offsets, and all times are independent.

    Raises QueryError WA-2011 if a needed offset is not declared, WA-2006 for two offsets of one domain, and for left
    times of other forms than a clock, a `Point`, or an interval around one, if the right clock has an offset.

    >>> from whenabouts.core.times.time_specs import Point
    >>> resolve_clocks_to_left(Point("t"), from_clock("u", offset="2 s", jitter="1 ms"))
    (Around(t='t', before=2000000, after=2000000), Around(t='u', before=1000, after=1000))
    """
    if isinstance(left, Clock) and isinstance(right, Clock) and left.domain is not None and left.domain == right.domain:
        return resolve_clocks(left, right)
    if not isinstance(right, Clock):
        return _beyond("left", left), right
    if right.domain_column is not None and parse_duration(right.offset or 0):
        raise QueryError(
            Code.NOT_AVAILABLE,
            f"right rows are readings of several clocks, by {right.domain_column!r}, and are compared with each other",
            "join on this column and give domain= instead: right rows of one key then have one clock",
        )
    _beyond("right", right)  # which needs the offset to be declared
    offset = parse_duration(right.offset or 0)
    if not offset:
        return _beyond("left", left), right.within_domain
    if isinstance(left, Clock):
        _beyond("left", left)
        errors = [parse_duration(left.offset or 0), left.own_us, offset]
        tolerance = max(left.tolerance, right.tolerance)
        return _with_errors(left.t, errors, tolerance), right.within_domain
    if isinstance(left, Point):
        return _with_errors(left.t, [offset], right.tolerance), right.within_domain
    if isinstance(left, Around) and left.before == left.after:
        return _with_errors(left.t, [parse_duration(left.before), offset], right.tolerance), right.within_domain
    raise QueryError(
        Code.BAD_OPTION,
        f"the offset of the right clock belongs to the left time, and that is {left!r}",
        "give the left time as from_clock(...) or Point(...), or both the same domain",
    )


def _with_errors(t: str, errors: Sequence[int], tolerance: float) -> Around | Distributed:
    """The column `t` with independent errors, each uniform in `[-error, error]`."""
    above = [error for error in errors if error]
    if len(above) < 2:
        return Around(t, sum(above), sum(above))
    return Distributed(t, templates=sum_of_uniforms(*above, tolerance=tolerance))


def _beyond(side: str, spec: TimeSpec) -> TimeSpec:
    if not isinstance(spec, Clock):
        return spec
    try:
        return spec.beyond_domain
    except QueryError as error:
        raise QueryError(error.code, f"{side} side: {error.problem}", error.hint) from error


def _parts_per_million(drift: float | str) -> float | str:
    try:
        good = Fraction(drift) >= 0
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        good = False
    if not good:
        raise QueryError(Code.BAD_OPTION, f"drift is {drift!r}", "give parts per million, a number >= 0")
    return drift
