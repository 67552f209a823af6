"""How far a stream has come, in the same words on every engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from whenabouts.core import metrics
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """What a stream has done so far.

    `rows_in`: rows that were read, good or bad. `rows_out`: rows that were given out, `rejected`: rejected ones.
    `state_rows`: rows that are kept for later ones. `watermark_us`: how far event time has advanced, in microseconds
    since 1970; None before the first watermark and after the end of the input.

    >>> print(StreamProgress(rows_in=1200, rows_out=30, rejected=2, state_rows=400, watermark_us=1_000_000))
    1,200 rows, 30 out, 2 rejected, state 400 rows, watermark 1970-01-01 00:00:01
    """

    rows_in: int
    rows_out: int
    rejected: int
    state_rows: int
    watermark_us: int | None = None

    def __str__(self) -> str:
        parts = [
            f"{self.rows_in:,} rows",
            f"{self.rows_out:,} out",
            f"{self.rejected:,} rejected",
            f"state {self.state_rows:,} rows",
        ]
        return ", ".join(parts if self.watermark_us is None else [*parts, f"watermark {_instant(self.watermark_us)}"])


Watch = Callable[[StreamProgress], None]
"""Is called whenever a stream has come further."""


@dataclass(slots=True)
class ProgressCounter:
    """Adds up the counts of a stream's steps (`whenabouts.core.metrics`), whichever engine takes them.

    >>> counter = ProgressCounter()
    >>> counter.add({"rows_in": 3, "rows_stored": 2})
    >>> counter.add({"rows_in": 2, "rows_stored": 1, "rows_evicted": 1})
    >>> counter.now(watermark_us=None).state_rows
    2
    """

    _counts: Counter[str] = field(default_factory=Counter)

    def add(self, counts: Mapping[str, int]) -> None:
        """The counts of one more step, or of several together."""
        self._counts.update(counts)

    def now(self, watermark_us: int | None) -> StreamProgress:
        """The progress up to the last step that was added."""
        return progress_of(self._counts, watermark_us)


def progress_of(counts: Counter[str], watermark_us: int | None) -> StreamProgress:
    """The progress of a stream, by the sum of its counts and its watermark.

    >>> progress_of(Counter(rows_in=5, matched=1), None)
    StreamProgress(rows_in=5, rows_out=1, rejected=0, state_rows=0, watermark_us=None)
    """
    known = watermark_us is not None and NO_WATERMARK < watermark_us < END_OF_TIME
    return StreamProgress(
        counts[metrics.ROWS_IN],
        counts[metrics.MATCHED],
        counts[metrics.REJECTED],
        counts[metrics.STORED] - counts[metrics.EVICTED],
        watermark_us if known else None,
    )


def _instant(us: int) -> str:
    """To the second: who watches a stream wants no more.

    >>> _instant(-1)
    '1969-12-31 23:59:59'
    """
    return str(np.datetime64(us, "us").astype("datetime64[s]")).replace("T", " ")
