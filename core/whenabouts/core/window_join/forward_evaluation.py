"""Forward evaluation (FEW), section 3.2 of the W-join paper: two modes that sweep the streams in the order of time.

**Mode 1** finds starting tuples. It visits the streams in turn and looks at the oldest tuple of each. The first tuple
forms a period, the times within its window. A tuple inside the period shrinks it to what its own window allows; an
older one is dropped, and the next of its stream is looked at; a newer one forms a new period, and the turn begins again
with its stream. Once every stream has a starting tuple, the period is final.

**Mode 2** admits tuples in the order of time, up to the end of the period. Everything in the buffers, from the starting
tuples on, lies in the window of the admitted tuple, so that it joins the tuples of its key without any test of time.
The first tuple outside ends the mode: the tuple whose window ended is dropped, and mode 1 runs again.

The buffer of a stream is a chain of tuples in the order of time for each key, of which only the two ends move. A tuple
is known once the watermark has passed it. The modes wait for whatever they need to know, hence for slow streams, and
their counts depend on the streams alone, not on steps.

The window of a stream is the widest of the graph (GCA), or its own widest (LCA); where they differ, a tuple is older
than a period if its own window ended before one of the tuples taken. With one window this is the paper's test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    INT64,
    READ_INT64,
    WRITE_INT32,
    WRITE_INT32_2D,
    WRITE_INT64,
    compiled,
)
from whenabouts.core.arrays.large_arrays import large_array
from whenabouts.core.arrays.typing import IntArray, Positions
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK

MODE, TURN, TAKEN, NEWEST, END, ADMITTED = range(6)
"""Where a sweep is: 1 or 2; the stream whose turn it is; how many tuples the period has taken, the newest of them, and
the last instant of the period; the time up to which tuples have been admitted."""

FORMED, SHRUNK, DROPPED, ADMISSIONS, TESTS = range(5)
"""What a sweep counts: periods formed and shrunk, tuples that mode 1 dropped, tuples that mode 2 admitted, and times
that were tested against a period."""


class Admitted(NamedTuple):
    """Tuples that were admitted, and the chain of each other stream that each of them joins.

    `base[n]`: the tuple's index in the rows of its stream `of[n]`, by key and time. `chains[n, 2 * s]`: the index of
    the chain's first row in the rows of stream s, and next to it the index behind its last row. Tuples that find the
    chain of their first partner empty are left out.
    """

    of: Positions
    base: Positions
    chains: NDArray[np.int32]


@compiled(
    INT64(
        READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_INT64, INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64,
        WRITE_INT64, WRITE_INT64, WRITE_INT32_2D, WRITE_INT32, WRITE_INT32, WRITE_INT32_2D, WRITE_INT64,
    )
)  # fmt: skip
def _sweep(
    anchor: IntArray,
    code: IntArray,
    stop: IntArray,
    window: IntArray,
    partner: IntArray,
    until: int,
    place: IntArray,
    head: IntArray,
    next_: IntArray,
    coming: IntArray,
    pending: IntArray,
    ends: NDArray[np.int32],
    of: Positions,
    base: Positions,
    chains: NDArray[np.int32],
    counts: IntArray,
) -> int:
    # Tuples of stream s are head[s]..stop[s]-1 in time order; those before next_[s] have been admitted, and
    # coming[s] is the time of that one. The chain of a key in stream s is ends[key, 2 * s]..ends[key, 2 * s + 1]-1: all
    # chains of a key are next to each other. Places and counts are variables: what is in an array is read again
    # whenever another array has been written.
    streams = stop.size
    mode, turn, taken = place[MODE], place[TURN], place[TAKEN]
    newest, last, admitted = place[NEWEST], place[END], place[ADMITTED]
    formed = shrunk = dropped = admissions = tests = 0
    found = 0
    for s in range(streams):
        coming[s] = anchor[next_[s]] if next_[s] < stop[s] else END_OF_TIME
    while True:
        if mode == 1:
            if taken == streams:
                mode = 2
                continue
            s = turn
            if pending[s]:  # tuples that the watermark dropped before mode 1 could: older than any period of now
                tests += pending[s]
                dropped += pending[s]
                pending[s] = 0
            n = head[s]
            if n == stop[s]:
                break
            t = anchor[n]
            if taken:
                tests += 1
                if t + window[s] < newest:
                    dropped += 1
                    key = code[n]
                    ends[key, 2 * s] += 1
                    head[s] = n + 1
                    if next_[s] == n:
                        next_[s] = n + 1
                        coming[s] = anchor[n + 1] if n + 1 < stop[s] else END_OF_TIME
                        ends[key, 2 * s + 1] += 1
                    continue
            if taken == 0 or t > last:
                formed += 1
                taken, newest, last = 1, t, t + window[s]
            else:
                shrunk += 1
                taken, newest, last = taken + 1, max(newest, t), min(last, t + window[s])
            turn = s + 1 if s + 1 < streams else 0  # a division would take longer than the rest
            continue
        s, t = 0, coming[0]
        for other in range(1, streams):
            if coming[other] < t:
                s, t = other, coming[other]
        if t <= last and t != END_OF_TIME:
            tests += 1
            admissions += 1
            n = next_[s]
            key = code[n]
            if ends[key, 2 * partner[s] + 1] > ends[key, 2 * partner[s]]:
                of[found] = s
                base[found] = ends[key, 2 * s + 1]
                for end in range(2 * streams):
                    chains[found, end] = ends[key, end]
                found += 1
            ends[key, 2 * s + 1] += 1
            next_[s] = n + 1
            coming[s] = anchor[n + 1] if n + 1 < stop[s] else END_OF_TIME
            continue
        if until <= last:
            admitted = until - 1
            break
        tests += 1  # of the tuple that ends the mode, or of the end of the streams
        admitted = last
        s = 0
        for other in range(1, streams):
            if anchor[head[other]] + window[other] < anchor[head[s]] + window[s]:
                s = other
        ends[code[head[s]], 2 * s] += 1
        head[s] += 1
        mode, turn, taken = 1, 0, 0
    place[MODE], place[TURN], place[TAKEN] = mode, turn, taken
    place[NEWEST], place[END], place[ADMITTED] = newest, last, admitted
    counts[FORMED], counts[SHRUNK], counts[DROPPED] = formed, shrunk, dropped
    counts[ADMISSIONS], counts[TESTS] = admissions, tests
    return found


@dataclass(slots=True)
class ForwardSweep:
    """Where the two modes are between steps, as numbers that a state can hold.

    `cut_us` and `passed`: of each stream the tuples before a time, and so many at that time, are dropped. `pending`:
    tuples that the watermark has taken out of the buffer while mode 1 was waiting; mode 1 will drop them when it comes
    to their stream.
    """

    windows_us: list[int]
    place: list[int]
    cut_us: list[int]
    passed: list[int]
    pending: list[int]

    @classmethod
    def restored(cls, numbers: Sequence[int], windows_us: Sequence[int], progress_us: int) -> ForwardSweep:
        """The sweep that `numbers` describe. A new one if they are of other windows, or of a state without a sweep:
        all tuples before `progress_us` have then been joined with each other.

        >>> new = ForwardSweep.restored([], [5, 5], 100)
        >>> new.place[ADMITTED], ForwardSweep.restored(new.numbers(), [5, 5], 100) == new
        (99, True)
        """
        k = len(windows_us)
        if len(numbers) == 4 * k + ADMITTED + 1 and list(numbers[:k]) == list(windows_us):
            parts = [list(numbers[at : at + k]) for at in range(0, 3 * k + 1, k)]
            return cls(parts[0], list(numbers[4 * k :]), *parts[1:])
        joined = progress_us - 1 if progress_us > NO_WATERMARK else NO_WATERMARK
        place = [1, 0, 0, 0, 0, joined]
        return cls(list(windows_us), place, [NO_WATERMARK] * k, [0] * k, [0] * k)

    def numbers(self) -> list[int]:
        """What `restored` reads."""
        return [*self.windows_us, *self.cut_us, *self.passed, *self.pending, *self.place]

    def run(
        self,
        anchors: Sequence[IntArray],
        codes: Sequence[IntArray],
        starts: Sequence[IntArray],
        partners: Sequence[int],
        until_us: int,
        dropped_us: int,
    ) -> tuple[Admitted, IntArray]:
        """Sweep the tuples before `until_us`: what was admitted, and the counts.

        `anchors`, `codes`: the times and keys of each stream in the order of time. `starts[s][c]`: where the rows of
        key c begin among the rows of stream s by key and time. `partners[s]`: the stream that a tuple of s joins first.
        The watermark is about to drop tuples whose window ends before `dropped_us`. O(tuples x streams).
        """
        k = len(anchors)
        offset = np.cumsum([0, *(len(anchor) for anchor in anchors)])
        known = [int(np.searchsorted(anchor, until_us)) for anchor in anchors]
        head = np.array([
            np.searchsorted(anchor, cut) + passed
            for anchor, cut, passed in zip(anchors, self.cut_us, self.passed, strict=True)
        ])  # fmt: skip
        joined = np.array([np.searchsorted(anchor, self.place[ADMITTED], side="right") for anchor in anchors])
        next_ = np.clip(joined, head, None)
        ends = np.empty((len(starts[0]) - 1, k, 2), np.int32)
        for stream, (begin, code) in enumerate(zip(starts, codes, strict=True)):
            for end, at in enumerate((head[stream], next_[stream])):
                ends[:, stream, end] = begin[:-1] + np.bincount(code[:at], minlength=len(ends))
        n = int(sum(max(last - begun, 0) for last, begun in zip(known, next_.tolist(), strict=True)))
        of, base = large_array(n, np.int32), large_array(n, np.int32)
        chains = large_array(2 * k * n, np.int32).reshape(n, 2 * k)
        place, pending, counts = np.array(self.place), np.array(self.pending), np.empty(TESTS + 1, np.int64)
        stop = offset[:-1] + np.array(known)
        heads = head + offset[:-1]
        found = _sweep(
            np.concatenate(anchors), np.concatenate(codes), stop, np.array(self.windows_us), np.array(partners),
            until_us, place, heads, next_ + offset[:-1], np.empty(k, np.int64), pending, ends.reshape(-1, 2 * k), of,
            base, chains, counts,
        )  # fmt: skip
        self.place, self.pending = place.tolist(), pending.tolist()
        for stream, anchor in enumerate(anchors):
            self._cut(stream, anchor, int(heads[stream] - offset[stream]), known[stream], until_us, dropped_us)
        return Admitted(of[:found], base[:found], chains[:found]), counts

    def _cut(self, stream: int, anchor: IntArray, head: int, known: int, until_us: int, dropped_us: int) -> None:
        """Note where the buffer of a stream begins, once the watermark has dropped its part."""
        gone_us = dropped_us - self.windows_us[stream] if dropped_us > NO_WATERMARK else NO_WATERMARK
        gone = int(np.searchsorted(anchor[:known], gone_us))
        if gone > head:
            self.pending[stream] += gone - head
            head = gone
        cut_us = int(anchor[head]) if head < known else until_us
        self.cut_us[stream], self.passed[stream] = cut_us, head - int(np.searchsorted(anchor[:head], cut_us))
