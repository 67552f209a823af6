"""Templates of the datasets, and the columns of rows that name them.

A template set is what one side registers: templates by name, offsets in units of its dataset. Together the sets have
buckets of probability 0 inside and at either end (so that an anchor lies behind the support), single buckets,
probabilities as floats and as text, offsets on either side of 0, names that are text and names that are integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from whenabouts.core.times.learned import Learned
from whenabouts.core.times.time_specs import Histogram, TimeSpec

DAY = 86_400_000_000

Definition = tuple[tuple[int, int, float | str], ...]


@dataclass(frozen=True)
class TemplateSet:
    """Templates by name, and the type of the column that names them; without a column there is one template.

    `clock`: rows are readings of a learned clock with this offset (microseconds), drift (ppb) and reference instant.
    """

    definitions: tuple[tuple[str, Definition], ...]
    column: pa.DataType | None = None
    clock: tuple[int, int, int] | None = None

    def spec(self, unit: int) -> TimeSpec:
        """The specification of a side whose offsets are in `unit` microseconds."""
        templates = {
            name: [(lo * unit, hi * unit, p) for lo, hi, p in definition] for name, definition in self.definitions
        }
        named_by = None if self.column is None else "kind"
        if self.clock is not None:
            return Learned("t_max", *self.clock, templates, named_by)
        return Histogram("t_max", template=named_by, templates=templates)

    def columns(
        self, random: np.random.Generator, t_max: Any, bad: float, time_type: pa.DataType
    ) -> dict[str, pa.Array]:
        """Anchors at `t_max`, each row of some template; a share of `bad` rows with one fault or two."""
        names = [name for name, _ in self.definitions]
        rows: list[tuple[int | None, str | None]] = [
            (int(at), names[which]) for at, which in zip(t_max, random.integers(0, len(names), len(t_max)), strict=True)
        ]
        for at in np.flatnonzero(random.random(len(rows)) < bad).tolist():
            rows[at] = self._spoilt(random, *rows[at])
        anchors = pa.array([anchor for anchor, _ in rows], pa.int64())
        if pa.types.is_timestamp(time_type):
            anchors = anchors.cast(pa.timestamp("us")).cast(time_type)
        if self.column is None:
            return {"t_max": anchors}
        return {"t_max": anchors, "kind": pa.array([name for _, name in rows], pa.string()).cast(self.column)}

    def _spoilt(
        self, random: np.random.Generator, t_max: int | None, name: str | None
    ) -> tuple[int | None, str | None]:
        nobody = "999" if self.column is not None and pa.types.is_integer(self.column) else "no such template"
        faults = [(None, name), (10**18, name), (-(10**18), name), (None, nobody), (10**18, None)]
        faults += [(t_max, nobody), (t_max, None)] * 2
        return faults[random.integers(0, len(faults))]


def _many(count: int) -> tuple[tuple[str, Definition], ...]:
    """`count` different templates of one to four buckets, probabilities written as decimals that sum to 1."""
    random = np.random.default_rng(36)
    definitions = []
    for number in range(count):
        widths = random.integers(1, 4, random.integers(1, 5)).tolist()
        weights = random.integers(0, 9, len(widths)).tolist()
        weights[-1] += 1 + number  # no two templates are the same
        edges = np.cumsum([random.integers(-5, 6), *widths]).tolist()
        shares = [str(Fraction(weight, sum(weights))) for weight in weights]
        definitions.append((f"template {number}", tuple(zip(edges, edges[1:], shares, strict=False))))
    return tuple(definitions)


MIXED = TemplateSet(
    (
        ("rising", ((0, 2, 0.1), (2, 3, 0.3), (3, 6, 0.6))),
        ("around zero", ((-4, -1, "0.15"), (-1, 0, "0.3"), (0, 4, "0.55"))),
        ("hole", ((0, 2, "0.4"), (2, 6, 0.0), (6, 8, "0.6"))),
        ("zero ends", ((10, 12, 0.0), (12, 15, 1 / 3), (15, 17, 2 / 3), (17, 20, 0.0))),
        ("one bucket", ((0, 5, 1.0),)),
        ("short", ((7, 8, "1"),)),
    ),
    pa.string(),
)
NUMBERED = TemplateSet(
    (
        ("1", ((0, 1, 0.5), (1, 4, 0.25), (4, 8, 0.25))),
        ("2", ((0, 3, "0.9"), (3, 10, "0.1"))),
        ("-7", ((-8, -6, "1/3"), (-6, -1, 0.0), (-1, 0, "2/3"))),
    ),
    pa.int32(),
)
DYADIC = TemplateSet(
    (
        ("a", ((0, 2, 0.25), (2, 4, 0.5), (4, 8, 0.25))),
        ("b", ((0, 4, 0.125), (4, 8, 0.875))),
        ("c", ((0, 1, 0.5), (1, 5, 0.0), (5, 7, 0.5))),
        ("d", ((0, 4, 1.0), (4, 6, 0.0))),
    ),
    pa.string(),
)
MANY = TemplateSet(_many(36), pa.string())
ALONE = TemplateSet((("only", ((0, 2, 0.7), (2, 9, 0.3))),))
DAYS = TemplateSet(
    (
        ("sharp", ((0, 1, 0.5), (1, 3, 0.25), (3, 1_000_003, 0.25))),
        ("broad", ((0, 11 * DAY + 7, 0.2), (11 * DAY + 7, 30 * DAY, 0.8))),
        ("both", ((0, 1, "1e-6"), (1, 29 * DAY, "0.3"), (29 * DAY, 29 * DAY + 1, "0.699999"))),
        ("tails", ((0, 9 * DAY, 1e-9), (9 * DAY, 9 * DAY + 12_345, 1 - 2e-9), (9 * DAY + 12_345, 20 * DAY, 1e-9))),
        ("hours", tuple((3600 * 10**6 * n, 3600 * 10**6 * (n + 1), "1/24") for n in range(24))),
    ),
    pa.large_string(),
)
LEARNED = TemplateSet(
    (
        ("steady", ((-3, -1, "0.25"), (-1, 2, "0.75"))),
        ("late", ((-5, -4, "0.5"), (-4, -1, 0.0), (-1, 0, "0.5"))),
    ),
    pa.string(),
    clock=(1_300_000, -40_000_007, 1_704_067_260_000_000),
)
BINARY_SECOND = 2**20
"""A unit near a second in which dyadic buckets have lengths that are powers of two: then no kernel rounds."""

LONGEST_US = 4_000_000
UP_TO_4_S: Mapping[str, Definition] = {
    "instant": ((0, 1, 1.0),),
    "1 s": ((0, 1_000_000, 1.0),),
    "2 s": ((0, 500_000, "0.2"), (500_000, 1_500_000, "0.3"), (1_500_000, 2_000_000, "0.5")),
    "3 s, behind": ((0, 1_000_000, "0.5"), (1_000_000, 2_000_000, 0.0), (2_000_000, 3_000_000, "0.5")),
    "4 s, ahead": ((0, 1_000_000, "0.9"), (1_000_000, LONGEST_US, "0.1")),
}
"""Templates of the laws on state, named by their lengths, offsets in microseconds."""
