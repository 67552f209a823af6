"""The costs of single operations on a window extent, which may depend on the stream's probabilities.

Al-Kateb et al. 2010 (section 7.2) observe that the cost of a merge grows with ``cp * oop`` (longer timestamp vectors,
searched further back) and that of a split with ``oop / cp``. So a cost is a number, a sum of such terms, a table over
(cp, oop), or any function of the two. The unit is microseconds if calibrated; only ratios matter for decisions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np

from whenabouts.core.errors import Code, QueryError


@dataclass(frozen=True, slots=True)
class Terms:
    """``constant + cp_oop * cp * oop + oop_per_cp * oop / cp``; without out-of-order tuples the last term is 0.

    >>> Terms(0.005, cp_oop=0.5)(0.5, 0.5)
    0.13
    """

    constant: float = 0.0
    cp_oop: float = 0.0
    oop_per_cp: float = 0.0

    def __call__(self, cp: float, oop: float) -> float:
        """The cost at these probabilities."""
        ratio = 0.0 if oop == 0.0 or self.oop_per_cp == 0.0 else oop / cp if cp else math.inf
        return self.constant + self.cp_oop * cp * oop + (self.oop_per_cp * ratio if ratio else 0.0)


@dataclass(frozen=True, slots=True)
class Table:
    """Costs measured on a grid, ``values[i][j]`` at ``(cp[i], oop[j])``: bilinear inside, constant outside.

    >>> Table((0.0, 1.0), (0.0, 1.0), ((0.0, 1.0), (2.0, 3.0)))(0.5, 0.5)
    1.5
    """

    cp: tuple[float, ...]
    oop: tuple[float, ...]
    values: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        shape = len(self.values), {len(row) for row in self.values}
        ascending = all(list(axis) == sorted(set(axis)) and axis for axis in (self.cp, self.oop))
        if not ascending or shape != (len(self.cp), {len(self.oop)}):
            raise QueryError(
                Code.BAD_OPTION, "a table of costs does not fit its axes", "one row for each cp, one value for each oop"
            )

    def __call__(self, cp: float, oop: float) -> float:
        """The cost at these probabilities."""
        columns = [np.interp(oop, self.oop, row) for row in self.values]
        return float(np.interp(cp, self.cp, columns))


Cost: TypeAlias = float | Callable[[float, float], float]


@dataclass(frozen=True, slots=True)
class AtomicCosts:
    """Costs of single operations on an extent, named as in Table 4 of the paper.

    ``read`` a tuple; ``insert`` one in order; ``delete`` the oldest; ``merge`` a timestamp into a run, including the
    search for it; ``split`` a run in two, likewise; ``detach`` the first timestamp of the oldest run; ``coalesce`` two
    tuples while scanning a lazy extent. The paper assumes that the others are zero: ``expand``, a timestamp of a run
    while scanning an eager extent; ``keep``, further costs of an arriving tuple in an eager extent; ``order``,
    sorting a byte of the shared extent for a grouping, once for all its lazy queries; ``eager_step`` and ``lazy_step``,
    the fixed cost of a step of such an extent.

    The defaults are *fitted*, not measured: chosen such that, with the default sizes, they reproduce all ten decisions
    of the paper's Tables 5 and 6. Calibrate them for your machine (`whenabouts calibrate`).
    """

    read: Cost = 1.0
    insert: Cost = 0.0273
    delete: Cost = 0.005
    merge: Cost = Terms(0.005, cp_oop=0.2999)
    split: Cost = Terms(0.0056, oop_per_cp=0.005)
    detach: Cost = 0.6951
    coalesce: Cost = 1.0
    expand: Cost = 0.0
    keep: Cost = 0.0
    order: Cost = 0.0
    eager_step: Cost = 0.0
    lazy_step: Cost = 0.0

    @property
    def are_fitted(self) -> bool:
        """Whether these are the defaults, which are fitted to the paper's decisions."""
        return self == AtomicCosts()

    def at(self, cp: float, oop: float) -> dict[str, float]:
        """Every cost as a number.

        Raises: QueryError WA-2006 for a cost that is negative or not a number.
        """
        numbers = {}
        for field in fields(self):
            cost = getattr(self, field.name)
            numbers[field.name] = float(cost(cp, oop) if callable(cost) else cost)
            if not numbers[field.name] >= 0.0:
                raise QueryError(
                    Code.BAD_OPTION,
                    f"the cost of {field.name} is {numbers[field.name]} at cp {cp:g}, oop {oop:g}",
                    "costs are numbers of zero or more",
                )
        return numbers


def read_costs(text: Mapping[str, Any]) -> AtomicCosts:
    """Costs from a plan file: a number, ``{constant, cp_oop, oop_per_cp}`` or ``{cp: […], oop: […], values: [[…]]}``.

    ``attach`` is accepted and ignored: ``merge`` attaches a timestamp. Costs that are not named keep their default.

    Raises: QueryError WA-2075 for an unknown name or form.

    >>> read_costs({"insert": 2, "merge": {"constant": 1, "cp_oop": 3}}).at(0.5, 0.5)["merge"]
    1.75
    """
    known = {field.name for field in fields(AtomicCosts)}
    found: dict[str, Cost] = {}
    for name, value in text.items():
        if name == "attach":
            continue
        if name not in known:
            raise QueryError(
                Code.BAD_PLAN_FILE, f"there is no cost named {name!r}", f"known are {', '.join(sorted(known))}, attach"
            )
        found[name] = _read_cost(name, value)
    return AtomicCosts(**found)


def _read_cost(name: str, value: Any) -> Cost:
    try:
        if isinstance(value, Mapping) and "values" in value:
            rows = tuple(tuple(float(x) for x in row) for row in value["values"])
            return Table(tuple(float(x) for x in value["cp"]), tuple(float(x) for x in value["oop"]), rows)
        if isinstance(value, Mapping):
            return Terms(**{key: float(x) for key, x in value.items()})
        return float(value)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, QueryError):
            raise
        raise QueryError(
            Code.BAD_PLAN_FILE,
            f"the cost of {name!r} is {value!r}",
            "give a number, {constant, cp_oop, oop_per_cp} or {cp, oop, values}",
        ) from error
