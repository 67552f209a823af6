"""The profile of a column: its specifications, and its reports as text, dict, page and picture."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from whenabouts.core.clocks.profile.columns import LEAST_DISTINCT, with_ends
from whenabouts.core.clocks.profile.findings import Finding, percent
from whenabouts.core.clocks.profile.gaps import instant
from whenabouts.core.clocks.profile.group_profile import GroupProfile, exact
from whenabouts.core.deprecation import takes_old_names
from whenabouts.core.durations import format_duration, number_of
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.explain.pair_picture import LEFT_COLOUR, RIGHT_COLOUR, new_figure
from whenabouts.core.html_tables import html_page, html_table
from whenabouts.core.runtime.option_checks import counted
from whenabouts.core.times.time_specs import TimeSpec

Frame = TypeVar("Frame")
"""The type of a dataframe of any library."""

_SHARE = 0.999
_UNREADABLE = ("unit", "mixed units", "float", "type", "too few")
"""Kinds of findings after which no specification of the column as it is means anything."""

_SHOWN_GROUPS = 12


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """What `profile` found in a column of times.

    `rows`, `nulls`: of the table. `span_us`: the first and the last usable time. `groups`: a `GroupProfile` by key (a
    value, or a tuple of several), empty without `group`. `whole`: that of all rows. `findings`: the gravest first.
    `counts`: rows in 120 equal parts of the span. `arrival`: the column of times of arrival, None for the rows' order;
    `ordered`: whether rows have one. `sampled`: in how many rows polls, duplicates, outages, order and steps were
    looked for, None if in all; all else is counted exactly (but `counts`, in proportion to a uniform sample).
    """

    time: str
    group: tuple[str, ...]
    rows: int
    nulls: int
    span_us: tuple[int, int]
    groups: dict[Any, GroupProfile]
    whole: GroupProfile
    findings: tuple[Finding, ...]
    counts: tuple[int, ...]
    arrival: str | None = None
    ordered: bool = True
    sampled: int | None = None

    def spec(self, group: Any = None) -> TimeSpec:
        """The time specification of the column, or of one group's rows.

        Without `group` it holds for all rows: where groups differ it is the widest of theirs.

        Raises InputError WA-1081 where the column cannot be read as it is (a wrong unit, floats), or has under 20
        usable rows or ten different times; QueryError WA-2074 for a group that is not there.
        """
        return self._readable(group).spec(self.time)

    def specs(self) -> dict[Any, TimeSpec]:
        """The time specification of each group. Raises InputError WA-1081 as `spec`."""
        return {key: self.spec(key) for key in self.groups}

    @takes_old_names("frame", "table")
    def with_interval(self, frame: Frame, t_min: str = "t_min", t_max: str = "t_max") -> Frame:
        """The rows with two columns more: between which times each event lies, by the specification of its group.

        Rows of groups that were not profiled get the widest interval, rows without a time none. The columns are of
        the type of the time column; the result is of the kind of `frame`. Join it with `Interval(t_min, t_max)`.

        Raises InputError WA-1081 as `spec`, WA-1001 for a missing column; QueryError WA-2009 if a name is taken. O(n).

        >>> from whenabouts.core.clocks.profile.profile import profile
        >>> import pyarrow as pa
        >>> rows = pa.table({"t": [n * 1_000_000 for n in range(50)]})
        >>> profile(rows, "t").with_interval(rows).slice(7, 1).to_pylist()
        [{'t': 7000000, 't_min': 7000000, 't_max': 8000000}]
        """
        specs = {key if isinstance(key, tuple) else (key,): self.spec(key) for key in self.groups}
        rows: Frame = with_ends(frame, self.time, self.group, specs, self.spec(), (t_min, t_max))
        return rows

    def lateness(self, share: float = _SHARE) -> int:
        """The lateness, in microseconds, at which a stream of these rows has at least `share` of them in time.

        It is the upper 99 % confidence bound of that quantile of the lags (an order statistic), rounded up to two
        digits, plus one granule: 0 if no row lags. Raises QueryError WA-2006 for a share outside (0, 1].

        >>> from whenabouts.core.clocks.profile.profile import profile
        >>> import pyarrow as pa
        >>> seconds = [n + 3 * (n % 50 == 0) for n in range(1000)]  # one in fifty was written three seconds early
        >>> profile(pa.table({"t": [n * 1_000_000 for n in seconds]}), "t").lateness(0.99)
        3000000
        """
        if not 0 < (number_of(share) or 0) <= 1:
            raise QueryError(Code.BAD_OPTION, f"share is {share!r}", "give a number in (0, 1], such as 0.999")
        return self.whole.order.lateness_us(share, self._widest.granule_us)

    @property
    def wrong(self) -> tuple[Finding, ...]:
        """The findings that should be mended before the column is joined."""
        return tuple(found for found in self.findings if found.severity == "wrong")

    @property
    def sentence(self) -> str:
        """The profile in a few words."""
        first, last = self.span_us
        counts = {severity: sum(f.severity == severity for f in self.findings) for severity in ("wrong", "doubt")}
        verdict = ", ".join(f"{n} {severity}" for severity, n in counts.items() if n) or "nothing wrong"
        grouped = f" in {len(self.groups)} groups" if self.groups else ""
        if not self.whole.rows:
            return f"Column {self.time!r} has no usable time in {counted(self.rows, 'row')}: {verdict}."
        return (
            f"Column {self.time!r}: {counted(self.whole.rows, 'time')}{grouped} over {format_duration(last - first)} "
            f"from {instant(first)}, granularity {self.whole.granularity()}: {verdict}."
        )

    def __str__(self) -> str:
        return self.text()

    def text(self, share: float = _SHARE) -> str:
        """The report as text: a sentence, a table, the findings, and the specification to paste.

        `share`: that of rows which the lateness has in time.
        """
        table = self._table(share)
        width = max(len(name) for name, _ in table)
        lines = [self.sentence, "", *(f"{name:<{width}}  {value}" for name, value in table)]
        if self.findings:
            lines += ["", *map(str, self.findings)]
        return "\n".join([*lines, "", self.paste(share)])

    def paste(self, share: float = _SHARE) -> str:
        """The specification as Python, to be pasted; what to do first where there is none."""
        if any(found.kind in _UNREADABLE for found in self.findings):
            return f"No specification: {self._unreadable().remedy}"
        lateness = self.lateness(share)
        late = f', lateness="{exact(lateness)}"' if lateness else ""
        return f"left_time={self._widest.spec_text(self.time)}{late}"

    def option(self, share: float = _SHARE) -> str | None:
        """The specification as options of `whenabouts join`; None where there is none."""
        if any(found.kind in _UNREADABLE for found in self.findings):
            return None
        lateness = self.lateness(share)
        late = (
            f" --lateness {exact(lateness)}".replace(" ", "").replace("--lateness", " --lateness ") if lateness else ""
        )
        return f"--left-time {self._widest.option(self.time)}{late}"

    def to_dict(self) -> dict[str, Any]:
        """The profile as JSON-safe values, times in microseconds since 1970."""
        readable = not any(found.kind in _UNREADABLE for found in self.findings)
        return {
            "time": self.time,
            "group": list(self.group),
            "rows": self.rows,
            "nulls": self.nulls,
            "span_us": list(self.span_us),
            "sentence": self.sentence,
            "ordered": self.ordered,
            "sampled": self.sampled,
            "findings": [found.to_dict() for found in self.findings],
            "lateness_us": self.lateness(),
            "spec": self._widest.spec_text(self.time) if readable else None,
            "whole": self.whole.to_dict(self.time),
            "groups": [{**each.to_dict(self.time), "spec": self._spec_text(each)} for each in self.groups.values()],
        }

    def to_html(self, path: str | PathLike[str]) -> Path:
        """Write the report as one page that needs nothing else, and return its path. Raises OSError where the file
        cannot be written."""
        findings = [(f.severity, f.kind, f.sentence, f.remedy) for f in self.findings]
        parts = [
            f"<p>{escape(self.sentence)}</p>",
            _bars("Rows over time", self.counts, LEFT_COLOUR),
            html_table("Times", ("", ""), self._table(_SHARE)),
            _shares(self.whole),
        ]
        if findings:
            parts.append(html_table("Findings", ("", "kind", "", "to do"), findings))
        if self.groups:
            heads = ("group", "rows", "granularity", "specification")
            parts.append(html_table("Groups", heads, self._group_rows()))
        parts.append(f"<p><code>{escape(self.paste())}</code></p>")
        file = Path(path)
        file.write_text(html_page(f"Times of {self.time}", "\n".join(parts)), encoding="utf-8")
        return file

    def _repr_html_(self) -> str:
        findings = [(found.severity, found.sentence) for found in self.findings]
        return html_table(self.sentence, ("", ""), [*self._table(_SHARE), *findings], self.paste())

    def plot(self) -> Any:
        """A `matplotlib.figure.Figure`: rows over time, and the shares of the granularities.

        Raises QueryError WA-2007 where matplotlib is not installed.
        """
        figure = new_figure((8, 4.2))
        above, below = figure.subplots(2, 1)
        above.bar(range(len(self.counts)), self.counts, width=1.0, color=LEFT_COLOUR)
        first, last = self.span_us
        above.set(xlabel=f"{instant(first)} to {instant(last)}", ylabel="rows", xticks=[])
        shares = list(self.whole.granules)
        below.barh([format_duration(s.granule_us) for s in shares], [s.share for s in shares], color=RIGHT_COLOUR)
        below.set(xlabel="share of rows", xlim=(0, 1), ylabel="granularity")
        figure.suptitle(self.sentence, fontsize="medium", wrap=True)
        return figure

    @property
    def _widest(self) -> GroupProfile:
        """The profile whose specification holds for all rows: the widest of the groups'."""
        each = [found for found in self.groups.values() if found.distinct >= LEAST_DISTINCT] or [self.whole]
        return max(each, key=lambda found: found.spec(self.time).max_uncertainty_us or 0)

    def _telling(self, found: GroupProfile) -> GroupProfile:
        """The profile that says how uncertain the rows of a group are: its own, if it has times enough."""
        return found if found.distinct >= LEAST_DISTINCT else self._widest

    def _spec_text(self, found: GroupProfile) -> str:
        return self._telling(found).spec_text(self.time)

    def _readable(self, group: Any) -> GroupProfile:
        if any(found.kind in _UNREADABLE for found in self.findings):
            found = self._unreadable()
            raise InputError(Code.UNFIT_TIMES, f"column {self.time!r}: {found.sentence}", found.remedy)
        if group is None:
            return self._widest
        if not isinstance(group, Hashable) or group not in self.groups:
            raise QueryError(
                Code.UNKNOWN_NAME,
                f"there is no group {group!r}",
                f"it has {', '.join(map(repr, self.groups)) or 'none'}",
            )
        return self._telling(self.groups[group])

    def _unreadable(self) -> Finding:
        return next(found for found in self.findings if found.kind in _UNREADABLE)

    def _table(self, share: float) -> list[tuple[str, str]]:
        whole, order = self.whole, self.whole.order
        rows = f"{self.rows:,}" + (f" ({self.nulls:,} without a time)" if self.nulls else "")
        table = [("rows", rows)]
        if whole.rows:
            table += [
                ("span", f"{instant(self.span_us[0])} to {instant(self.span_us[1])}"),
                ("granularity", whole.granularity()),
            ]
        if whole.polling is not None:
            table.append(("polling", f"every {format_duration(round(whole.polling.period_us, 1))}"))
        if whole.rows:
            unknown = "Rows of this frame have none: give arrival= for a lateness and steps."
            known = order.sentence(arrived=self.arrival is not None)
            table.append(("order", known if self.ordered else unknown))
        lateness = self.lateness(share)
        if lateness:
            late = percent(order.rejected(lateness)) if order.rejected(lateness) else "none"
            table.append(("lateness", f"{exact(lateness)} for {percent(share)} of the rows ({late} of these later)"))
        shown = list(self.groups.items())[:_SHOWN_GROUPS]
        table += [
            (f"group {_text(key)}", f"{each.rows:,} rows, {each.granularity()}: {self._spec_text(each)}")
            for key, each in shown
        ]
        if len(self.groups) > len(shown):
            table.append(("groups", f"{len(self.groups) - len(shown)} more"))
        return table

    def _group_rows(self) -> list[tuple[object, ...]]:
        return [
            (_text(key), f"{each.rows:,}", each.granularity(), self._spec_text(each))
            for key, each in self.groups.items()
        ]


def _text(key: Any) -> str:
    return ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _bars(title: str, counts: Sequence[int], colour: str) -> str:
    """Bars over time as inline SVG; nothing where there are none."""
    if not any(counts):
        return ""
    most = max(counts)
    bars = "".join(
        f"<rect x='{5 * at}' y='{100 - 100 * n / most:.1f}' width='5' height='{100 * n / most:.1f}'/>"
        for at, n in enumerate(counts)
    )
    size = f"0 0 {5 * len(counts)} 100"
    return f"<p><b>{escape(title)}</b></p><svg viewBox='{size}' fill='{colour}' role='img'>{bars}</svg>"


def _shares(found: GroupProfile) -> str:
    """The shares of the granularities as inline SVG; nothing where there are none."""
    if not found.granules:
        return ""
    bars = "".join(
        f"<rect x='90' y='{20 * at + 3}' width='{480 * share.share:.1f}' height='14' fill='{RIGHT_COLOUR}'/>"
        f"<text x='84' y='{20 * at + 14}' text-anchor='end' font-size='11'>"
        f"{escape(format_duration(share.granule_us))}</text>"
        f"<text x='{96 + 480 * share.share:.1f}' y='{20 * at + 14}' font-size='11'>{percent(share.share)}</text>"
        for at, share in enumerate(found.granules)
    )
    return f"<p><b>Granularity</b></p><svg viewBox='0 0 640 {20 * len(found.granules)}' role='img'>{bars}</svg>"
