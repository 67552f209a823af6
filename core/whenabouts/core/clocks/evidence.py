"""What speaks for a clock that was learned from rows that nothing pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from whenabouts.core.durations import format_duration


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the search for a common clock found, whether it was accepted or not.

    `fap`: the probability that unrelated streams have a line as good anywhere in the search (the false alarm
    probability), `fap_without_best` the same without its three best of the segments of time. `cell_us`: the width of
    the cells of the search. `least_share`: a share of left rows with a partner below this would not be seen, if the
    jitter is half a cell. `share`: of the left rows, with a partner, and its standard error. `chance_pairs_per_s`:
    pairs by chance for each second of difference at the line. `aliases`: other offsets as good, as distances in
    microseconds (ten at most); `modulo_us`: the period if the offset is known but for multiples of one. `wander_us`: by
    how much the clock leaves its line. `ticks_us`: the granularities of both sides that were taken into account.
    `second_us`: the distance of the best other line, as replies to requests or a step make one, and `second_fap`, the
    probability that chance makes it; it is reported, not learned.
    """

    fap: float
    fap_without_best: float
    cell_us: int
    least_share: float
    share: float = 0.0
    share_error: float = 0.0
    chance_pairs_per_s: float = 0.0
    aliases: tuple[int, ...] = ()
    modulo_us: float | None = None
    wander_us: float = 0.0
    ticks_us: tuple[int, int] = (1, 1)
    second_us: int | None = None
    second_fap: float = 1.0

    def table(self) -> list[tuple[str, str]]:
        """What is shown of it, as names and values."""
        rows = [
            ("chance", f"{self.fap:.2g}, {self.fap_without_best:.2g} without the three best segments"),
            ("cells", format_duration(self.cell_us)),
            ("least share seen", f"{self.least_share:.2g}"),
            ("granularities", " and ".join(map(format_duration, self.ticks_us))),
        ]
        if self.share:
            rows.append(("share with a partner", f"{self.share:.3g} +- {self.share_error:.1g}"))
            rows.append(("pairs by chance", f"{self.chance_pairs_per_s:.3g} for each second of difference"))
        if self.second_us is not None:
            rows.append(("another line", f"{signed(self.second_us)}, chance {self.second_fap:.2g}; not learned"))
        return rows

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Evidence:
        """The evidence that `dataclasses.asdict` gave, JSON in between."""
        # Files of the first releases had no second line.
        own = {"second_us": None, "second_fap": 1.0, **values}
        own = {name: own[name] for name in Evidence.__dataclass_fields__}
        first, second = own["ticks_us"]
        return Evidence(**{**own, "aliases": tuple(own["aliases"]), "ticks_us": (int(first), int(second))})


def signed(us: int) -> str:
    """A distance in words.

    >>> signed(-2_000_000), signed(1_500)
    ('2 s earlier', '1.5 ms later')
    """
    return f"{format_duration(abs(us))} {'earlier' if us < 0 else 'later'}"
