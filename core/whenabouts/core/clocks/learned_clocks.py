"""The clocks of `learn_clock(per_key=True)`: one for each key, or the reason why there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.clocks.learned_clock import Frame, LearnedClock, named, with_corrected
from whenabouts.core.durations import format_duration
from whenabouts.core.html_tables import html_table
from whenabouts.core.runtime.key_names import Key, of_input
from whenabouts.core.runtime.keys import Keys

HEAD = ["key", "offset", "+-", "drift (ppm)", "+-", "pairs", "reason"]


@dataclass(frozen=True)
class LearnedClocks(Mapping[Any, LearnedClock]):
    """The right clock of each key against the left one: a mapping from keys to `LearnedClock`, found or refused.

    `on`: the key columns. `by_key`: each key's values and its clock, in their order. A key of one column is looked up
    by its value, others by a tuple.
    """

    on: tuple[Key, ...]
    by_key: tuple[tuple[tuple[Any, ...], LearnedClock], ...]

    def __getitem__(self, key: Any) -> LearnedClock:
        """The clock of a key. Raises KeyError for one that neither side has."""
        return dict(self.by_key)[key if isinstance(key, tuple) else (key,)]

    def __iter__(self) -> Iterator[Any]:
        """The keys."""
        return (_plain(key) for key, _ in self.by_key)

    def __len__(self) -> int:
        """How many keys there are, those without a clock included."""
        return len(self.by_key)

    @property
    def found(self) -> dict[Any, LearnedClock]:
        """The clocks that were found."""
        return {key: clock for key, clock in self.items() if clock.found}

    @property
    def refused(self) -> dict[Any, str]:
        """The sentence of each key without a clock."""
        return {key: clock.sentence for key, clock in self.items() if not clock.found}

    @property
    def sentence(self) -> str:
        """How many keys have a clock, and why the others have none."""
        reasons = Counter(clock.reason for _, clock in self.by_key if not clock.found)
        others = ", ".join(f"{reason} {count:,}" for reason, count in sorted(reasons.items(), key=str))
        refused = f"; refused: {others}" if others else ""
        return f"A clock was found for {len(self.found):,} of {len(self):,} keys{refused}."

    def correct(self, frame: Frame, t: str | None = None, *, name: str | None = None) -> Frame:
        """A frame of right rows with one more column: their times on the left clock, before the delay.

        Null for a row whose key has no clock. `t`: the time column; `name`: the new one (default: with `_corrected`
        after it), timestamps in UTC. Raises InputError for columns as joins do, QueryError WA-2009 if the new one
        exists, WA-2008 for keys of another type.
        """
        known = pa.table({left: [key[at] for key, _ in self.by_key] for at, left in enumerate(of_input(self.on, 0))})

        def corrected(rows: pa.RecordBatch, us: IntArray) -> tuple[IntArray, BoolArray]:
            keys = Keys(self.on, [known.schema, rows.schema], ("clocks", "right"))
            clock_of, of_row = keys.codes([known, rows])
            values, missing = us.copy(), np.ones(len(us), bool)
            for code, (_, clock) in zip(clock_of.tolist(), self.by_key, strict=True):
                here = of_row == code
                if clock.found and here.any():
                    values[here], missing[here] = clock.on_left_clock(us[here]), False
            return values, missing

        first = self.by_key[0][1].right_time if self.by_key else ""
        rows: Frame = with_corrected(frame, named("t", t, first), name, corrected)
        return rows

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON has it; values of keys that JSON has no form for as text."""
        keys = [{"key": [_json_safe(value) for value in key], "clock": clock.to_dict()} for key, clock in self.by_key]
        on = [list(key) if isinstance(key, tuple) else key for key in self.on]
        return {"format": "whenabouts clocks", "version": 1, "on": on, "clocks": keys}

    def table(self) -> list[list[str]]:
        """What was found for each key; the columns are `learned_clocks.HEAD`."""
        return [[", ".join(map(str, key)), *_told(clock)] for key, clock in self.by_key]

    def __str__(self) -> str:
        """The sentence, then a table."""
        rows = [HEAD, *self.table()]
        widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD))]
        lines = [
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        return "\n".join([self.sentence, *lines])

    def _repr_html_(self) -> str:
        return html_table("Clocks", HEAD, self.table(), self.sentence)


def _plain(key: tuple[Any, ...]) -> Any:
    return key[0] if len(key) == 1 else key


def _json_safe(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _told(clock: LearnedClock) -> list[str]:
    if not clock.found:
        return ["", "", "", "", "", str(clock.reason)]
    return [
        format_duration(clock.offset_us), format_duration(round(clock.offset_error_us)),
        f"{clock.drift_ppb / 1000:g}", f"{clock.drift_error_ppb / 1000:.3g}", f"{clock.pairs:,}", "",
    ]  # fmt: skip
