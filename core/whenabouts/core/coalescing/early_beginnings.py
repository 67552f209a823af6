"""Where a single extent begins in each list, before a step and after it: at one time for all, or so many rows back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whenabouts.core.arrays.row_ranks import ranks_of_rows
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.coalescing.early_index import Beginning, EarlyIndex, Moves
from whenabouts.core.coalescing.schedule import FIRST, Progress, floor_of
from whenabouts.core.coalescing.window_spec import Extents
from whenabouts.core.runtime.protocol import END_OF_TIME


class NewTuples(NamedTuple):
    """The lists and times of tuples that a step adds, in any order."""

    lists: IntArray
    times: IntArray


def moves_of(
    index: EarlyIndex, extents: Extents, arrived: IntArray, new: NewTuples, was: Progress, now: Progress
) -> Moves:
    """Where the extent begins, before tuples are added: now, and no later than where after that.

    Only in lists where that can change, or in which tuples `arrived`, new ones or in place of others. If rows of all
    groups are counted, the index then has where it will begin. O(groups log n), and if rows are counted the new ones.
    """
    window = extents.window
    if window.rows is not None:
        of = index.lists_in_order
        if window.per_group:
            added = np.bincount(new.lists, minlength=int(of.max(initial=-1)) + 1)[of]
            before = index.times_from_the_end(of, np.full(len(of), window.rows))
            return Moves(of, before, index.times_from_the_end(of, window.rows - added))
        began = index.beginning or _beginning(index, window.rows, NewTuples(of[:0], of[:0]))
        index.beginning = began
        index.beginning = begins = _beginning(index, window.rows, new)
        return Moves(of, began.of_lists(of), begins.of_lists(of))
    if extents.is_history or extents.at_us is not None:
        of = np.unique(arrived)
        lows = np.full(len(of), FIRST if extents.at_us is None else floor_of(extents, Progress(until=extents.at_us)))
        return Moves(of, lows, lows)
    of = index.lists_in_order
    return Moves(of, *(np.full(len(of), max(each.latest - window.reach_us, FIRST)) for each in (was, now)))


def lows_of(index: EarlyIndex, extents: Extents, moves: Moves) -> IntArray:
    """Where the extent begins in these lists, once the tuples are added."""
    window = extents.window
    if window.rows is not None and window.per_group:
        return index.times_from_the_end(moves.lists, np.full(len(moves.lists), window.rows))
    return moves.up_to


def _beginning(index: EarlyIndex, rows: int, new: NewTuples) -> Beginning:
    """Where the last rows of all groups begin once tuples are added; of those at one time, later groups come last.

    O(groups log n + the tuples that leave), and once all tuples.
    """
    from_us = FIRST if index.beginning is None else index.beginning.us
    later = new.times >= from_us
    lists, times = new.lists[later], new.times[later]
    held, of = index.count_between(from_us, END_OF_TIME)[0], index.groups.ids
    leave = held + len(times) - rows
    if leave <= 0:
        return Beginning(from_us, of[:0])
    until = END_OF_TIME
    if from_us != FIRST:  # where they end if times are evenly spread, and then twice as far as long as it is too near
        latest = max(int(index.runs.lists.latest(of).max(initial=FIRST)), int(times.max(initial=FIRST)))
        until = from_us + (latest - from_us) * 5 // 4 * (leave + 1) // (held + len(times)) + 1
    while True:
        some = times < until
        inside, _, _, starts, _ = index.runs.lists.read_between(of, from_us, until)
        if len(inside) + int(some.sum()) > leave:
            break
        until = min(from_us + 2 * (until - from_us), END_OF_TIME)
    all_times = np.concatenate([inside, times[some]])
    us = int(np.partition(all_times, leave)[leave])
    excess = leave - int((all_times < us).sum())
    if excess:
        here = np.concatenate([np.repeat(of, np.diff(starts)), lists[some]])[all_times == us]
        return Beginning(us, here[np.argsort(ranks_of_rows(index.groups.table(here)))[:excess]])
    return Beginning(us, of[:0])
