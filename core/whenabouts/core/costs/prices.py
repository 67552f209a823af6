"""What operations cost, in nanoseconds or weighted parts: defaults, or as `whenabouts calibrate` measured."""

from __future__ import annotations

from dataclasses import dataclass, field

from whenabouts.core.costs.operation_costs import AtomicCosts
from whenabouts.core.errors import Code, QueryError


@dataclass(frozen=True, slots=True)
class TimingJoinPrices:
    """Nanoseconds, rounded from runs on two idle cores; `whenabouts calibrate` measures them where it runs.

    What is chosen depends on their order of magnitude: a step costs as much as thousands of rows.

    `probed`: the part of the rows within reach of uncertainty that the ranges leave to the kernel.
    """

    step: float = 760_000.0
    """A step: its segments are read and written, and a correlation begins."""
    row: float = 125.0
    """A row: put in order, and its ranges found."""
    pair: float = 40.0
    """A pair that comes out."""
    kernel: float = 140.0
    """A pair for which the kernel decides."""
    looked_up: float = 0.65
    """What is left of that where a table answers a third of the questions (`benchmarks/lookup_hits.py`)."""
    probed_by_midpoints: float = 0.35
    probed_by_ends: float = 0.55


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
class SchemePrices:
    """What coalescing costs, and what counts how much: made up, or calibrated."""

    costs: AtomicCosts = field(default_factory=AtomicCosts)
    sizes: Sizes = field(default_factory=Sizes)
    weights: Weights = field(default_factory=Weights)
