"""How many rows were rejected, by input and reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from whenabouts.core.errors import Code, InputError
from whenabouts.core.frames.kinds import arrow_table
from whenabouts.core.html_tables import html_table
from whenabouts.core.runtime.rejects import were_rejected

_COLUMNS = ("input", "code", "reason")


@dataclass(frozen=True, slots=True)
class RejectsSummary:
    """Numbers of rejected rows by input, code and reason, the most frequent first; in notebooks it is a table."""

    counts: tuple[tuple[str, str, str, int], ...]

    @property
    def total(self) -> int:
        """All rejected rows."""
        return sum(count for *_, count in self.counts)

    def __str__(self) -> str:
        if not self.counts:
            return "no row was rejected"
        return "\n".join(f"{count:,} of {input}: {code}, {reason}" for input, code, reason, count in self.counts)

    def _repr_html_(self) -> str:
        return html_table(were_rejected(self.total), [*_COLUMNS, "rows"], self.counts)


def summarise_rejects(rejects: Any) -> RejectsSummary:
    """A summary of what `rejects(result)` gives, as any dataframe in this process.

    On Spark and Flink collect the rejects first, or read where they were written. Raises InputError WA-1001 for a frame
    without the columns of rejects. O(rows).

    >>> import warnings
    >>> import pyarrow as pa
    >>> import whenabouts as wa
    >>> table = pa.table({"t": pa.array([5, None, None], pa.int64())})
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     pairs = wa.timing_join(table, table, left_time=wa.Point("t"), right_time=wa.Point("t"),
    ...                            condition=wa.within(0, confidence=1))
    >>> print(wa.summarise_rejects(wa.rejects(pairs)))
    2 of left: WA-1003, a time is null
    2 of right: WA-1003, a time is null
    """
    table = arrow_table("rejects", rejects)
    for name in _COLUMNS:
        if name not in table.column_names:
            raise InputError(Code.MISSING_COLUMN, f"the rejects have no column {name!r}", "give rejects(result)")
    found = Counter(zip(*(table.column(name).to_pylist() for name in _COLUMNS), strict=True))
    in_order = sorted(found.items(), key=lambda each: (-each[1], each[0]))
    return RejectsSummary(tuple((*key, count) for key, count in in_order))
