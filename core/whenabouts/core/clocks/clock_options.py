"""Options of `learn_clock`, parsed and checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from whenabouts.core.durations import number_of, parse_duration
from whenabouts.core.runtime.option_checks import refused, whole_number

MOST_DRIFT = 3e-3


@dataclass(frozen=True, slots=True)
class Asked:
    """The options, in microseconds and without dimension."""

    max_offset_us: int
    max_drift: float
    alpha: float
    max_cells: int
    max_error: float
    seed: int


def asked_of(max_offset: Any, max_drift: Any, alpha: Any, max_cells: Any, max_error: Any, seed: Any) -> Asked:
    """Raises QueryError WA-2002 for a duration, WA-2006 for anything else."""
    offset = parse_duration(max_offset, name="max_offset")
    if offset <= 0:
        raise refused("max_offset", max_offset, 'give a duration above 0, such as "10 min"')
    drift = _drift(max_drift)
    for name, value in (("alpha", alpha), ("max_error", max_error)):
        up_to_one(name, value)
    cells, seed = whole_number("max_cells", max_cells), whole_number("seed", seed, 0)
    return Asked(offset, drift, float(alpha), cells, float(max_error), seed)


def up_to_one(name: str, value: Any) -> None:
    """A number above 0, 1 at most. Raises QueryError WA-2006 for anything else."""
    if not 0 < (number_of(value) or 0) <= 1:
        raise refused(name, value, "give a number above 0, 1 at most")


def _drift(value: Any) -> float:
    """A drift without a dimension, of "200 ppm", "50 ppb", a number, or its text.

    >>> _drift("200 ppm"), _drift(1e-5), _drift("50ppb"), _drift("2e-4")
    (0.0002, 1e-05, 5e-08, 0.0002)
    """
    units = {"ppm": 6, "ppb": 9}
    found = math.nan
    if isinstance(value, str):
        digits, unit = value.strip(), value.strip()[-3:]
        try:
            found = float(
                Fraction(digits.removesuffix(unit if unit in units else "").strip()) / 10 ** units.get(unit, 0)
            )
        except (ValueError, ZeroDivisionError):
            found = math.nan
    elif (number := number_of(value)) is not None and number <= MOST_DRIFT:
        found = float(number)
    if not 0 <= found <= MOST_DRIFT:
        hint = 'give "200 ppm", "50 ppb" or a plain number such as 2e-4, at most 3000 ppm (0.003); it is no duration'
        raise refused("max_drift", value, hint)
    return found
