"""A finding of a profile: what is odd about a column of times, in how many rows, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from whenabouts.core.arrays.typing import BoolArray, IntArray

Kind = Literal[
    "unit", "mixed units", "float", "type", "unreadable", "out of range", "sentinel", "granularity", "float dust",
    "polling", "duplicate rows", "duplicate times", "outage", "bursts", "order", "clock step", "time scale", "zone",
    "null", "too few", "first rows only", "sample",
]  # fmt: skip
"""What findings are about; docs/profile.md explains each."""

Severity = Literal["note", "doubt", "wrong"]
SEVERITIES: tuple[Severity, ...] = ("note", "doubt", "wrong")

_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """What a profile found.

    `kind`: one of `Kind`, which do not change. `severity`: "note" (good to know), "doubt" (look at it), "wrong" (mend
    it before a join). `share`: the share of rows that it concerns. `where`: up to five row numbers, from 0. `sentence`
    and `remedy` are for people.
    """

    kind: Kind
    severity: Severity
    share: float
    where: tuple[int, ...]
    sentence: str
    remedy: str = ""

    def __str__(self) -> str:
        rows = f" (rows {', '.join(map(str, self.where))})" if self.where else ""
        return f"{self.severity}: {self.sentence}{rows}" + (f" {self.remedy}" if self.remedy else "")

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON-safe values."""
        return {
            "kind": self.kind, "severity": self.severity, "share": self.share, "where": list(self.where),
            "sentence": self.sentence, "remedy": self.remedy,
        }  # fmt: skip


def examples(rows: IntArray, chosen: BoolArray | None = None) -> tuple[int, ...]:
    """The first row numbers among the chosen ones.

    >>> examples(np.array([9, 3, 5]), np.array([True, False, True]))
    (5, 9)
    """
    found = rows if chosen is None else rows[chosen]
    least = np.partition(found, _EXAMPLES)[:_EXAMPLES] if len(found) > _EXAMPLES else found
    return tuple(np.sort(least).tolist())


def gravest_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings by severity, in their order otherwise."""
    return tuple(sorted(findings, key=lambda found: -SEVERITIES.index(found.severity)))


def percent(share: float) -> str:
    """A share for people.

    >>> percent(0.0004), percent(0.25), percent(1), percent(0.99996)
    ('0.04 %', '25 %', '100 %', '99.996 %')
    """
    digits = 5 if 0.999 <= share < 1 else 3
    return f"{100 * share:.{digits}g} %"
