"""Forward evaluation as the W-join paper tells it (Hammad et al., SSDBM 2003, section 3.2), one tuple at a time.

Mode 1 is a plane sweep over the oldest tuples of the streams, visited in turn: the first one forms a period around its
time; one inside the period shrinks it to what both allow; an older one is dropped and the next of its stream is looked
at; a newer one discards the period, forms its own, and the turn begins again with its stream. Once every stream has
given one tuple, these are the starting tuples, and the period is final. Mode 2 takes the tuples that follow, in the
order of time, and joins each with the tuples in the buffers; no window is looked at. The first tuple outside the period
ends it; the oldest tuple is dropped, and mode 1 runs again from the first stream. The end of the streams counts as a
tuple outside.

Where the paper is silent: of equal times, the first stream's tuple comes first. Where each stream has a window of its
own (LCA), a tuple is older than the period if its own window ended before a tuple of it, and the oldest is the one
whose window ends first; with one window this is the same as the paper's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from whenabouts.conformance.oracle import Event


@dataclass(slots=True)
class WindowJoinCounts:
    """Operations under the names of `whenabouts.core.metrics`."""

    matched: int = 0
    periods: int = 0
    periods_shrunk: int = 0
    tuples_dropped: int = 0
    tuples_admitted: int = 0
    period_tests: int = 0
    tuple_tests: int = 0
    window_tests: int = 0


@dataclass(slots=True)
class _Stream:
    """The oldest tuples are looked at first; `buffer` has those that were admitted, `arriving` those that were not."""

    window: int
    arriving: deque[Event]
    buffer: deque[Event] = field(default_factory=deque)

    def oldest(self) -> Event | None:
        """The next tuple to look at in mode 1."""
        of = self.buffer or self.arriving
        return of[0] if of else None

    def drop(self) -> None:
        """Drop it."""
        (self.buffer or self.arriving).popleft()


@dataclass(slots=True)
class ForwardEvaluation:
    """Both modes over whole streams.

    `windows`: of each stream, in turn. `partners[name]`: the other streams in the order of the nested iteration.
    `together`: whether two tuples are looked at together (hash: in one bucket). `equal`: whether they join. `found`
    gets whole combinations.
    """

    windows: Mapping[str, int]
    partners: Mapping[str, Sequence[str]]
    together: Callable[[Event, Event], bool]
    equal: Callable[[Event, Event], bool]
    found: Callable[[dict[str, Event]], Any]
    counts: WindowJoinCounts

    def run(self, events: Mapping[str, Sequence[Event]]) -> None:
        """Until a stream has no more tuples that mode 1 could look at."""
        streams = {
            name: _Stream(window, deque(sorted(events[name], key=lambda event: event.t_max)))
            for name, window in self.windows.items()
        }
        while (starting := self._mode_1(list(streams.items()))) is not None:
            self._mode_2(streams, min(event.t_max + streams[name].window for name, event in starting.items()))
            first = min(streams, key=lambda name: starting[name].t_max + streams[name].window)
            streams[first].drop()

    def _mode_1(self, turn: list[tuple[str, _Stream]]) -> dict[str, Event] | None:
        """The starting tuples; None if a stream ends before it gives one."""
        taken: dict[str, Event] = {}
        at = 0
        while len(taken) < len(turn):
            name, stream = turn[at % len(turn)]
            event = stream.oldest()
            if event is None:
                return None
            if taken:
                self.counts.period_tests += 1
                if event.t_max + stream.window < max(other.t_max for other in taken.values()):
                    self.counts.tuples_dropped += 1
                    stream.drop()
                    continue
            if not taken or event.t_max > min(other.t_max + self.windows[of] for of, other in taken.items()):
                self.counts.periods += 1
                taken = {name: event}
            else:
                self.counts.periods_shrunk += 1
                taken[name] = event
            at += 1
        return taken

    def _mode_2(self, streams: dict[str, _Stream], end: int) -> None:
        while True:
            waiting = [(stream.arriving[0].t_max, name) for name, stream in streams.items() if stream.arriving]
            self.counts.period_tests += 1
            if not waiting or min(waiting, key=lambda each: each[0])[0] > end:
                return
            _, name = min(waiting, key=lambda each: each[0])  # the first stream of those with the least time
            event = streams[name].arriving.popleft()
            self.counts.tuples_admitted += 1
            self._iterate({name: event}, event, self.partners[name], streams)
            streams[name].buffer.append(event)

    def _iterate(
        self, placed: dict[str, Event], new: Event, partners: Sequence[str], streams: dict[str, _Stream]
    ) -> None:
        if not partners:
            self.found(placed)
            return
        for event in streams[partners[0]].buffer:
            if self.together(new, event):
                self.counts.tuple_tests += 1
                if self.equal(new, event):
                    self._iterate({**placed, partners[0]: event}, new, partners[1:], streams)
