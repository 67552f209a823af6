"""The cost of a window extent under both schemes: memory, update and scan, normalised and weighted.

Equations 1-10 of Al-Kateb et al. 2010, section 6, with their slips corrected. For a query whose tuples coalesce with
probability ``cp`` and arrive out of order with probability ``oop``, over a full extent of n tuples:

    memory   eager  n (cp m + (1 - cp) r_eager)                        lazy  n r_lazy
    update   eager  (1 - cp) insert + cp merge + oop (1 - cp) split
                    + cp detach + (1 - cp) delete + keep + eager_step / step
                                              lazy  insert + delete + lazy_step / step       (mean per arrival)
    scan     eager  (read n (cp m / r_eager + 1 - cp) + expand n) part + eager_step
                                              lazy  n (read + cp coalesce + order r_lazy / sharing)

Corrected: equations 1 and 3 subtracted expired tuples before there were any; the last term of 3 read ``1 - cp delete``;
4 was per tuple and 3 cumulative; 6 summed over all tuples ever seen. Expiry costs nothing while the extent still fills.
``U_max`` is ``merge(1, 1) + detach``, as in the paper, so a normalised update cost may exceed 1. Some prices are not in
the paper, and zero by default: ``expand`` (an eager scan that reads every timestamp of a run may cost more than
``S_max``), ``keep``, ``order`` (shared by the lazy queries with the same grouping), and the prices of a step. They are
included in the maxima.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from whenabouts.core.costs.choices import Alternative, Choice, Source, cheapest
from whenabouts.core.costs.operation_costs import AtomicCosts
from whenabouts.core.costs.prices import SchemePrices, Sizes, Weights
from whenabouts.core.durations import number_of
from whenabouts.core.errors import Code, QueryError

STEP_ROWS = 1000.0
"""The assumed number of rows in a step."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known about a query's stream: coalescing and out-of-order probability, and tuples per second.

    ``arrived``: the number of tuples so far; None: enough to fill the extent. ``step_rows``: the tuples in a step.

    Raises: QueryError WA-2072 for a probability outside [0, 1], or a rate or step that is not positive.
    """

    cp: float = 0.5
    oop: float = 0.0
    rate: float | None = None
    arrived: int | None = None
    source: Source = "declared"
    step_rows: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("cp", self.cp), ("oop", self.oop)):
            probability = number_of(value)
            if probability is None or not 0.0 <= probability <= 1.0:
                raise QueryError(Code.BAD_STATISTICS, f"{name} is {value!r}", "probabilities lie in [0, 1]")
            object.__setattr__(self, name, probability)
        for name, given, of in (("rate", self.rate, "per second"), ("step_rows", self.step_rows, "of a step")):
            number = number_of(given)
            if given is not None and not 0.0 < (number or 0.0) < float("inf"):
                raise QueryError(Code.BAD_STATISTICS, f"{name} is {given!r}", f"give tuples {of}, over 0")
            object.__setattr__(self, name, number)


@dataclass(frozen=True, slots=True)
class ExtentCost:
    """Memory in bytes, and the mean update per arrival and one scan in the unit of the atomic costs; ``normalised``:
    each as a fraction of its maximum."""

    memory: float
    update: float
    scan: float
    normalised: tuple[float, float, float] = field(default=(0.0, 0.0, 0.0))

    def weighted(self, weights: Weights) -> float:
        """The weighted sum of the three normalised costs (equations 9 and 10)."""
        return sum(weight * part for weight, part in zip(weights.values, self.normalised, strict=True))


@dataclass(frozen=True, slots=True)
class SchemeCosts:
    """Both schemes of one query. Memory and update of ``lazy`` belong to the extent that all lazy queries share."""

    eager: ExtentCost
    lazy: ExtentCost


def scheme_costs(
    tuples: float,
    statistics: Statistics,
    costs: AtomicCosts,
    sizes: Sizes,
    *,
    largest: float | None = None,
    sharing: int = 1,
    part: float = 1.0,
) -> SchemeCosts:
    """Costs of an extent of ``tuples`` tuples under both schemes; normalised by an extent of ``largest`` tuples.

    ``largest`` is the largest window over the stream, so that the costs of queries with different windows can be added.
    ``sharing``: how many queries over the stream have this grouping, counted as if all were lazy. ``part``: the
    fraction of the extent that an eager scan reads; below 1 if results are maintained from one extent to the next.

    >>> both = scheme_costs(100, Statistics(cp=0.8), AtomicCosts(), Sizes())
    >>> round(both.eager.weighted(Weights()), 4), round(both.lazy.weighted(Weights(0, 0, 2)), 4)
    (1.3089, 1.8)
    """
    cp, oop, step = statistics.cp, statistics.oop, statistics.step_rows or STEP_ROWS
    now = costs.at(cp, oop)
    full = statistics.arrived is None or statistics.arrived > tuples
    held = tuples if full else min(tuples, statistics.arrived or 0)
    memory = held * (cp * sizes.timestamp + (1.0 - cp) * sizes.eager_row)
    split = 0.0 if cp == 1.0 or oop == 0.0 else oop * (1.0 - cp) * now["split"]
    update = (1.0 - cp) * now["insert"] + cp * now["merge"] + split + now["keep"] + now["eager_step"] / step
    shared_update = now["insert"] + now["lazy_step"] / step
    if full:
        update += cp * now["detach"] + (1.0 - cp) * now["delete"]
        shared_update += now["delete"]
    scan = part * (now["read"] * memory / sizes.eager_row + now["expand"] * held) + now["eager_step"]
    eager = memory, update, scan
    lazy = (
        held * sizes.lazy_row,
        shared_update,
        held * (now["read"] + cp * now["coalesce"] + now["order"] * sizes.lazy_row / sharing),
    )
    most = held if largest is None else largest
    return SchemeCosts(*(_extent_cost(cost, maxima(most, statistics, costs, sizes)) for cost in (eager, lazy)))


def maxima(tuples: float, statistics: Statistics, costs: AtomicCosts, sizes: Sizes) -> tuple[float, float, float]:
    """The maxima by which memory, update and scan are normalised, for an extent of this size (M_max, U_max, S_max).

    S_max is the cost of a lazy scan if all tuples coalesce, at the given out-of-order probability.
    """
    every, scanned = costs.at(1.0, 1.0), costs.at(1.0, statistics.oop)
    update = (
        every["merge"] + every["detach"] + every["keep"] + every["eager_step"] / (statistics.step_rows or STEP_ROWS)
    )
    return (
        tuples * sizes.lazy_row,
        update,
        tuples * (scanned["read"] + scanned["coalesce"] + scanned["order"] * sizes.lazy_row),
    )


def _extent_cost(cost: tuple[float, float, float], maxima: tuple[float, float, float]) -> ExtentCost:
    memory, update, scan = (x / most if most else 0.0 for x, most in zip(cost, maxima, strict=True))
    return ExtentCost(*cost, normalised=(memory, update, scan))


def eager_part(width_us: int | None, slide_us: int | None, *, aggregated: bool) -> float:
    """The fraction of an extent that a slide adds or drops, if a time-based window maintains its aggregates; else 1.

    >>> eager_part(24, 1, aggregated=True), eager_part(24, 1, aggregated=False), eager_part(24, None, aggregated=True)
    (0.08333333333333333, 1.0, 1.0)
    """
    if not aggregated or width_us is None or slide_us is None:
        return 1.0
    return min(2 * slide_us / width_us, 1.0)


UNIT = "part of the maximum, weighted"


def lone_scheme(
    tuples: float, known: Statistics, prices: SchemePrices, *, part: float = 1.0, pin: str | None = None
) -> Choice:
    """Eager or lazy, for a query that does not share its extent. Raises: QueryError WA-2161 for an unknown pin.

    >>> print(lone_scheme(100, Statistics(cp=0.5), SchemePrices()))
    scheme = eager: least cost of an extent of its own, part of the maximum, weighted: eager 1.43, lazy 2.532
    """
    both = scheme_costs(tuples, known, prices.costs, prices.sizes, part=part)
    weighed = [
        Alternative(name, of.weighted(prices.weights)) for name, of in (("eager", both.eager), ("lazy", both.lazy))
    ]
    return cheapest("scheme", weighed, UNIT, pin=pin, why="least cost of an extent of its own")
