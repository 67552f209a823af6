"""What the operators read of a coalescing query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from whenabouts.core.coalescing.equivalence import Equivalence
from whenabouts.core.coalescing.window_spec import Extents
from whenabouts.core.times.time_specs import Point


@dataclass(frozen=True)
class CoalescingSpec:
    """What determines the coalesced extents of one input."""

    group: tuple[str, ...]
    values: tuple[str, ...]
    extents: Extents
    equivalence: Equivalence
    eager: bool
    lateness_us: int


class CoalesceSettings(Protocol):
    """The validated settings of a `Coalesce`."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs."""

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """The columns that say in which bucket a row is."""

    @property
    def point(self) -> Point:
        """The time of a row."""

    @property
    def extents(self) -> Extents:
        """The window, and the instants at which it is evaluated."""

    @property
    def valid_last(self) -> bool:
        """Whether rows have the time of their last tuple."""

    @property
    def coalescing(self) -> CoalescingSpec:
        """What determines the extents of each input."""
