"""Profiles a column of times: what it is, how uncertain it makes events, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.clocks.profile.columns import FEW, LEAST_DISTINCT, LEAST_ROWS, ROW_ORDER, Readings, readings
from whenabouts.core.clocks.profile.findings import Finding, examples, gravest_first, percent
from whenabouts.core.clocks.profile.gaps import duplicates, outage_finding
from whenabouts.core.clocks.profile.group_profile import GroupProfile, exact
from whenabouts.core.clocks.profile.report import Profile
from whenabouts.core.clocks.profile.steps import backward_steps, level_steps, offset_findings, step_findings
from whenabouts.core.clocks.profile.zones import QUARTER, Days
from whenabouts.core.deprecation import takes_old_names
from whenabouts.core.durations import format_duration
from whenabouts.core.errors import Code
from whenabouts.core.runtime.option_checks import columns_of, counted, text, whole_number

_BINS = 120
_NO_ORDER = 0.1
"""Rows of which half lag by a tenth of the span are in no order of arrival."""

_ZONED_GROUPS = 50


class Unreadable(NamedTuple):
    """Rows in which a column of a file holds something that is no time: in the table they are null.

    `rows`: their numbers. `example`: the first of them as written. `outside`: they are times, but of no year from 1 to
    9999.
    """

    column: str
    rows: IntArray
    example: str
    outside: bool


@takes_old_names("frame", "table")
def profile(
    frame: Any,
    time: str,
    *,
    group: str | Sequence[str] | None = None,
    arrival: str = ROW_ORDER,
    max_rows: int = 10_000_000,
    seed: int = 0,
) -> Profile:
    """What a column of times says of itself: how uncertain it is, and what is wrong with it.

    - **Unit and sentinels**: integers that look like another unit than the declared one, rows of mixed units, values
      such as 0 or 9999-12-31 that stand for "no time". What is found is left out of the rest.
    - **Granularity**: the shares of rows cut to milliseconds, seconds, minutes, ..., as a mixture fitted by expectation
      maximisation (Dempster, Laird and Rubin 1977) to how many rows are multiples of what; ticks of other lengths.
    - **Polling**: a period at which rows are found, by the concentration of phases (Rayleigh 1919).
    - **Duplicates and outages**: equal times beyond chance, equal rows, and improbable gaps.
    - **Order**: how far rows lag behind earlier ones, and the lateness that a stream of them needs.
    - **Clock steps**: jumps of the clock in the order of arrival, with the time zones that an hour fits.
    - **Zones**: groups whose days look alike but shifted.

    `frame`: any dataframe, a pyarrow Dataset or RecordBatchReader (read by chunks, only the named columns), a DataFrame
    of Spark, or a Table, rows or Blocks of Flink that end. `time`: a timestamp column, or integers. `group`: columns;
    each group of 20 rows or more is profiled by itself (the 200 greatest), the others together as "few"; one with fewer
    than ten different times has the specification of all. `arrival`: a column of times of arrival; default: rows
    arrived in their order (those of Spark and Flink have none). `seed`: of resampled days and drawn rows.

    Of more than `max_rows` rows all are counted, for units, sentinels, granularities, groups and the span; polls,
    duplicates, short outages, order and steps are looked for in about `max_rows` of them, the rows of up to 16
    stretches of time, and zones in a random sample. A finding, `sample`, says so. Of a reader, which is read once, they
    are the first rows.

    The same rows in another order give the same profile, but for order, steps, and examples. `str()` of a profile, its
    `to_dict()`, `to_html()` and `plot()` are reports; `spec()`, `specs()` and `lateness()` what joins take.

    Raises: InputError WA-1001 for a missing column, WA-1002 for one that holds no times, WA-1062 for what is no frame,
    or rows that do not end, WA-1065 for a Table of Flink with updates; QueryError WA-2006 for other arguments. Cost:
    O(n log n), half a second to three seconds for a million rows. On Spark and Flink rows are counted first; then about
    `max_rows` rows at most come into this process, and of more there are two passes over the named columns.

    >>> import pyarrow as pa
    >>> seconds = np.random.default_rng(0).integers(0, 86_400, 1000)
    >>> found = profile(pa.table({"t": 1_700_000_000_000_000 + np.sort(seconds) * 1_000_000}), "t")
    >>> found.spec()
    Around(t='t', before=0, after=1000000)
    >>> [finding.kind for finding in found.findings if finding.severity != "note"]
    []
    """
    return profile_of_file(frame, time, (), group=group, arrival=arrival, max_rows=max_rows, seed=seed)


def profile_of_file(
    frame: Any,
    time: str,
    unreadable: Sequence[Unreadable],
    *,
    group: str | Sequence[str] | None = None,
    arrival: str = ROW_ORDER,
    max_rows: int = 10_000_000,
    seed: int = 0,
) -> Profile:
    """As `profile`, of rows that were read from a file, with those whose time cannot be read."""
    text("time", time)
    text("arrival", arrival)
    max_rows, seed = whole_number("max_rows", max_rows), whole_number("seed", seed, 0)
    columns = () if group is None else columns_of("group", group)
    read = readings(frame, time, columns, arrival, max_rows, seed)
    sample = read.sample
    whole = GroupProfile.of((), read.us, read.arrival_us, read.tick_us, None if sample is None else sample.whole)
    named = {}
    if columns:
        for number, (key, at) in enumerate(_members(read)):
            arrived = None if read.arrival_us is None else read.arrival_us[at]
            known = None if sample is None else sample.groups[number]
            named[key] = GroupProfile.of(key, read.us[at], arrived, read.tick_us, known)
    unread = [each._replace(rows=each.rows[each.rows < read.rows]) for each in unreadable]  # of those that were read
    nulls = read.nulls - sum(len(each.rows) for each in unread if each.column == time)
    read = replace(read, nulls=nulls)
    findings = gravest_first([*_unread(unread, read.rows), *read.findings, *_found(read, whole, named, seed)])
    if not read.numbered:
        findings = tuple(replace(found, where=()) for found in findings)
    first, last = whole.span_us
    edges = np.linspace(first, max(last, first + 1), _BINS + 1)
    drawn = read.us if sample is None else sample.whole.uniform
    counts = np.histogram(drawn, edges)[0] if len(drawn) else np.zeros(_BINS, np.int64)
    counts = np.rint(counts * (whole.rows / max(1, len(drawn)))).astype(np.int64)
    groups = {key[0] if len(key) == 1 else key: each for key, each in named.items()}
    column = None if arrival == ROW_ORDER else arrival
    parts = tuple(counts.tolist())
    sampled = None if sample is None else len(read.us)
    return Profile(
        time,
        columns,
        read.rows,
        read.nulls,
        whole.span_us,
        groups,
        whole,
        findings,
        parts,
        column,
        read.ordered,
        sampled,
    )


def _members(read: Readings, group: IntArray | None = None) -> Iterator[tuple[tuple[Any, ...], IntArray]]:
    """The groups with the positions of their rows in the order of arrival, small ones together; or of `group`, the
    group numbers of other rows."""
    group = read.group if group is None else group
    order = np.argsort(group, kind="stable")
    ends = np.searchsorted(group[order], np.arange(len(read.keys) + 2))
    few = (FEW,) if (FEW,) not in read.keys else (f"{FEW} rows",)
    for number, key in enumerate((*read.keys, few)):
        at = order[ends[number] : ends[number + 1]]
        if len(at) or (read.sample is not None and number < len(read.sample.groups)):
            yield key, at


def _unread(unreadable: Sequence[Unreadable], total: int) -> Iterator[Finding]:
    for column, rows, example, outside in unreadable:
        if not len(rows):
            continue
        share = len(rows) / total
        where = examples(rows)
        if outside:
            yield Finding(
                "out of range", "wrong", share, where,
                f"{percent(share)} of the rows lie outside the years 1 to 9999 in {column!r}, such as {example!r}.",
                "Make them null.",
            )  # fmt: skip
        else:
            yield Finding(
                "unreadable", "wrong", share, where,
                f"{percent(share)} of the rows have no readable time in column {column!r}, such as {example!r}.",
                f"Mend them where they are written: joins reject them ({Code.UNPARSABLE_TIME}).",
            )  # fmt: skip


def _found(
    read: Readings, whole: GroupProfile, groups: dict[tuple[Any, ...], GroupProfile], seed: int
) -> Iterator[Finding]:
    if read.nulls:
        yield Finding(
            "null", "note", read.nulls / read.rows, (), f"{percent(read.nulls / read.rows)} of the rows have no time.",
            "They are rejected (WA-1003).",
        )  # fmt: skip
    if whole.rows < LEAST_ROWS or whole.distinct < LEAST_DISTINCT:
        few = (
            f"{counted(whole.rows, 'usable row')} {'is' if whole.rows == 1 else 'are'}"
            if whole.rows < LEAST_ROWS
            else f"{whole.distinct} different times in {whole.rows:,} usable rows are"
            if whole.distinct > 1
            else f"All {whole.rows:,} usable rows have one time, which is"
        )
        yield Finding(
            "too few", "doubt", 1.0, (), f"{few} too few to judge their times.",
            f"Give {LEAST_ROWS} or more, of {LEAST_DISTINCT} different times at least.",
        )  # fmt: skip
        return
    each = groups or {(): whole}
    yield from _granularities(read, whole, each)
    yield from _polls(each)
    order = np.lexsort((read.us, read.group))
    ranks = read.ranks
    yield from duplicates(
        read.us[order], read.group[order], read.row[order], whole.granule_us, ranks, grouped=bool(groups)
    )
    yield from _silences(read, whole, groups)
    if len(groups) > 1:
        yield from _zones(read, seed)
    if not read.ordered:
        return
    yield from _order(whole)
    if whole.order.sorted or whole.order.lags_us[0] <= _NO_ORDER * (whole.span_us[1] - whole.span_us[0]):
        yield from _steps(read, each)


def _name(key: tuple[Any, ...]) -> str:
    return ", ".join(map(str, key)) if key else "the column"


def _granularities(read: Readings, whole: GroupProfile, each: dict[tuple[Any, ...], GroupProfile]) -> Iterator[Finding]:
    mixed = {key: found for key, found in each.items() if found.mixed}
    for key, found in list(mixed.items())[:5]:
        coarse = found.granules[0].granule_us
        on = (read.us % coarse == 0) & (read.group == _number(read, key))
        yield Finding(
            "granularity", "doubt", 1 - found.granules[-1].share, examples(read.row, on),
            f"The times of {_name(key)} have several granularities: {found.granularity()}.",
            "Find out which rows are which (a column of sources, of versions) and give each its own specification; "
            "the coarsest is proposed for all.",
        )  # fmt: skip
    if not mixed and whole.granule_us > 1:
        several = len({found.granule_us for found in each.values()}) > 1
        unknown = "" if whole.rounding == "nearest" else " Whether times were cut or rounded cannot be seen from them."
        yield Finding(
            "granularity", "note", 1.0, (),
            f"Times have a granularity of {whole.granularity()}" + (", not the same in all groups." if several else ".")
            + unknown,
            'If they were rounded, say rounding="nearest".' if unknown else "They were rounded to the nearest.",
        )  # fmt: skip
    if whole.dust:
        yield Finding(
            "float dust", "note", whole.dust, (),
            f"{percent(whole.dust)} of the rows are a microsecond or two off their granularity: they were floats once.",
        )  # fmt: skip


def _number(read: Readings, key: tuple[Any, ...]) -> int:
    return read.keys.index(key) if key in read.keys else len(read.keys)


def _polls(each: dict[tuple[Any, ...], GroupProfile]) -> Iterator[Finding]:
    polled = {key: found.polling for key, found in each.items() if found.polling is not None}
    if not polled:
        return
    rows = sum(each[key].rows for key in polled) / max(1, sum(found.rows for found in each.values()))
    key, poll = next(iter(polled.items()))
    whose = _name(key) if len(polled) == 1 else f"{len(polled)} groups (first: {_name(key)})"
    skipped, gaps = "", ""
    if poll.skipped > 0.005:
        skipped = f", {percent(poll.skipped)} of the polls without a row"
        least, longest = exact(poll.least_us), exact(poll.longest_us)
        gaps = (
            f" The specification, {longest}, allows for polls without a row that were not made (99.5 % of the gaps are "
            f'no longer); if they were made and found nothing, say "{least}".'
        )
    remedy = "If a poll finds events, they happened up to a period before; a sensor that reads its value then is exact."
    yield Finding(
        "polling", "note", rows, (),
        f"Rows of {whose} come every {format_duration(round(poll.period_us, 1))}{skipped}; phases concentrate to "
        f"{poll.local:.2f} locally and {poll.overall:.2f} over all times.",
        remedy + gaps,
    )  # fmt: skip


def _silences(read: Readings, whole: GroupProfile, groups: dict[tuple[Any, ...], GroupProfile]) -> Iterator[Finding]:
    span = whole.span_us[1] - whole.span_us[0]
    if whole.outages:
        yield outage_finding(list(whole.outages), span, "The recorder" if groups else "The source")
    together = {(gap.start_us, gap.end_us) for gap in whole.outages}
    shown = 0
    for key, found in groups.items():
        own = [
            gap for gap in found.outages
            if not any(start <= gap.end_us and gap.start_us <= end for start, end in together)
        ]  # fmt: skip
        if own and shown < 5:
            shown += 1
            yield outage_finding(own, span, f"Source {_name(key)}")


def _order(whole: GroupProfile) -> Iterator[Finding]:
    order = whole.order
    if order.sorted:
        return
    span = whole.span_us[1] - whole.span_us[0]
    if order.lags_us[0] > _NO_ORDER * span:
        yield Finding(
            "order", "doubt", order.behind, (),
            f"The rows are in no order of time: half of them lag {format_duration(order.lags_us[0])} or more.",
            "If they are not in the order of arrival, give arrival=, or sort them; the lateness is of no use then.",
        )  # fmt: skip
    else:
        yield Finding("order", "note", order.behind, (), order.sentence(), "A stream of them needs a lateness.")


def _steps(read: Readings, each: dict[tuple[Any, ...], GroupProfile]) -> Iterator[Finding]:
    names, differences = [], []
    for key, at in _members(read) if len(each) > 1 or () not in each else [((), np.arange(len(read.us)))]:
        if _number(read, key) == len(read.keys):
            continue  # small groups together: the rows of many clocks
        if not len(at):
            continue  # none of its rows is in the sample
        us, found = read.us[at], each[key]
        if read.arrival_us is None:
            steps = backward_steps(us)
        else:
            steps = level_steps(us, read.arrival_us[at])
            names.append(_name(key))
            differences.append(us - read.arrival_us[at])
        yield from step_findings(steps, read.row[at], found.granule_us, len(read.us), f"The clock of {_name(key)}")
    if len(differences) > 1:
        yield from offset_findings(names, differences, [len(rest) for rest in differences])


def _zones(read: Readings, seed: int) -> Iterator[Finding]:
    us, group = (read.us, read.group) if read.sample is None else (read.sample.whole.uniform, read.sample.drawn)
    days = Days(us)
    members = sorted(_members(read, group), key=lambda each: -len(each[1]))[:_ZONED_GROUPS]
    if len(members) == 2:
        members = members[1:]  # the offset of two is one finding
    for key, at in members:
        offset = days.offset(us[at], seed)
        if offset is not None:
            yield Finding(
                "zone", "doubt", len(at) / len(us), examples(read.row[at]) if read.sample is None else (),
                f"The days of {_name(key)} look like those of the other groups, shifted by "
                f"{format_duration(offset * QUARTER)}: perhaps it writes local times.",
                "Compare events that several groups see; a daily pattern alone proves nothing.",
            )  # fmt: skip
