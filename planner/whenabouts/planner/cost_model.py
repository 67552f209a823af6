"""What a window extent costs under either scheme: memory, update and scan, normalised and weighted.

Equations 1-10 of Al-Kateb et al. 2010, section 6, with their slips mended. For a query whose tuples coalesce with
probability ``cp`` and arrive out of order with probability ``oop``, over an extent of n tuples that is full:

    memory   eager  n (cp m + (1 - cp) r_eager)                        lazy  n r_lazy
    update   eager  (1 - cp) insert + cp merge + oop (1 - cp) split
                    + cp detach + (1 - cp) delete                      lazy  insert + delete       (mean per arrival)
    scan     eager  read n (cp m / r_eager + 1 - cp) + expand n        lazy  n (read + cp coalesce)

Mended: equations 1 and 3 took expired tuples away before there were any; the last term of 3 read ``1 - cp delete``; 4
was per tuple and 3 cumulative; 6 summed over all tuples ever seen. Expiry costs nothing while the extent still fills.
``U_max`` is ``merge(1, 1) + detach``, as the paper has it, so a normalised update cost may exceed 1. ``expand`` is
ours: an eager scan that looks at every timestamp of a run, as our operators do, may cost more than ``S_max``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from whenabouts.core.errors import Code, QueryError
from whenabouts.planner.atomic_costs import AtomicCosts

Source = Literal["measured", "declared", "default"]


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known of a query's stream: coalescing and out-of-order probability, and tuples per second.

    ``arrived``: how many tuples there were so far; None: enough for the extent to be full.

    Raises: QueryError WA-2072 for a probability outside [0, 1] or a rate that is not positive.
    """

    cp: float = 0.5
    oop: float = 0.0
    rate: float | None = None
    arrived: int | None = None
    source: Source = "declared"

    def __post_init__(self) -> None:
        for name, value in (("cp", self.cp), ("oop", self.oop)):
            if not 0.0 <= value <= 1.0:
                raise QueryError(Code.BAD_STATISTICS, f"{name} is {value}", "probabilities lie in [0, 1]")
        if self.rate is not None and not 0.0 < self.rate < float("inf"):
            raise QueryError(Code.BAD_STATISTICS, f"rate is {self.rate}", "give tuples per second, over 0")


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of memory, update and scan, each a part of its maximum (the paper's lambdas).

    Raises: QueryError WA-2006 for a negative weight or three zeros.
    """

    memory: float = 1.0
    update: float = 1.0
    scan: float = 2.0

    def __post_init__(self) -> None:
        if not all(0.0 <= weight < float("inf") for weight in self.values) or not any(self.values):
            raise QueryError(Code.BAD_OPTION, f"weights are {self.values}", "three numbers >= 0, not all 0")

    @property
    def values(self) -> tuple[float, float, float]:
        """Memory, update, scan."""
        return self.memory, self.update, self.scan


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes: a tuple in an eager extent (the query's columns) and in a lazy one (all columns), a timestamp."""

    eager_row: float = 60.0
    lazy_row: float = 100.0
    timestamp: float = 19.8


@dataclass(frozen=True, slots=True)
class ExtentCost:
    """Memory in bytes, mean update per arrival and time of one scan in the unit of the atomic costs; and each as a part
    of its maximum."""

    memory: float
    update: float
    scan: float
    normalised: tuple[float, float, float] = field(default=(0.0, 0.0, 0.0))

    def weighted(self, weights: Weights) -> float:
        """The weighted sum of the three normalised costs (equations 9 and 10)."""
        return sum(weight * part for weight, part in zip(weights.values, self.normalised, strict=True))


@dataclass(frozen=True, slots=True)
class SchemeCosts:
    """Both schemes for one query. Memory and update of ``lazy`` are those of the extent that all lazy queries share."""

    eager: ExtentCost
    lazy: ExtentCost


def scheme_costs(
    tuples: float, statistics: Statistics, costs: AtomicCosts, sizes: Sizes, *, largest: float | None = None
) -> SchemeCosts:
    """Costs of an extent of ``tuples`` tuples under both schemes; normalised by an extent of ``largest`` tuples.

    ``largest`` is the largest window over the stream, so that costs of queries with different windows add up.

    >>> both = scheme_costs(100, Statistics(cp=0.8), AtomicCosts(), Sizes())
    >>> round(both.eager.weighted(Weights()), 4), round(both.lazy.weighted(Weights(0, 0, 2)), 4)
    (1.3089, 1.8)
    """
    cp, oop = statistics.cp, statistics.oop
    now = costs.at(cp, oop)
    full = statistics.arrived is None or statistics.arrived > tuples
    held = tuples if full else min(tuples, statistics.arrived or 0)
    memory = held * (cp * sizes.timestamp + (1.0 - cp) * sizes.eager_row)
    split = 0.0 if cp == 1.0 or oop == 0.0 else oop * (1.0 - cp) * now["split"]
    update = (1.0 - cp) * now["insert"] + cp * now["merge"] + split
    shared_update = now["insert"]
    if full:
        update += cp * now["detach"] + (1.0 - cp) * now["delete"]
        shared_update += now["delete"]
    eager = memory, update, now["read"] * memory / sizes.eager_row + now["expand"] * held
    lazy = held * sizes.lazy_row, shared_update, held * (now["read"] + cp * now["coalesce"])
    most = held if largest is None else largest
    every = costs.at(1.0, 1.0)
    maxima = most * sizes.lazy_row, every["merge"] + every["detach"], most * (now["read"] + now["coalesce"])
    return SchemeCosts(_extent_cost(eager, maxima), _extent_cost(lazy, maxima))


def _extent_cost(cost: tuple[float, float, float], maxima: tuple[float, float, float]) -> ExtentCost:
    memory, update, scan = (x / most if most else 0.0 for x, most in zip(cost, maxima, strict=True))
    return ExtentCost(*cost, normalised=(memory, update, scan))
