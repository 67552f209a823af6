"""Draws the pictures of the documentation: `python docs/pictures.py`."""

from __future__ import annotations

from pathlib import Path

import whenabouts as wa

HERE = Path(__file__).parent
SECOND = 1_000_000


def pair() -> None:
    """A badge at second 35, and a door that opened between 30 and 40: docs/why-and-chance.md."""
    query = wa.TimingJoin(
        left_time=wa.Point("t"),
        right_time=wa.Interval("after", "seen"),
        condition=wa.deadline("4s", since="0s", confidence=0.6),
    )
    answer = wa.why_not({"t": 35 * SECOND}, {"after": 30 * SECOND, "seen": 40 * SECOND}, query=query)
    answer.plot().savefig(HERE / "pair.svg", metadata={"Date": None})


if __name__ == "__main__":
    import matplotlib as mpl

    mpl.rcParams["svg.hashsalt"] = "whenabouts"  # the same file each time
    pair()
