"""How a stream's rows say when they happened: a point, an interval in which the time is uniform, or a histogram.

These are the values; `times.spec_builders` and `times.clock_errors` make them from what people have.

A specification names columns of the user's rows; it is turned into two int64 microsecond columns when rows enter
(`events`), and, where it has templates, the number of the row's template. Columns are TIMESTAMP of any unit (naive ones
are UTC; finer than a microsecond is cut), or int64 microseconds since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.durations import Duration, parse_duration, parse_non_negative
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.times.templates import Template, read_templates


class TimeSpec(Protocol):
    """What every specification of times tells the reader and the operators."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of times that it reads."""

    @property
    def min_uncertainty_us(self) -> int:
        """Least length of an interval (the papers' rho)."""

    @property
    def max_uncertainty_us(self) -> int | None:
        """Greatest length of an interval (the papers' pi), None where the user declared none."""

    @property
    def template_column(self) -> str | None:
        """The column that names a row's template, None where there is none."""

    @property
    def templates(self) -> tuple[tuple[str, Template], ...]:
        """The registered templates with their names; none means that times are uniform between their ends."""

    @property
    def end_columns(self) -> tuple[str | None, str | None]:
        """The columns that are `t_min` and `t_max` as they stand, None where an end is computed."""

    def ends(self, times: Sequence[IntArray], template: IntArray | None) -> tuple[IntArray, IntArray]:
        """`t_min` and `t_max` of rows, from their columns in microseconds and the numbers of their templates."""


class _Uniform:
    """A time that is uniform between two columns, which may be one and the same."""

    @property
    def template_column(self) -> str | None:
        """None: no row names a template."""
        return None

    @property
    def templates(self) -> tuple[tuple[str, Template], ...]:
        """None is registered."""
        return ()

    def ends(self, times: Sequence[IntArray], template: IntArray | None) -> tuple[IntArray, IntArray]:
        """The first and the last column as they are."""
        return times[0], times[-1]


@dataclass(frozen=True)
class Point(_Uniform):
    """The exact time `t` of an event.

    >>> Point("ts").columns
    ('ts',)
    """

    t: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return (self.t,)

    @property
    def end_columns(self) -> tuple[str | None, str | None]:
        """The one column."""
        return self.t, self.t

    @property
    def min_uncertainty_us(self) -> int:
        """Least length of an interval: a point has length 0."""
        return 0

    @property
    def max_uncertainty_us(self) -> int | None:
        """Greatest length of an interval: a point has length 0."""
        return 0


@dataclass(frozen=True)
class Interval(_Uniform):
    """A time uniform in `[t_min, t_max]`; where both are equal it is a point.

    `max_uncertainty` (the papers' pi) bounds the length of every interval, and `min_uncertainty` (rho) bounds it from
    below: rows outside are rejected (WA-1005, WA-1006). Streams need `max_uncertainty`, since it bounds their state.

    >>> Interval("t_min", "t_max", max_uncertainty="500 ms").max_uncertainty_us
    500000
    """

    t_min: str
    t_max: str
    max_uncertainty: Duration | None = None
    min_uncertainty: Duration = 0

    def __post_init__(self) -> None:
        if self.max_uncertainty is not None:
            object.__setattr__(
                self, "max_uncertainty", parse_non_negative(self.max_uncertainty, name="max_uncertainty")
            )
        object.__setattr__(self, "min_uncertainty", parse_non_negative(self.min_uncertainty, name="min_uncertainty"))
        longest = self.max_uncertainty_us
        if longest is not None and self.min_uncertainty_us > longest:
            raise QueryError(
                Code.BAD_OPTION,
                f"min_uncertainty {self.min_uncertainty_us} us exceeds max_uncertainty {longest} us",
                "swap them",
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return (self.t_min, self.t_max)

    @property
    def end_columns(self) -> tuple[str | None, str | None]:
        """Both columns."""
        return self.t_min, self.t_max

    @property
    def min_uncertainty_us(self) -> int:
        """Least length of an interval (rho)."""
        return parse_duration(self.min_uncertainty)

    @property
    def max_uncertainty_us(self) -> int | None:
        """Greatest length of an interval (pi), None where the user declared none."""
        return None if self.max_uncertainty is None else parse_duration(self.max_uncertainty)


@dataclass(frozen=True)
class Around(_Uniform):
    """A time uniform in `[t - before, t + after]`, the same lengths for every row.

    `from_granularity`, `from_polling` and `from_clock` make it. `before` and `after` are durations of zero or more; a
    row whose interval leaves the calendar is rejected (WA-1007).

    Raises QueryError WA-2003 for a negative length, WA-2002 for lengths that are no durations or too long together.

    >>> Around("t", before="1 s", after=0)
    Around(t='t', before=1000000, after=0)
    """

    t: str
    before: Duration
    after: Duration

    def __post_init__(self) -> None:
        for side in ("before", "after"):
            object.__setattr__(self, side, parse_non_negative(getattr(self, side), name=side))
        parse_duration(self.min_uncertainty_us, name="the length of an interval")

    @property
    def columns(self) -> tuple[str, ...]:
        """The column it reads."""
        return (self.t,)

    @property
    def min_uncertainty_us(self) -> int:
        """Length of every interval."""
        return parse_duration(self.before) + parse_duration(self.after)

    @property
    def max_uncertainty_us(self) -> int | None:
        """Length of every interval."""
        return self.min_uncertainty_us

    @property
    def end_columns(self) -> tuple[str | None, str | None]:
        """None: both ends are computed."""
        return None, None

    def ends(self, times: Sequence[IntArray], template: IntArray | None) -> tuple[IntArray, IntArray]:
        """The column, shifted both ways."""
        return times[0] - parse_duration(self.before), times[0] + parse_duration(self.after)


class _Templated:
    """A time distributed as one of several registered templates, which a column names where there are more than one."""

    template: str | None
    templates: Any

    def __post_init__(self) -> None:
        registered = _registered(self.templates)
        object.__setattr__(self, "templates", registered)
        if self.template is None and len(registered) != 1:
            raise QueryError(
                Code.BAD_OPTION,
                f"there are {len(registered)} templates, and no column says which one a row has",
                f'give {type(self).__name__}(..., template="column")',
            )

    @property
    def template_column(self) -> str | None:
        """The column that names a row's template."""
        return self.template

    @property
    def min_uncertainty_us(self) -> int:
        """Length of the shortest template."""
        return int(min(template.length_us for _, template in self.templates))

    @property
    def max_uncertainty_us(self) -> int | None:
        """Length of the longest template."""
        return int(max(template.length_us for _, template in self.templates))

    def _of_rows(self, values: Iterable[int], template: IntArray | None) -> IntArray | np.int64:
        """A number of every template, looked up for every row."""
        table = np.array(list(values), np.int64)
        return np.int64(table[0]) if template is None else table[template]


@dataclass(frozen=True)
class Histogram(_Templated):
    """A time distributed as a template that ends at column `t_max` (PTJoin section 2): `H = phi + t_max - max(phi)`.

    `template` names the column that says which of `templates` a row has (text, or integers, compared as text); without
    it all rows have the one template. `templates`: a mapping of names to `Template` or `[(lo, hi, p), ...]`, or the
    path of a JSON file of the same form. A row that names no registered template is rejected (WA-1013).

    Raises InputError WA-1012 for a template that is none, QueryError WA-2006 for several templates without a column.

    >>> Histogram("t", template="kind", templates={"fast": [(0, 10, .5), (10, 40, .5)]}).max_uncertainty_us
    40
    """

    t_max: str
    template: str | None = None
    templates: Any = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of the anchor."""
        return (self.t_max,)

    @property
    def end_columns(self) -> tuple[str | None, str | None]:
        """The anchor is the end."""
        return None, self.t_max

    def ends(self, times: Sequence[IntArray], template: IntArray | None) -> tuple[IntArray, IntArray]:
        """From the start of each row's support to its anchor."""
        return times[-1] - self._of_rows((phi.length_us for _, phi in self.templates), template), times[-1]


@dataclass(frozen=True, repr=False)
class Distributed(_Templated):
    """A time distributed as a template about column `t`: `H = t + phi`, so the template's offset 0 is the instant `t`.

    `Histogram` with another anchor: here a template may lie on both sides of `t`, or wholly before it. `template`,
    `templates` and the errors are those of `Histogram`; `from_distribution` and `from_latency` make it.

    >>> Distributed("t", templates=Template(((-30, -10, .5), (-10, 5, .5))))
    Distributed('t', template: 2 buckets in [t - 30, t + 5] us)
    """

    t: str
    template: str | None = None
    templates: Any = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The column about which the templates lie."""
        return (self.t,)

    @property
    def end_columns(self) -> tuple[str | None, str | None]:
        """None: both ends are computed."""
        return None, None

    def ends(self, times: Sequence[IntArray], template: IntArray | None) -> tuple[IntArray, IntArray]:
        """From the start of each row's support to its anchor, the instant at which its template ends."""
        t_max = times[-1] + self._of_rows((phi.end_us for _, phi in self.templates), template)
        return t_max - self._of_rows((phi.length_us for _, phi in self.templates), template), t_max

    def __repr__(self) -> str:
        """Each template by its name, its number of buckets and its support: the buckets themselves would be a page."""
        kinds = [
            f"{name}: {len(phi.masses)} buckets in [{_about(self.t, phi.end_us + phi.edges[0])}, "
            f"{_about(self.t, phi.end_us + phi.edges[-1])}] us"
            for name, phi in self.templates
        ]
        column = "" if self.template is None else f"template={self.template!r}, "
        return f"Distributed({self.t!r}, {column}{'; '.join(kinds)})"


def _about(name: str, offset: int) -> str:
    return f"{name} {'-' if offset < 0 else '+'} {abs(offset)}" if offset else name


def _registered(source: Any) -> tuple[tuple[str, Template], ...]:
    if isinstance(source, Template):
        return (("template", source),)
    if isinstance(source, tuple) and source:
        return source  # as another Histogram holds them
    return read_templates({} if source is None or isinstance(source, tuple) else source)


@dataclass(frozen=True, slots=True)
class Lateness:
    """How far behind its side's greatest `t_max` a row may come and still count, for each side of a join.

    `idle_after`: a side whose clock (its greatest `t_max` less its lateness) is so far behind the other side's is idle:
    it no longer holds the watermark back, so that results come out and state stays bounded while one side is silent.
    The other side's event time tells it, no wall clock does: a replay gives the same rows. What counts is when its last
    block (file, micro-batch) began, so that no side is idle for the length of a block. When the idle side goes on, rows
    that the watermark has passed are late, and rejected as such. None: a silent side is waited for.

    >>> Lateness(left="5 s")
    Lateness(left=5000000, right=0, idle_after=None)
    """

    left: Duration = 0
    right: Duration = 0
    idle_after: Duration | None = None

    def __post_init__(self) -> None:
        if self.idle_after is not None:
            object.__setattr__(self, "idle_after", parse_non_negative(self.idle_after, name="idle_after"))
        for side in ("left", "right"):
            object.__setattr__(self, side, parse_non_negative(getattr(self, side), name=f"lateness of the {side} side"))

    @classmethod
    def of(cls, given: Lateness | Duration | Mapping[str, Duration] | None) -> Lateness | None:
        """What a user wrote: one duration is that of both sides, a mapping has those of `left` and `right`.

        Raises QueryError WA-2002 for what is no duration, WA-2006 for another side.

        >>> Lateness.of("5 s") == Lateness("5 s", "5 s"), Lateness.of({"right": "1 s"}), Lateness.of(None)
        (True, Lateness(left=0, right=1000000, idle_after=None), None)
        """
        if given is None or isinstance(given, Lateness):
            return given
        if not isinstance(given, Mapping):
            return cls(given, given)
        unknown = [side for side in given if side not in ("left", "right")]
        if unknown:
            raise QueryError(
                Code.BAD_OPTION,
                f"lateness is given for {', '.join(map(repr, unknown))}",
                "the sides are left and right",
            )
        return cls(**given)

    @property
    def per_input_us(self) -> tuple[int, int]:
        """Microseconds for the left and the right input."""
        return parse_duration(self.left), parse_duration(self.right)

    @property
    def idle_after_us(self) -> int | None:
        """Microseconds, None where a silent side is waited for."""
        return None if self.idle_after is None else parse_duration(self.idle_after)
