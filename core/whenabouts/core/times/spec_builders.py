"""Time specifications from how a reading was made: a coarse clock, a poll, a latency, an error distribution.

A reading `t` is one column; each function describes where the true time lies relative to it. Clocks that may be wrong
are in `times.clock_errors`, because there the other side of the join matters too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from whenabouts.core.durations import Duration, parse_duration
from whenabouts.core.errors import Code, QueryError, WhenaboutsError
from whenabouts.core.times.empirical_distributions import equal_mass, through_quantiles
from whenabouts.core.times.templates import Template
from whenabouts.core.times.time_specs import Around, Distributed


def from_granularity(t: str, granularity: Duration, *, rounding: str = "down") -> Around:
    """Times truncated or rounded to a granularity: uniform in the interval that gives the same reading.

    `rounding="down"` (a truncated clock, the usual case): `[t, t + granularity]`; `"up"`: `[t - granularity, t]`;
    `"nearest"`: half of it to either side.

    Raises QueryError: WA-2006 for a granularity that is zero or another rounding, WA-2003 for a negative one, WA-2002
    for an invalid duration, or for "nearest" with an odd number of microseconds.

    >>> from_granularity("t", "1 minute")
    Around(t='t', before=0, after=60000000)
    """
    whole = _positive(granularity, "granularity")
    if rounding == "nearest":
        if whole % 2:
            raise QueryError(
                Code.BAD_DURATION,
                f"half the granularity of {whole} us is not a whole number of microseconds",
                "give an even number of microseconds",
            )
        return Around(t, before=whole // 2, after=whole // 2)
    if rounding not in ("down", "up"):
        raise QueryError(Code.BAD_OPTION, f"rounding is {rounding!r}", "choose one of down, nearest, up")
    return Around(t, 0, whole) if rounding == "down" else Around(t, whole, 0)


def from_polling(t: str, period: Duration) -> Around:
    """Events found by a poll at `t`, every `period`: uniform since the previous poll, `[t - period, t]`.

    Raises QueryError: WA-2006 for a period of zero, WA-2003 for a negative one, WA-2002 for an invalid duration.

    >>> from_polling("seen_at", "30 s")
    Around(t='seen_at', before=30000000, after=0)
    """
    return Around(t, before=_positive(period, "period"), after=0)


def from_distribution(t: str, distribution: Any, *, kind: str | None = None) -> Distributed:
    """The event happened at `t` plus a time distributed as a `Template`: `H = t + phi`.

    For readings with a known error, such as `normal(0, "20 ms")`. Mind the sign if it is not symmetric: a reading that
    is 5 s late means an offset of -5 s. `kind` names a column with the kind of each row; `distribution` is then a
    mapping of kinds to templates, and rows of an unknown kind are rejected (WA-1013).

    Raises InputError WA-1012 for an invalid template, QueryError WA-2006 for a mapping without `kind` or the reverse.

    >>> from whenabouts.core.times.distributions import normal
    >>> from_distribution("t", normal(0, "20 ms"))
    Distributed('t', template: 36 buckets in [t - 69616, t + 69616] us)
    """
    return Distributed(t, kind, _each(kind, distribution, lambda one: one, "distribution", "template"))


def from_latency(
    t: str,
    *,
    samples: Any = None,
    quantiles: Mapping[Any, Any] | None = None,
    distribution: Any = None,
    shortest: Duration | None = None,
    longest: Duration | None = None,
    kind: str | None = None,
) -> Distributed:
    """The event happened a latency before its detection at `t`: `H = t - L`.

    The latency L is given in one of three ways:
    - `samples`: measured latencies (see `empirical` for the forms), fitted by buckets of about equal probability
      between order statistics: about `2 sqrt(n)`, at most 200. Equal probability gives every bucket equally many
      samples, however skewed the latencies are. The next latency is above the greatest of n samples with probability
      1/(n + 1), and as likely below the least. `longest` and `shortest` bound it (a timeout, 0), and the fit spreads
      that probability up to these bounds; without them, latencies beyond the samples are treated as impossible.
    - `quantiles`: `{probability: duration}`, for instance from a dashboard, uniform between neighbours. They must
      include 0 and 1, unless `shortest` and `longest` are given.
    - `distribution`: a `Template` of the latency, such as `exponential("2 s")`.

    `kind` names a column with the kind of each row; samples, quantiles or distribution is then a mapping with an entry
    for each kind, and rows of an unknown kind are rejected (WA-1013).

    Raises QueryError: WA-2006 unless exactly one way is used, for no sample, and for missing or falling quantiles;
    WA-2002 for NaN and invalid durations; WA-2003 if a latency can be negative (use `from_distribution` for an error in
    both directions).

    >>> from_latency("t", quantiles={0: "100 ms", 0.5: "200 ms", 0.99: "1 s"}, longest="5 s")
    Distributed('t', latency: 3 buckets in [t - 5000000, t - 100000] us)
    >>> from_latency("t", samples={"sms": ["1 s", "3 s"], "mail": ["2 s", "60 s"]}, kind="channel")
    Distributed('t', template='channel', sms: 1 buckets in [t - 3000000, t - 1000000] us; \
mail: 1 buckets in [t - 60000000, t - 2000000] us)
    """
    ways = {"samples": samples, "quantiles": quantiles, "distribution": distribution}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) != 1:
        raise QueryError(
            Code.BAD_OPTION,
            f"the latency is given by {' and '.join(given) or 'none of its three options'}",
            "give one of samples=, quantiles=, distribution=",
        )
    (way,) = given
    if way == "distribution" and (shortest is not None or longest is not None):
        raise QueryError(
            Code.BAD_OPTION, "shortest and longest do not apply to a distribution", "leave them out: its buckets end it"
        )

    def fit(value: Any) -> Template:
        if way == "distribution":
            return _template(value)
        make = equal_mass if way == "samples" else through_quantiles
        return make(value, shortest=shortest, longest=longest)

    fits = _each(kind, ways[way], fit, way, "latency")
    return Distributed(t, kind, {name: _before(name, latency) for name, latency in fits.items()})


def _each(kind: str | None, given: Any, make: Callable[[Any], Any], what: str, alone: str) -> dict[str, Template]:
    """The templates by kind; a single one under the name `alone`."""
    if kind is None:
        if what != "quantiles" and isinstance(given, Mapping):
            raise QueryError(Code.BAD_OPTION, f"{what} is a mapping", "give kind=, the column that names its keys")
        return {alone: _template(make(given))}
    if not isinstance(given, Mapping) or not given:
        raise QueryError(Code.BAD_OPTION, f"{what} is not a mapping of kinds", f"give {what}={{kind: ...}} with kind=")
    templates = {}
    for name, value in given.items():
        try:
            if what == "quantiles" and not isinstance(value, Mapping):
                raise QueryError(Code.BAD_OPTION, f"quantiles are {value!r}", "give {kind: {probability: duration}}")
            templates[str(name)] = _template(make(value))
        except WhenaboutsError as error:
            raise type(error)(error.code, f"kind {name!r}: {error.problem}", error.hint) from error
    return templates


def _template(value: Any) -> Template:
    if isinstance(value, Template):
        return value
    try:
        return Template(tuple(value))
    except TypeError as error:
        raise QueryError(
            Code.BAD_OPTION, f"{value!r} is not a distribution", 'give a Template, such as normal(0, "20 ms")'
        ) from error


def _before(name: str, latency: Template) -> Template:
    """The distribution of `-L`: the buckets of the latency, mirrored at 0."""
    buckets = [(latency.end_us + lo, latency.end_us + hi, p) for lo, hi, p in latency.exact]
    if buckets[0][0] < 0:
        raise QueryError(
            Code.NEGATIVE_DURATION,
            f"the {name} latency can be {buckets[0][0]} us",
            "an event is not detected before it happens: leave such samples out, or use from_distribution",
        )
    return Template(tuple((-hi, -lo, p) for lo, hi, p in reversed(buckets)))


def _positive(value: Duration, name: str) -> int:
    microseconds = parse_duration(value, name=name)
    if microseconds < 0:
        raise QueryError(Code.NEGATIVE_DURATION, f"{name} is negative: {value!r}", "give a duration above zero")
    if microseconds == 0:
        raise QueryError(Code.BAD_OPTION, f"{name} is zero", "an exact time is a Point")
    return microseconds
