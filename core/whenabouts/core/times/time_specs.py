"""How a stream's rows state their times: as a point, a uniform interval, or a histogram.

`times.spec_builders` and `times.clock_errors` build these specifications from how readings were made, `times.learned`
from data.

A specification names columns of the user's rows. When rows enter (`runtime.event_reader`), these become two int64
columns in microseconds and, with templates, each row's template number. Columns are TIMESTAMP of any unit (naive ones
are read as UTC, digits finer than a microsecond are truncated), or int64 microseconds since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.durations import Duration, parse_duration, parse_non_negative
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.times.templates import Template, read_templates


class TimeSpec(Protocol):
    """What the reader and the operators need to know about a stream's times."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The time columns that it reads."""

    @property
    def min_uncertainty_us(self) -> int:
        """Least length of an interval (the papers' rho)."""

    @property
    def max_uncertainty_us(self) -> int | None:
        """Greatest length of an interval (the papers' pi), None if the user declared none."""

    @property
    def template_column(self) -> str | None:
        """The column that names each row's template, None without one."""

    @property
    def templates(self) -> tuple[tuple[str, Template], ...]:
        """The registered templates with their names; empty if times are uniform between their ends."""

    @property
    def end_columns(self) -> tuple[str | None, str | None]:
        """The columns that hold `t_min` and `t_max` unchanged, None for an end that is computed."""

    def ends(self, times: Sequence[IntArray], template: IntArray | None) -> tuple[IntArray, IntArray]:
        """`t_min` and `t_max` of rows, from their time columns in microseconds and their template numbers."""


class _Uniform:
    """A time that is uniform between two columns, which may be the same one."""

    @property
    def template_column(self) -> str | None:
        """None: no row names a template."""
        return None

    @property
    def templates(self) -> tuple[tuple[str, Template], ...]:
        """Empty: none is registered."""
        return ()

    def ends(self, times: Sequence[IntArray], template: IntArray | None) -> tuple[IntArray, IntArray]:
        """The first and the last column, unchanged."""
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
    """A time uniform in `[t_min, t_max]`; a point where both are equal.

    `max_uncertainty` (the papers' pi) and `min_uncertainty` (rho) bound the length of every interval: rows outside are
    rejected (WA-1005, WA-1006). Streams need `max_uncertainty`, since it bounds their state.

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
    """A time uniform in `[t - before, t + after]`, with the same lengths for every row.

    `from_granularity`, `from_polling` and `from_clock` make it. `before` and `after` are durations >= 0; a row whose
    interval leaves the years 1 to 9999 is rejected (WA-1007).

    Raises QueryError WA-2003 for a negative length, WA-2002 for an invalid one or two that are too long together.

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
        """The column, shifted in both directions."""
        return times[0] - parse_duration(self.before), times[0] + parse_duration(self.after)


class Templated:
    """A time distributed as one of the registered templates; a column names it if there is more than one."""

    template: str | None
    templates: Any

    def __post_init__(self) -> None:
        registered = _registered(self.templates)
        object.__setattr__(self, "templates", registered)
        if self.template is None and len(registered) != 1:
            raise QueryError(
                Code.BAD_OPTION,
                f"there are {len(registered)} templates, and no column names each row's",
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
        """Each row's value, given one value per template."""
        table = np.array(list(values), np.int64)
        return np.int64(table[0]) if template is None else table[template]

    def ends_about(self, t: IntArray, template: IntArray | None) -> tuple[IntArray, IntArray]:
        """The ends of rows whose templates' offset 0 lies at `t`: from the start of the support to the anchor."""
        t_max = t + self._of_rows((phi.end_us for _, phi in self.templates), template)
        return t_max - self._of_rows((phi.length_us for _, phi in self.templates), template), t_max

    def described(self, t: str) -> str:
        """Each template's name, number of buckets and support about `t`, since the buckets would fill a page."""
        kinds = [
            f"{name}: {len(phi.masses)} buckets in [{_about(t, phi.end_us + phi.edges[0])}, "
            f"{_about(t, phi.end_us + phi.edges[-1])}] us"
            for name, phi in self.templates
        ]
        column = "" if self.template is None else f"template={self.template!r}, "
        return f"{column}{'; '.join(kinds)}"


@dataclass(frozen=True)
class Histogram(Templated):
    """A time distributed as a template that ends at column `t_max` (PTJoin section 2): `H = phi + t_max - max(phi)`.

    `template` is the column with the name of each row's template (text, or integers, which are compared as text);
    without it all rows have the one template. `templates`: a mapping of names to `Template` or `[(lo, hi, p), ...]`, or
    the path of a JSON file of the same form. A row that names no registered template is rejected (WA-1013).

    Raises InputError WA-1012 for an invalid template, QueryError WA-2006 for several templates without a column.

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
        """The anchor is `t_max`."""
        return None, self.t_max

    def ends(self, times: Sequence[IntArray], template: IntArray | None) -> tuple[IntArray, IntArray]:
        """From the start of each row's support to its anchor."""
        return times[-1] - self._of_rows((phi.length_us for _, phi in self.templates), template), times[-1]


@dataclass(frozen=True, repr=False)
class Distributed(Templated):
    """A time distributed as a template relative to column `t`: `H = t + phi`, so the template's offset 0 is `t`.

    A `Histogram` with another anchor: here a template may lie on both sides of `t`, or entirely before it. `template`,
    `templates` and the errors are those of `Histogram`; `from_distribution` and `from_latency` make it.

    >>> Distributed("t", templates=Template(((-30, -10, .5), (-10, 5, .5))))
    Distributed('t', template: 2 buckets in [t - 30, t + 5] us)
    """

    t: str
    template: str | None = None
    templates: Any = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The column that the templates are relative to."""
        return (self.t,)

    @property
    def end_columns(self) -> tuple[str | None, str | None]:
        """None: both ends are computed."""
        return None, None

    def ends(self, times: Sequence[IntArray], template: IntArray | None) -> tuple[IntArray, IntArray]:
        """From the start of each row's support to its anchor, at which the template ends."""
        return self.ends_about(times[-1], template)

    def __repr__(self) -> str:
        """The column and what its templates span."""
        return f"Distributed({self.t!r}, {self.described(self.t)})"


def _about(name: str, offset: int) -> str:
    return f"{name} {'-' if offset < 0 else '+'} {abs(offset)}" if offset else name


def _registered(source: Any) -> tuple[tuple[str, Template], ...]:
    if isinstance(source, Template):
        return (("template", source),)
    if isinstance(source, tuple) and source:
        return source  # as another Histogram holds them
    return read_templates({} if source is None or isinstance(source, tuple) else source)
