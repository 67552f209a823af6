"""Al-Kateb 2010: its worked examples, and for each error in its pseudocode the wrong answer of the printed lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from whenabouts.conformance.coalescing_oracle import (
    CoalescedTuple,
    Predicate,
    Reading,
    all_equivalent,
    coalesced,
    extent_by_rows,
    extent_by_time,
    settle,
)

EQUAL = all_equivalent("equal", None, ["value"])
Fact = tuple[str, float, int]  # group, value, time
Equivalence = Callable[[float, float], bool]


class EndlessLoopError(Exception):
    """The printed loop does not end."""


@dataclass(eq=False)
class Entry:
    """A temporal tuple of the window; `more` is its vector v, the timestamps that were coalesced into it."""

    group: str
    value: float
    start: int
    end: int
    more: list[int] = field(default_factory=list)

    @property
    def times(self) -> list[int]:
        return [self.start, *self.more]


def entry(group: str, value: float, *times: int, end: int | None = None) -> Entry:
    """A tuple in a window that has been correct so far."""
    return Entry(group, value, times[0], times[-1] if end is None else end, list(times[1:]))


class PrintedWindow:
    """The window updates as printed, errors included, to show what is wrong with them.

    Algorithms 1 and 2 with functions 1 to 3, and the time-based variants of sections 4.2.1 and 4.2.2, over a list of
    tuples, oldest first.
    """

    def __init__(
        self, content: list[Entry], *, eager: bool, width: int | None = None, same: Equivalence = lambda a, b: a == b
    ) -> None:
        self.content = content
        self.latest = content[-1] if content else None
        self.eager, self.width, self.same = eager, width, same

    def update(self, group: str, value: float, ts: int) -> None:
        """A new tuple arrives."""
        if self.width is None:
            self._discard_one()
        else:
            self._discard_before(ts - self.width)
        if self.latest is not None and ts < self.latest.start:
            if not self._too_late(ts):
                self._out_of_order(group, value, ts)
        else:
            self._in_order(group, value, ts)

    def shown(self) -> list[tuple[str, float, int, int]]:
        """Group, value, start and end of every tuple."""
        return [(e.group, e.value, e.start, e.end) for e in self.content]

    def held(self) -> list[tuple[int, str]]:
        """Time and group of every reading, in order."""
        return sorted((ts, e.group) for e in self.content for ts in e.times)

    def _discard_one(self) -> None:  # Algorithm 1, lines 1-3; Algorithm 2, lines 1-8
        if not self.content:
            return
        oldest = self.content[0]
        if self.eager and oldest.more:
            oldest.start = oldest.more.pop(0)
        else:
            self.content.pop(0)

    def _discard_before(self, cut: int) -> None:  # the replacements for time-based windows
        while self.content and self.content[0].start < cut:
            oldest = self.content[0]
            if self.eager and oldest.more and oldest.end > cut:
                if oldest.more[0] >= cut:  # the second part would repeat this, with the same start
                    raise EndlessLoopError
                self._split(oldest, cut)
            self.content.pop(0)

    def _too_late(self, ts: int) -> bool:  # Algorithm 1, line 6; Algorithm 2, line 11
        if self.width is not None:
            return ts < ts - self.width
        return bool(self.content) and ts < self.content[0].start

    def _out_of_order(self, group: str, value: float, ts: int) -> None:
        if not self.eager:  # Algorithm 1, lines 9-10; where there is no such tuple the paper says nothing
            before = [e for e in self.content if e.start < ts]
            if before:
                self._add(Entry(group, value, ts, ts), before[-1])
            else:
                self.content.insert(0, Entry(group, value, ts, self.content[0].start))
            return
        target = next(e for e in self.content if e.group == group and e.start < ts < e.end)  # Algorithm 2, line 14
        if self.same(target.value, value):
            self._merge(target, ts)
        else:
            self._add(Entry(group, value, ts, ts), self._split(target, ts))

    def _in_order(self, group: str, value: float, ts: int) -> None:
        new = Entry(group, value, ts, ts)
        if not self.eager:  # Algorithm 1, lines 14-15
            self._add(new, self.latest)
            self.latest = new
            return
        mine = [e for e in self.content if e.group == group]
        self.latest = mine[-1] if mine else self.latest  # Algorithm 2, line 24
        if mine and self.latest is not None and self.same(self.latest.value, value):
            self._merge(self.latest, ts)
        else:
            self._add(new, self.latest)
            self.latest = new

    def _add(self, new: Entry, previous: Entry | None) -> None:  # Function 1
        if previous is None or previous not in self.content:
            self.content.append(new)
            return
        place = self.content.index(previous)
        previous.end = new.start
        new.end = new.start if place + 1 == len(self.content) else self.content[place + 1].start
        self.content.insert(place + 1, new)

    def _merge(self, target: Entry, ts: int) -> None:  # Function 2
        target.more = sorted([*target.more, ts])
        target.end = max(target.end, target.more[-1])

    def _split(self, target: Entry, ts: int) -> Entry:  # Function 3: neither end nor start is touched
        second = Entry(target.group, target.value, target.start, target.end, [t for t in target.more if t >= ts])
        target.more = [t for t in target.more if t <= ts]
        self.content.insert(self.content.index(target) + 1, second)
        return target


def readings(facts: Iterable[Fact]) -> tuple[Reading, ...]:
    return settle([{"group": g, "value": v, "ts": t} for g, v, t in facts], "ts", ["group"]).readings


def shown(runs: Iterable[CoalescedTuple]) -> list[tuple[Any, ...]]:
    return [(run.rows[0]["group"], run.rows[0]["value"], run.start, run.end) for run in runs]


def held(extent: Iterable[Reading]) -> list[tuple[int, str]]:
    return [(reading.ts, reading.row["group"]) for reading in extent]


def last(facts: Iterable[Fact], n: int) -> list[Reading]:
    return extent_by_rows(readings(facts), 10**9, n)


def right(facts: Iterable[Fact], goes_on: Predicate = EQUAL) -> list[tuple[Any, ...]]:
    return shown(coalesced(readings(facts), goes_on))


def printed(window: PrintedWindow, *facts: Fact) -> PrintedWindow:
    for fact in facts:
        window.update(*fact)
    return window


def test_tables_1_to_3_andys_salary() -> None:
    """Table 3 coalesces what Table 2 separates; NOW is the latest tuple's own time until another one arrives."""
    history = [("Andy", 100, 2000), ("Andy", 120, 2004), ("Andy", 120, 2008)]
    assert shown(coalesced(readings(history), lambda a, b: False)) == [
        ("Andy", 100, 2000, 2004),
        ("Andy", 120, 2004, 2008),
        ("Andy", 120, 2008, 2008),
    ]
    assert right(history) == [("Andy", 100, 2000, 2004), ("Andy", 120, 2004, 2008)]
    assert right([*history, ("Andy", 130, 2026)])[1] == ("Andy", 120, 2004, 2026)


def test_figure_2_nine_readings_become_five() -> None:
    values = {"1": (81, 81, 81), "2": (81, 79, 81), "3": (81, 81, 81)}
    facts = [(region, value, hour) for region, three in values.items() for hour, value in enumerate(three, 1)]
    assert sorted(right(facts)) == [
        ("1", 81, 1, 3),
        ("2", 79, 2, 3),
        ("2", 81, 1, 2),
        ("2", 81, 3, 3),
        ("3", 81, 1, 3),
    ]


def test_slip_a_tuple_that_is_too_late_shrinks_the_window() -> None:
    """Lines 1-3 (Alg. 1) and 1-8 (Alg. 2) discard the oldest before line 6 and 11 find the new one too late."""
    facts = [("A", 1, 10), ("A", 2, 20), ("A", 3, 30)]
    for eager in (False, True):
        window = printed(PrintedWindow([entry(*fact) for fact in facts], eager=eager), ("A", 9, 5))
        assert window.held() == [(20, "A"), (30, "A")]
    assert held(last([*facts, ("A", 9, 5)], 3)) == [(10, "A"), (20, "A"), (30, "A")]
    # and one in time is refused, since the tuple before it is gone
    assert printed(PrintedWindow([entry(*fact) for fact in facts], eager=False), ("A", 9, 15)).held() == [
        (20, "A"), (30, "A"),
    ]  # fmt: skip
    assert held(last([*facts, ("A", 9, 15)], 3)) == [(15, "A"), (20, "A"), (30, "A")]


def test_slip_tuples_are_discarded_while_the_window_is_filling() -> None:
    facts = [("A", 1, 10), ("A", 2, 20), ("A", 3, 30)]
    assert printed(PrintedWindow([], eager=False), *facts).held() == [(30, "A")]
    assert held(last(facts, 100)) == [(10, "A"), (20, "A"), (30, "A")]


def test_slip_no_tuple_is_ever_too_late_for_a_time_based_window() -> None:
    """`s_new.ts < s_new.ts - T` is never true: it must be the latest timestamp."""
    facts = [("A", 1, 100), ("A", 2, 110)]
    for eager in (False, True):
        window = PrintedWindow([entry("A", 1, 100, end=110), entry("A", 2, 110)], eager=eager, width=15)
        assert not window._too_late(90)
    window = PrintedWindow([entry("A", 1, 100, end=110), entry("A", 2, 110)], eager=False, width=15)
    assert printed(window, ("A", 9, 90)).held() == [(90, "A"), (100, "A"), (110, "A")]
    assert held(extent_by_time(readings([*facts, ("A", 9, 90)]), 110, 15)) == [(100, "A"), (110, "A")]


def test_slip_a_late_tuple_inside_the_latest_run_passes_as_in_order() -> None:
    """Line 9 compares with the start of the latest run: 30 comes after 10, though 50 is there already."""
    facts = [("A", 1, 10), ("A", 1, 50), ("A", 2, 30)]
    window = printed(PrintedWindow([entry("A", 1, 10, 50)], eager=True, width=100), facts[2])
    assert window.shown() == [("A", 1, 10, 30), ("A", 2, 30, 30)]  # and 50 is inside the run that ends at 30
    assert right(facts) == [("A", 1, 10, 30), ("A", 2, 30, 50), ("A", 1, 50, 50)]


def test_slip_an_out_of_order_tuple_moves_the_window_back() -> None:
    """It becomes the latest one, so that a tuple older than the true latest one is accepted again."""
    window = PrintedWindow([entry("A", 1, 10, 50)], eager=True, width=25)
    printed(window, ("A", 2, 30))
    assert window.latest is not None
    assert window.latest.start == 30  # time went back from 50
    printed(window, ("A", 3, 31))
    assert (31, "A") in window.held()
    printed(window, ("A", 3, 24))  # 24 < 50 - 25
    assert (24, "A") in window.held()
    facts = [("A", 1, 10), ("A", 1, 50), ("A", 2, 30), ("A", 3, 31), ("A", 3, 24)]
    assert held(extent_by_time(readings(facts), 50, 25)) == [(30, "A"), (31, "A"), (50, "A")]


def test_slip_a_tuple_between_two_runs_can_extend_the_later_one() -> None:
    """Lines 14-16 consider only the tuple that contains ts."""
    facts = [("A", 1, 10), ("A", 2, 20), ("A", 2, 15)]
    window = PrintedWindow([entry("A", 1, 10, end=20), entry("A", 2, 20)], eager=True, width=100)
    assert [(value, start) for _, value, start, _ in printed(window, facts[2]).shown() if value == 2] == [
        (2, 15), (2, 20),
    ]  # fmt: skip
    assert right(facts) == [("A", 1, 10, 15), ("A", 2, 15, 20)]


def test_slip_equivalence_must_be_judged_again_on_both_sides() -> None:
    """Lines 15-16: 7 is larger than 1 and joins the increasing run, but 5 is not larger than 7."""
    facts = [("A", 1, 10), ("A", 5, 30), ("A", 7, 20)]
    rises: Callable[[float, float], bool] = lambda a, b: b > a  # noqa: E731  # beside its data it reads better
    window = PrintedWindow([entry("A", 1, 10, 30, end=31), entry("A", 9, 31)], eager=True, width=100, same=rises)
    assert printed(window, facts[2]).content[0].times == [10, 20, 30]
    increasing = all_equivalent("increasing", None, ["value"])
    assert right(facts, increasing) == [("A", 1, 10, 30), ("A", 5, 30, 30)]


def test_slip_the_previous_tuple_must_be_of_the_same_group() -> None:
    """Line 14 (Alg. 1): B ends where the next tuple of A begins, and A does not."""
    facts = [("A", 1, 10), ("B", 1, 20), ("A", 2, 30)]
    window = printed(PrintedWindow([entry(*fact) for fact in facts[:2]], eager=False, width=100), facts[2])
    assert window.shown() == [("A", 1, 10, 10), ("B", 1, 20, 30), ("A", 2, 30, 30)]
    assert sorted(right(facts)) == [("A", 1, 10, 30), ("A", 2, 30, 30), ("B", 1, 20, 20)]


def test_slip_a_split_leaves_an_end_and_a_start_as_they_were() -> None:
    """Function 3: the second part begins where the whole began, before the tuple that separates the parts."""
    facts = [("A", 1, 10), ("A", 1, 30), ("B", 0, 35), ("A", 2, 20)]
    window = PrintedWindow([entry("A", 1, 10, 30), entry("B", 0, 35)], eager=True, width=100)
    assert printed(window, facts[3]).shown() == [
        ("A", 1, 10, 20), ("A", 2, 20, 10), ("A", 1, 10, 30), ("B", 0, 35, 35),
    ]  # fmt: skip
    window = PrintedWindow([entry("A", 1, 10, 30)], eager=True, width=15)
    with pytest.raises(EndlessLoopError):  # and a run that is split for expiry never expires
        window.update("A", 2, 35)
    assert [run for run in right(facts) if run[0] == "A"] == [("A", 1, 10, 20), ("A", 2, 20, 30), ("A", 1, 30, 30)]


def test_slip_with_groups_the_oldest_tuple_is_stale_after_a_pop() -> None:
    """Lines 1-4 pop from the run that was the oldest: the next pop must be B2, not A5."""
    facts = [("A", 1, 1), ("B", 1, 2), ("A", 1, 5), ("B", 1, 6), ("A", 1, 9), ("B", 1, 10)]
    window = PrintedWindow([entry("A", 1, 1, 5), entry("B", 1, 2, 6)], eager=True)
    assert printed(window, *facts[4:]).held() == [(2, "B"), (6, "B"), (9, "A"), (10, "B")]
    assert held(last(facts, 4)) == [(5, "A"), (6, "B"), (9, "A"), (10, "B")]
