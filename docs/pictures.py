"""Draws the pictures of the documentation: `python docs/pictures.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from rich.console import Console
from rich.text import Text

import whenabouts as wa

HERE = Path(__file__).parent
SECOND = 1_000_000

BADGES = {"ann": 12, "bob": 34, "eve": 45}
DOORS = {"north": 20, "north again": 30, "south": 50}
POLL_S, WITHIN_S = 10, 5
FOUND, INVENTED, GREY = "#2f8f4e", "#c0392b", "#555555"


def overview(file: Path) -> None:
    """The example of the README: a pair that both find, one that an ordinary join misses, one that it invents."""
    query = wa.TimingJoin(
        left_time=wa.Point("t"),
        right_time=wa.from_polling("seen", f"{POLL_S} s"),
        condition=wa.within(f"{WITHIN_S} s", confidence=0.5),
    )
    figure = Figure(figsize=(9, 3.1), layout="constrained")
    axes = figure.subplots()
    for badge, t in BADGES.items():
        axes.plot([t, t], [0.86, 1.14], color="#1f6fb2", lw=3)
        axes.annotate(f"{badge}, {t}", (t, 1.2), ha="center", color="#1f6fb2")
    for n, (door, seen) in enumerate(DOORS.items()):
        _blurred(axes, seen - POLL_S, seen)
        axes.plot([seen, seen], [-0.15, 0.15], color="#d1741f", lw=2)
        axes.annotate(f"{door.split()[0]}, seen at {seen}", (seen - POLL_S / 2, -0.34), ha="center", color="#b35f12")
        for t in BADGES.values():
            p = wa.why_not({"t": t * SECOND}, {"seen": seen * SECOND}, query=query).probability or 0.0
            if not p:
                continue
            matches, joined = p >= query.condition.confidence, abs(seen - t) <= WITHIN_S
            colour = FOUND if matches else INVENTED
            axes.plot([t, seen - POLL_S / 2], [0.84, 0.17], color=colour, lw=1.8, ls="-" if matches else "--")
            said = {(True, True): "found by both", (True, False): "an ordinary join misses it"}
            text = f"{p:g}: {said.get((matches, joined), 'an ordinary join invents it')}"
            side = -1 if n == 0 else 1
            axes.annotate(
                text, ((t + seen - POLL_S / 2) / 2 + side * 0.6, 0.5), color=colour, ha="right" if side < 0 else "left",
                va="center", fontsize="small",
            )  # fmt: skip
    axes.set(xlim=(-1, 58), ylim=(-0.55, 1.45), yticks=[0, 1], yticklabels=["doors", "badges"])
    axes.set_xlabel("seconds after 10:00:00")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(left=False)
    figure.savefig(file, metadata={"Date": None})


def _blurred(axes: Any, start: float, end: float) -> None:
    for inset in (0, 0.25, 0.5):
        axes.barh(
            0, end - start - 2 * inset, left=start + inset, height=0.3 - inset / 5, color="#d1741f", alpha=0.22, lw=0
        )


def pair(file: Path) -> None:
    """A badge at second 35, and a door that opened between 30 and 40: docs/why-and-chance.md."""
    query = wa.TimingJoin(
        left_time=wa.Point("t"),
        right_time=wa.Interval("after", "seen"),
        condition=wa.deadline("4s", since="0s", confidence=0.6),
    )
    answer = wa.why_not({"t": 35 * SECOND}, {"after": 30 * SECOND, "seen": 40 * SECOND}, query=query)
    answer.plot().savefig(file, metadata={"Date": None})


COMMANDS = (
    "cat doors.csv",
    "whenabouts join badges.csv doors.csv --left-time t --right-time after,seen --within 5s --confidence 0.5",
    "whenabouts join badges.csv doors.csv --left-time t --right-time after,seen --within 5s --confidence 0.5 --why 1,1",
)


def terminal(file: Path) -> None:
    """What the command line says to the example of the README."""
    console = Console(record=True, width=118, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    with TemporaryDirectory() as folder:
        at = "2024-05-01 10:00:{:02d}Z".format
        Path(folder, "badges.csv").write_text("badge,t\n" + "".join(f"{who},{at(t)}\n" for who, t in BADGES.items()))
        rows = "".join(f"{door.split()[0]},{at(seen - POLL_S)},{at(seen)}\n" for door, seen in DOORS.items())
        Path(folder, "doors.csv").write_text("door,after,seen\n" + rows)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        for command in COMMANDS:
            done = subprocess.run(
                command.split(),
                cwd=folder,
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, "PATH": path},
            )
            console.print(Text("$ ", "bold green") + Text(command, "bold"))
            console.print(Text(done.stdout + done.stderr))
    file.write_text(console.export_svg(title="whenabouts", unique_id="whenabouts"))


def tutorial(draw: Callable[[dict[str, Any]], Figure]) -> Callable[[Path], None]:
    """A picture of docs/tutorial.md, drawn with the names that its code blocks define."""

    def save(file: Path) -> None:
        names: dict[str, Any] = {}
        lines = [line[4:] for line in (HERE / "tutorial.md").read_text().splitlines() if line[:3] in (">>>", "...")]
        with redirect_stdout(StringIO()):
            exec("\n".join(lines).partition("import warnings")[0], names)
        draw(names).savefig(file, metadata={"Date": None})

    return save


PICTURES = {
    "readme.svg": overview, "pair.svg": pair, "terminal.svg": terminal,
    "tutorial-why.svg": tutorial(lambda named: named["why"].plot()),
    "tutorial-timeline.svg": tutorial(
        lambda named: wa.timeline(named["deploys"], named["alerts"], named["pairs"], query=named["query"])
    ),
}  # fmt: skip

if __name__ == "__main__":
    mpl.rcParams["svg.hashsalt"] = "whenabouts"  # the same file each time
    for name, draw in PICTURES.items():
        draw(HERE / name)
