"""Modes of the timing join: which rows are emitted, and when they are decided.

A mode has two parts. `how`: are rows without a partner emitted (outer, anti), or pairs (inner, outer), or only the left
row of a pair (semi)? `best`: does a row keep all its partners, or only the most probable one?

On a stream a row is *final* once the watermark proves that no future row of the other input can match it. Let W0 be the
least such watermark of a row. Output is decided

    | what | at |
    | --- | --- |
    | a pair of an inner or outer mode, a semi row | its first match, at once |
    | a row without a partner (outer, anti) | its W0 |
    | the best partner of a row | its W0 |
    | a mutual best pair, or a row whose best partner prefers another | the later W0 of the row and its best partner |
    | a row that no row chose (outer, on the side that `best` does not name) | the latest W0 of it and its matches |
    | a row with a null key | at once |

None of this depends on the order of arrival or on how rows were batched.
"""

from __future__ import annotations

from dataclasses import dataclass

from whenabouts.core.errors import Code, QueryError
from whenabouts.core.joins.how_names import how_of
from whenabouts.core.joins.sides import LEFT, RIGHT
from whenabouts.core.runtime.option_checks import one_of

HOWS = ("inner", "left_outer", "right_outer", "full_outer", "left_semi", "left_anti")
BESTS = (None, "left", "right", "both")
TIES = ("earliest", "nearest")
"""Which of equally probable partners `best` prefers: the earliest, or the one with the nearest midpoint."""

_WITHOUT_PARTNER: dict[str, tuple[int, ...]] = {
    "left_outer": (LEFT,),
    "right_outer": (RIGHT,),
    "full_outer": (LEFT, RIGHT),
    "left_anti": (LEFT,),
}
_CHOOSING: dict[str | None, tuple[int, ...]] = {"left": (LEFT,), "right": (RIGHT,), "both": (LEFT, RIGHT)}


@dataclass(frozen=True)
class Mode:
    """`how`, `best` and `ties`, validated.

    `how` may be the name that Spark, pandas or Polars has for it: `left`, `outer`, `leftanti`, `LEFT OUTER`.

    Raises QueryError WA-2006 for an unknown value, for `best` in a mode that emits no partner, and for `ties` without
    `best`.

    >>> Mode("full_outer", "left").preserved, Mode("left_semi").one_sided, Mode("inner").plain, Mode("leftouter").how
    ((0, 1), True, True, 'left_outer')
    """

    how: str = "inner"
    best: str | None = None
    ties: str = "earliest"

    def __post_init__(self) -> None:
        object.__setattr__(self, "how", how_of(self.how, HOWS))
        one_of("best", self.best, BESTS)
        one_of("ties", self.ties, TIES)
        if self.ties != "earliest" and self.best is None:
            raise QueryError(Code.BAD_OPTION, f"ties={self.ties!r} without best", "say which side chooses: best='left'")
        if self.best is not None and self.one_sided:
            raise QueryError(
                Code.BAD_OPTION,
                f"best={self.best!r} with how={self.how!r}, which emits no partner",
                "leave best out, or use an inner or outer mode",
            )

    @property
    def plain(self) -> bool:
        """Whether the output is all pairs and nothing else."""
        return self.how == "inner" and self.best is None

    @property
    def one_sided(self) -> bool:
        """Whether only left columns are emitted (semi, anti)."""
        return self.how in ("left_semi", "left_anti")

    @property
    def preserved(self) -> tuple[int, ...]:
        """Inputs whose rows are emitted even without a partner."""
        return _WITHOUT_PARTNER.get(self.how, ())

    @property
    def choosing(self) -> tuple[int, ...]:
        """Inputs whose rows keep only their best partner."""
        return _CHOOSING.get(self.best, ())

    @property
    def chosen_only(self) -> tuple[int, ...]:
        """Preserved inputs whose rows do not choose, but must know whether they were chosen."""
        return tuple(input for input in self.preserved if self.best is not None and input not in self.choosing)


def home_input(mode: Mode) -> int:
    """The input whose rows a mode decides about. Raises QueryError WA-2041 if it decides about both.

    >>> home_input(Mode("right_outer")), home_input(Mode(best="left"))
    (1, 0)
    """
    decided = {*mode.preserved, *mode.choosing} | ({LEFT} if mode.one_sided else set())
    if len(decided) > 1:
        raise QueryError(
            Code.NOT_SLOTTED,
            f"time slots with how={mode.how!r}" + (f" and best={mode.best!r}" if mode.best else ""),
            "this mode decides about rows of both inputs, which no single bucket can do: leave time_slots out",
        )
    return next(iter(decided), LEFT)
