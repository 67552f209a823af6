"""Prices of operations, in nanoseconds or normalised and weighted: defaults, or measured by `whenabouts calibrate`."""

from __future__ import annotations

from dataclasses import dataclass, field

from whenabouts.core.costs.operation_costs import AtomicCosts
from whenabouts.core.durations import number_of
from whenabouts.core.errors import Code, QueryError


@dataclass(frozen=True, slots=True)
class TimingJoinPrices:
    """Nanoseconds, rounded from runs on two idle cores; `whenabouts calibrate` measures them on your machine.

    Choices depend only on their order of magnitude: a step costs as much as thousands of rows.

    `probed_by_midpoints`, `probed_by_ends`: the fraction of the rows within reach of the uncertainty for which the
    ranges of that strategy leave the decision to the kernel.
    """

    step: float = 760_000.0
    """A step: reading and writing its segments, and starting a correlation."""
    row: float = 125.0
    """A row: sorting it, and finding its ranges."""
    pair: float = 40.0
    """An output pair."""
    kernel: float = 140.0
    """A pair that the kernel decides."""
    looked_up: float = 0.65
    """The fraction of `kernel` that remains if a table decides a third of the pairs (`benchmarks/lookup_hits.py`)."""
    probed_by_midpoints: float = 0.35
    probed_by_ends: float = 0.55


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of memory, update and scan, each normalised by its maximum (the paper's lambdas).

    Raises: QueryError WA-2006 for a negative weight or three zeros.
    """

    memory: float = 1.0
    update: float = 1.0
    scan: float = 2.0

    def __post_init__(self) -> None:
        numbers = [number_of(weight) for weight in self.values]
        if not all(each is not None and 0.0 <= each < float("inf") for each in numbers) or not any(numbers):
            raise QueryError(Code.BAD_OPTION, f"weights are {self.values}", "three numbers >= 0, not all 0")
        for name, number in zip(("memory", "update", "scan"), numbers, strict=True):
            object.__setattr__(self, name, number)

    @property
    def values(self) -> tuple[float, float, float]:
        """Memory, update, scan."""
        return self.memory, self.update, self.scan


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of a tuple in an eager extent (the query's columns) and in a lazy one (all columns), and of a timestamp."""

    eager_row: float = 60.0
    lazy_row: float = 100.0
    timestamp: float = 19.8


@dataclass(frozen=True, slots=True)
class SchemePrices:
    """The prices of coalescing, and the weights of memory, update and scan: defaults, or calibrated."""

    costs: AtomicCosts = field(default_factory=AtomicCosts)
    sizes: Sizes = field(default_factory=Sizes)
    weights: Weights = field(default_factory=Weights)
