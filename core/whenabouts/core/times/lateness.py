"""How far rows may lag behind the watermark, for each side of a join."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from whenabouts.core.durations import Duration, parse_duration, parse_non_negative
from whenabouts.core.errors import Code, QueryError


@dataclass(frozen=True, slots=True)
class Lateness:
    """How far a row's `t_max` may lag behind its side's greatest `t_max` before the row is late, per side of a join.

    `idle_after`: a side is idle once its watermark (its greatest `t_max` less its lateness) lags this far behind the
    other side's. An idle side no longer holds the join's watermark back, so that results are emitted and state stays
    bounded while one side is silent. Idleness follows event time, not a wall clock, so a replay gives the same rows. It
    is measured from the start of a side's last block (file, micro-batch), so that no side becomes idle within a block.
    When an idle side resumes, rows behind the watermark are late and rejected. None: a silent side is never idle.

    >>> Lateness(left="5 s")
    Lateness(left=5000000, right=0, idle_after=None)
    """

    left: Duration = 0
    right: Duration = 0
    idle_after: Duration | None = None

    def __post_init__(self) -> None:
        if self.idle_after is not None:
            object.__setattr__(self, "idle_after", parse_non_negative(self.idle_after, name="idle_after"))
        for side in ("left", "right"):
            object.__setattr__(self, side, parse_non_negative(getattr(self, side), name=f"lateness of the {side} side"))

    @classmethod
    def of(cls, given: Lateness | Duration | Mapping[str, Duration] | None) -> Lateness | None:
        """From what a user gives: one duration for both sides, or a mapping with `left` and `right`.

        Raises QueryError WA-2002 for an invalid duration, WA-2006 for an unknown side.

        >>> Lateness.of("5 s") == Lateness("5 s", "5 s"), Lateness.of({"right": "1 s"}), Lateness.of(None)
        (True, Lateness(left=0, right=1000000, idle_after=None), None)
        """
        if given is None or isinstance(given, Lateness):
            return given
        if not isinstance(given, Mapping):
            return cls(given, given)
        unknown = [side for side in given if side not in ("left", "right")]
        if unknown:
            raise QueryError(
                Code.BAD_OPTION,
                f"lateness is given for {', '.join(map(repr, unknown))}",
                "the sides are left and right",
            )
        return cls(**given)

    @property
    def per_input_us(self) -> tuple[int, int]:
        """The lateness of the left and the right input, in microseconds."""
        return parse_duration(self.left), parse_duration(self.right)

    @property
    def idle_after_us(self) -> int | None:
        """`idle_after` in microseconds, None if a silent side is never idle."""
        return None if self.idle_after is None else parse_duration(self.idle_after)
