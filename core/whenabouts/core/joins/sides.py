"""The two sides of a join, and what their settings have in common."""

from __future__ import annotations

from typing import Any

from whenabouts.core.runtime.key_names import Key, On, key_names
from whenabouts.core.times.lateness import Lateness

SIDES: tuple[str, str] = ("left", "right")
LEFT, RIGHT = 0, 1
"""The places of the sides among the inputs."""


class TwoSides:
    """What the settings of a join of two sides say of its keys and of late rows."""

    on: On
    lateness: Any

    @property
    def inputs(self) -> tuple[str, ...]:
        """The two inputs."""
        return SIDES

    @property
    def key_columns(self) -> tuple[Key, ...]:
        """`on` as a tuple, with a pair of names for a key that the sides name differently."""
        return key_names(self.on, self.inputs)

    @property
    def lateness_us(self) -> tuple[int, ...]:
        """Lateness of left and right in microseconds."""
        return (self.lateness or Lateness()).per_input_us

    @property
    def says_lateness(self) -> bool:
        """Whether `lateness` was given."""
        return self.lateness is not None

    @property
    def idle_after_us(self) -> int | None:
        """How far behind the other side an idle side is, in microseconds; None: no side is idle."""
        return (self.lateness or Lateness()).idle_after_us
