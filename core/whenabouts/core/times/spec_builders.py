"""Specifications of times from what people have: a coarse clock, a poll, a latency, an error distribution.

A reading `t` is one column; each function says where the true time lies about it. Readings of clocks that may be wrong
are in `times.clock_errors`, since what counts there depends on the other side of the join.
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
    """Times cut or rounded to a granularity: uniform in the stretch that gives the same reading.

    `rounding="down"` (a truncated clock, the usual case): `[t, t + granularity]`; `"up"`: `[t - granularity, t]`;
    `"nearest"`: half of it to either side.

    Raises QueryError: WA-2006 for a granularity not above zero or another rounding, WA-2002 for what is no duration, or
    for "nearest" with a granularity of an odd number of microseconds, half of which cannot be told.

    >>> from_granularity("t", "1 minute")
    Around(t='t', before=0, after=60000000)
    """
    whole = _positive(granularity, "granularity")
    if rounding == "nearest":
        if whole % 2:
            raise QueryError(
                Code.BAD_DURATION,
                f"half the granularity of {whole} us is no whole number of microseconds",
                "give an even number of microseconds",
            )
        return Around(t, before=whole // 2, after=whole // 2)
    if rounding not in ("down", "up"):
        raise QueryError(Code.BAD_OPTION, f"rounding is {rounding!r}", "choose of down, nearest, up")
    return Around(t, 0, whole) if rounding == "down" else Around(t, whole, 0)


def from_polling(t: str, period: Duration) -> Around:
    """Events found by a poll at `t`, every `period`: uniform since the poll before, `[t - period, t]`.

    Raises QueryError: WA-2006 for a period not above zero, WA-2002 for what is no duration.

    >>> from_polling("seen_at", "30 s")
    Around(t='seen_at', before=30000000, after=0)
    """
    return Around(t, before=_positive(period, "period"), after=0)


def from_distribution(t: str, distribution: Any, *, kind: str | None = None) -> Distributed:
    """The event happened at `t` plus a time distributed as a `Template`: `H = t + phi`.

    For readings with a known error, such as `normal(0, "20 ms")`; take the sign with care where it is not symmetric
    (reading 5 s late means an offset of -5 s). `kind` names a column that says which of several distributions a row
    has, and `distribution` is then a mapping of its values to templates; rows of no registered kind are rejected
    (WA-1013).

    Raises InputError WA-1012 for what is no template, QueryError WA-2006 for a mapping without `kind` or the reverse.

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
      between order statistics, about `2 sqrt(n)` of them and at most 200. Equal probability, because then no bucket
      rests on fewer samples than another, however skewed latencies are. The next latency is above the greatest of n
      samples with probability 1/(n + 1), and as likely below the least: where `longest` and `shortest` tell how far it
      can go (a timeout, 0), the fit spreads that probability there; where they do not, it takes what was not seen as
      impossible.
    - `quantiles`: `{probability: duration}`, for instance from a dashboard, uniform between neighbours. They must
      include 0 and 1, or `shortest` and `longest` say what these are.
    - `distribution`: a `Template` of the latency, such as `exponential("2 s")`.

    `kind` names a column that says which kind a row has, and samples, quantiles or distribution are then mappings with
    one of them for each kind; rows of no kind given are rejected (WA-1013).

    Raises QueryError: WA-2006 for not just one way, no sample, missing or falling quantiles; WA-2002 for NaN and what
    is no duration; WA-2003 where a latency can be negative (an error that lies to both sides is `from_distribution`'s).

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
            f"the latency is given by {' and '.join(given) or 'nothing'}",
            "give one of samples=, quantiles=, distribution=",
        )
    (way,) = given
    if way == "distribution" and (shortest is not None or longest is not None):
        raise QueryError(
            Code.BAD_OPTION, "shortest and longest do not apply to a distribution", "its buckets say where it ends"
        )

    def fit(value: Any) -> Template:
        if way == "distribution":
            return _template(value)
        make = equal_mass if way == "samples" else through_quantiles
        return make(value, shortest=shortest, longest=longest)

    fits = _each(kind, ways[way], fit, way, "latency")
    return Distributed(t, kind, {name: _before(name, latency) for name, latency in fits.items()})


def _each(kind: str | None, given: Any, make: Callable[[Any], Any], what: str, alone: str) -> dict[str, Template]:
    """The templates by kind, or the one there is under the name `alone`."""
    if kind is None:
        if what != "quantiles" and isinstance(given, Mapping):
            raise QueryError(Code.BAD_OPTION, f"{what} is a mapping", "give kind=, the column that names its keys")
        return {alone: _template(make(given))}
    if not isinstance(given, Mapping) or not given:
        raise QueryError(Code.BAD_OPTION, f"{what} is no mapping of kinds", f"give {what}={{kind: ...}} with kind=")
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
            Code.BAD_OPTION, f"{value!r} is no distribution", 'give a Template, such as normal(0, "20 ms")'
        ) from error


def _before(name: str, latency: Template) -> Template:
    """The distribution of `-L`: the latency's buckets mirrored at 0."""
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
