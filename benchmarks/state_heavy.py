"""A click-to-conversion join with 28 days of state: filling, evicting and restarting, beside the engines' own joins.

    python benchmarks/state_heavy.py [--rows-held 1000000] [--contender NAME]... [--cap MINUTES] [--folder PATH]
        [--again]

Clicks are kept for 28 days, in which there are `--rows-held` of them, and each conversion is paired with all clicks of
its user in the 28 days before it (`clicks.py` has the rows). The streams are files of a day. For 28 days state grows;
for 7 more as many rows are evicted as arrive; then the process ends (Spark) or is killed (Flink), and a new one
continues from the checkpoint for 2 days. State is in RocksDB: ours on Spark and Flink; Spark's own join with
`stateFormatVersion=4` and changelog checkpoints; ours on Flink also with `python.map-state.read-cache-size` at 0;
Flink's own interval join with incremental checkpoints, of rows made inside the JVM. Ours in one process has its state
in memory and shows what the operator by itself costs. Each contender runs alone in processes of its own, once, each for
`--cap` minutes at most; number and hash of its pairs must be those that sorting gives.

The CPU-seconds of JVM, compiler and Python are read twice a second, with their resident memory, and divided by the rows
that arrived: filling from the first output to the 28th day, then the 7 days of eviction. Whatever a process does before
its first output is not in them. Outcomes are kept in `--folder`: a run that was interrupted continues with the
contenders that are left. Contenders that were measured elsewhere keep their lines in the table. The newest Spark is
taken from the environment `.venv-newest`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

import click
from clicks import Clicks, total
from curves import draw
from measuring import RESULTS, SEPARATOR, DisagreementError, Suite
from process_cpu import cpu_of_tree, memory_of_tree
from tabulate import tabulate

HERE = Path(__file__).parent
FILLED, STEADY, DAYS = 28, 35, 37
PACE_S = 0.5
CONTENDERS = {
    "local-ours": "ours in process, in memory",
    "spark-ours": "ours on Spark", "spark-own": "Spark's own, V4",
    "flink-ours": "ours on Flink", "flink-uncached": "ours on Flink, no read cache", "flink-own": "Flink's own",
}  # fmt: skip
HEAP = "2g"
"""Of each JVM."""


@dataclass
class Sample:
    """A process tree at a moment: seconds since it began, rows that arrived, CPU-seconds, resident bytes by kind."""

    seconds: float
    rows: int
    cpu: float
    memory: dict[str, int]


@dataclass
class Outcome:
    """What a contender did. `first_s`: from the start of the second process to its first output; `rows`: how many had
    arrived when the answer was this one."""

    samples: list[Sample] = field(default_factory=list)
    state_bytes: int = 0
    first_s: float | None = None
    answer: tuple[int, int] = (0, 0)
    rows: int = 0
    capped: str = ""

    def write(self, path: Path) -> None:
        """Keep it."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Outcome:
        """As it was written."""
        kept = json.loads(path.read_text())
        kept["samples"] = [Sample(**each) for each in kept["samples"]]
        return cls(**kept | {"answer": tuple(kept["answer"])})

    def micros(self, since: int, until: int) -> float | None:
        """CPU-microseconds of a row between two numbers of rows; None if the second was not reached."""
        begun = next((each for each in self.samples if each.rows > 0 and each.rows >= since), None)
        ended = next((each for each in self.samples if each.rows >= until), None)
        if begun is None or ended is None or ended.rows == begun.rows:
            return None
        return (ended.cpu - begun.cpu) / (ended.rows - begun.rows) * 1e6

    def peak(self, kind: str) -> int:
        """The most resident bytes of the JVM, or of all Python, in two samples one after the other: a process that the
        JVM forks for a moment has all its pages."""
        held = [each.memory.get(kind, 0) for each in self.samples]
        return max(map(min, pairwise(held)), default=0)


class Progress:
    """The lines that a job has written."""

    def __init__(self, folder: Path, stream: Clicks, *, steps: bool) -> None:
        self._path, self._stream, self._steps, self.lines = folder / "progress", stream, steps, 0
        self.found: dict[int, tuple[int, int]] = {}
        self.rows = self.held = 0

    def read(self) -> None:
        """Take what is new."""
        if not self._path.exists():
            return
        lines = self._path.read_text().split("\n")[:-1]
        for line in lines[self.lines :]:
            told = json.loads(line)
            self.found[told["step"]] = told["pairs"], told["hash"]
            reached = max(told["last"] + 1 - self._stream.first(0), 0)
            if self._steps:  # all rows of the day of the last conversion
                a_day = self._stream.first(1) - self._stream.first(0)
                reached = -(-reached // a_day) * a_day
            self.rows, self.held = max(self.rows, reached), told["held"]
        self.lines = len(lines)

    @property
    def answer(self) -> tuple[int, int]:
        """All pairs so far."""
        return total(list(self.found.values()))


@dataclass
class Race:
    """One contender over the files of a folder."""

    name: str
    folder: Path
    stream: Clicks
    cap_s: float
    outcome: Outcome = field(default_factory=Outcome)

    def __post_init__(self) -> None:
        self.own = self.folder / self.name
        shutil.rmtree(self.own, ignore_errors=True)
        self.own.mkdir()
        self.spark = self.name.startswith("spark")
        self.flink = self.name.startswith("flink")
        self.progress = Progress(self.own, self.stream, steps=not self.flink)
        self.begun = time.monotonic()

    def run(self) -> Outcome:
        """Fill, evict, end, restart. What has no checkpoint goes on to the end."""
        with self.process(STEADY) as process:
            self.watch(process, until=self.rows(STEADY))
        self.outcome.state_bytes = self.progress.held or _size(self.own / "checkpoint")
        self.progress.read()
        lines = self.progress.lines
        begun = self.begun = time.monotonic()
        ended = not any(self.own.glob("checkpoint/*")) or self.progress.rows == self.rows(DAYS)
        if not self.outcome.capped and not ended:
            with self.process(DAYS, "--restart") as process:
                while self.alive(process) and self.progress.lines == lines:
                    time.sleep(0.1)
                    self.progress.read()
                self.outcome.first_s = time.monotonic() - begun
                while self.alive(process):
                    time.sleep(PACE_S)
        self.progress.read()
        self.outcome.answer, self.outcome.rows = self.progress.answer, self.progress.rows
        return self.outcome

    def rows(self, days: int) -> int:
        """Rows of so many days."""
        return self.stream.first(days) - self.stream.first(0)

    @contextmanager
    def process(self, seen: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """The job in a session of its own, killed at the end."""
        python = HERE.parent / ".venv-newest" / "bin" / "python" if self.spark else sys.executable
        script, stream = HERE / "state_heavy_jobs.py", self.stream
        command = [python, script, self.name, self.folder, stream.held, stream.days, seen]
        with open(self.own / "log", "ab") as log:
            process = subprocess.Popen(
                [*map(str, command), *options],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=_environment(self.spark),
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def alive(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether it still runs. Raises ClickException if it failed; one that is out of time is ended."""
        if time.monotonic() - self.begun > self.cap_s:
            self.outcome.capped = f"stopped after {self.cap_s / 60:.0f} minutes"
            return False
        if process.poll() not in (None, 0):
            raise click.ClickException(f"{self.name} failed: {(self.own / 'log').read_text()[-2000:]}")
        return process.poll() is None

    def watch(self, process: subprocess.Popen[bytes], until: int) -> None:
        """Samples, until the process ends, or a job that would go on has read so many rows."""
        begun, told = time.monotonic(), 0.0
        while self.alive(process):
            time.sleep(PACE_S)
            self.progress.read()
            seconds, cpu, memory = time.monotonic() - begun, cpu_of_tree(process.pid), memory_of_tree(process.pid)
            self.outcome.samples.append(Sample(seconds, self.progress.rows, sum(cpu.values()), memory))
            if seconds > told + 10:
                told = seconds
                held = ", ".join(f"{kind} {size / 2**30:.2f} GiB" for kind, size in memory.items())
                click.echo(
                    f"  {self.name}: {seconds:5.0f} s, {self.progress.rows / self.rows(1):5.1f} days of {DAYS}, "
                    f"{sum(cpu.values()):7.1f} CPU-s, {held}"
                )
            if self.flink and self.progress.rows >= until:
                return


def _environment(spark: bool) -> dict[str, str]:
    """Without these, Python in the JVM would not find editable installs, and Flink's heap would be a quarter of the
    machine's memory."""
    packages = ("core", "cli", "planner", "spark_plugin", "flink_plugin", "conformance")
    roots = {"PYTHONPATH": os.pathsep.join(str(HERE.parent / name) for name in packages)}
    return os.environ | roots | ({"STATE_HEAVY_HEAP": HEAP} if spark else {"JAVA_TOOL_OPTIONS": f"-Xmx{HEAP}"})


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def check(name: str, outcome: Outcome, stream: Clicks, folder: Path) -> None:
    """Compare with what sorting gives, also after the days that a job of Spark's has ended within its time."""
    kept = folder / "answers.json"
    if not kept.exists():
        click.echo("  sorting, for the answers")
        kept.write_text(json.dumps(stream.answers()))
    answers = [tuple(each) for each in json.loads(kept.read_text())]
    wanted = answers[-1]
    if outcome.capped:
        if name.startswith("flink"):
            return
        days = outcome.rows // (stream.first(1) - stream.first(0))
        wanted = answers[days - 1] if days else (0, 0)
    if outcome.answer != wanted:
        raise DisagreementError(f"{name} gave {outcome.answer}, not {wanted} (pairs, hash)")


def record(suite: Suite, name: str, outcome: Outcome, stream: Clicks) -> list[str]:
    """The series of a contender; returns its line of the table."""
    day = stream.first(1) - stream.first(0)
    held, who = f"{stream.held:,} rows held", CONTENDERS[name]
    rows = outcome.rows
    filling = outcome.micros(1, min(FILLED * day, rows))
    half = outcome.micros(FILLED * day // 2, min(FILLED * day, rows))
    evicting = outcome.micros(FILLED * day, min(STEADY * day, rows)) if rows > FILLED * day else None
    peaks = {kind: outcome.peak(kind) for kind in ("JVM", "workers")}
    facts = {"rows_in": rows, "rows_out": outcome.answer[0], "hash": f"{outcome.answer[1]:x}"}
    for what, value, unit in (
        ("CPU-s of a million rows, filling", filling, "second"),
        ("CPU-s of a million rows, evicting", evicting, "second"),
        ("restart to first output", outcome.first_s, "second"), ("state on disk", outcome.state_bytes, "byte"),
        ("most memory of the JVM", peaks["JVM"], "byte"), ("most memory of Python", peaks["workers"], "byte"),
    ):  # fmt: skip
        if value:
            suite.record(f"{held}, {what}{SEPARATOR}{who}", [value], unit=unit, **facts)
    told = [f"{value:.1f}" if value else "-" for value in (filling, half, evicting)]
    sizes = [f"{size / 2**20:,.0f}" for size in (outcome.state_bytes, *peaks.values())]
    first = f"{outcome.first_s:.0f}" if outcome.first_s else "-"
    reached = outcome.capped and f"{outcome.capped}, after {rows / day:.0f} of {DAYS} days"
    return [who, *told, *sizes, first, reached or f"{outcome.answer[0]:,} pairs"]


HEADS = [
    "", "CPU-us a row, filling", "its second half", "evicting", "state, MiB", "JVM, MiB", "Python, MiB",
    "restart, s", "answer",
]  # fmt: skip
TITLE = "State: clicks and conversions within 28 days"


LINES = RESULTS / "state_heavy" / "lines.json"
"""By rows held and contender: its line of the table, and its memory by day. Hours may lie between two contenders."""


def report(suite: Suite, stream: Clicks, outcomes: dict[str, Outcome], kept: Path = LINES) -> None:
    """Series, the table and the picture of memory, with the contenders that were measured before."""
    a_day, everything = stream.first(1) - stream.first(0), json.loads(kept.read_text()) if kept.exists() else {}
    told = everything.setdefault(str(stream.held), {})
    for name, outcome in outcomes.items():
        told[name] = {"line": record(suite, name, outcome, stream), "memory": _memory(outcome, a_day)}
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps(everything, indent=1) + "\n")
    known = {name: told[name] for name in CONTENDERS if name in told}
    table = tabulate([each["line"] for each in known.values()], HEADS, tablefmt="github", disable_numparse=True)
    lines = {CONTENDERS[name]: each["memory"] for name, each in known.items() if each["memory"]}
    axes = {"xscale": "linear", "yscale": "linear", "ylim": (0, None)}
    plot = draw(f"state_heavy_{stream.held}", lines, "days of the stream", "resident memory (MiB)", **axes)
    why = (
        f"{stream.held:,} clicks in a window, {stream.keys:,} users, single runs. `filling` is from the first output "
        "to the 28th day, `evicting` the 7 days after it; state is the checkpoint's, memory the most that was used, "
        "`restart` the time by the clock from the start of a process to its first output; it depends on whatever else "
        f"the machine does.\n\n{table}\n"
    )
    suite.finding(f"{TITLE}, {stream.held:,} held", why, plots=[plot])
    suite.save()


def _memory(outcome: Outcome, a_day: int) -> list[tuple[float, float]]:
    """Resident memory by the days that were read, the most of each day."""
    days: dict[int, float] = {}
    for each in outcome.samples:
        if each.rows:
            days[each.rows // a_day] = max(days.get(each.rows // a_day, 0.0), sum(each.memory.values()) / 2**20)
    return sorted(days.items())


@click.command(help=__doc__)
@click.option("--rows-held", default=1_000_000, show_default=True, help="Clicks in 28 days.")
@click.option("--contender", "names", multiple=True, type=click.Choice(list(CONTENDERS)), help="All unless given.")
@click.option("--cap", default=60.0, show_default=True, help="Minutes of each process.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where rows, state and outcomes are kept.")
@click.option("--again", is_flag=True, help="Run contenders that the folder has outcomes of.")
def main(rows_held: int, names: Sequence[str], cap: float, folder: Path | None, again: bool) -> None:
    """One after the other."""
    stream, suite = Clicks(rows_held, DAYS), Suite("state_heavy", 1)
    folder = (folder or Path(tempfile.gettempdir()) / "whenabouts-state-heavy") / str(rows_held)
    folder.mkdir(parents=True, exist_ok=True)
    stream.write(folder)
    for number, name in enumerate(names or CONTENDERS, 1):
        kept = folder / f"{name}.json"
        if kept.exists() and not again:
            click.echo(f"{name}: measured before")
            continue
        click.secho(f"{number} of {len(names or CONTENDERS)}: {CONTENDERS[name]}, {rows_held:,} rows held", bold=True)
        outcome = Race(name, folder, stream, 60 * cap).run()
        check(name, outcome, stream, folder)
        outcome.write(kept)
        shutil.rmtree(folder / name, ignore_errors=True)
        report(suite, stream, _kept(folder))
    report(suite, stream, _kept(folder))


def _kept(folder: Path) -> dict[str, Outcome]:
    return {name: Outcome.read(path) for name in CONTENDERS if (path := folder / f"{name}.json").exists()}


if __name__ == "__main__":
    main()
