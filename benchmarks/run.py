"""Run the benchmarks one after the other, each in its own process, and render the page.

    python benchmarks/run.py [--full] [--only NAME ...] [--again]

The quick part takes less than ten minutes on two cores; the full one some hours, engines included. A failed benchmark
is reported at the end and keeps its earlier figures; the exit code is then 1. A run that was interrupted, or in which
some failed, continues with what is left, unless the sources have changed since or `--again` is given.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import click

HERE = Path(__file__).parent
PACKAGES = ("core", "cli", "planner", "spark_plugin", "flink_plugin", "conformance")
UNFINISHED = HERE.parent / ".cache" / "benchmarks.json"
"""What an unfinished run has measured, and of which sources."""
RUNS: dict[str, tuple[str | None, str]] = {
    "join_core": ("--rounds 3", ""),
    "answers": ("--quick", ""),
    "local_join": ("--rounds 3", ""),
    "overlaps": ("--rounds 3", ""),
    "asof_join": ("--rows 1000000 --rounds 1", ""),
    "asof_chance": ("--rows 50000 --rounds 3", ""),
    "asof_stream": ("--engine local --rows 200000", ""),
    "asof_keys": ("--most 10000", ""),
    "join_aggregate": ("--rounds 3 --most 10", ""),
    "batch_output": ("--rounds 1", "--large"),
    "first_call": ("--rounds 1", ""),
    "learn_clock": ("--rounds 1", "--large"),
    "chance_pieces": ("--rounds 1", ""),
    "histogram_join": ("--rounds 3", ""),
    "lookup_hits": ("--seconds 10", ""),
    "itc_figures": ("--seconds 2 --rounds 1", ""),
    "ptjoin_figure": ("", ""),
    "window_join": ("cliques", ""),
    "window_join_curves": (None, ""),
    "coalesce": ("--rows 1000000", ""),
    "coalesce_stream": ("", ""),
    "early_answers": (None, ""),
    "extent_complexity": (None, ""),
    "sliding_aggregate": ("--groups 20", ""),
    "planner_figures": ("", ""),
    "planner_mix": (None, ""),
    "planner_prices": (None, ""),
    "planner_speed": ("--rounds 1", ""),
    "sliding_stream": (None, ""),
    "stream_peers": ("--rounds 1", ""),
    "growth": ("--most 1000000 --rounds 1", ""),
    "scale": (None, ""),
    "spark_join": (None, "--out benchmarks/results/spark_join.md"),
    "small_steps": (None, ""),
    "crossing_points": (None, ""),
    "spark_window_join": (None, ""),
    "join_aggregate_engines": (None, ""),
    "flink_join": (None, ""),
    "crossing_points_flink": (None, ""),
    "join_aggregate_flink": (None, ""),
    "kafka_join": (None, ""),
    "kafka_join/newest": (None, "--engine spark --no-latency"),
    "state_heavy": (None, "--again"),
}
"""Arguments of the quick and of the full run by script (before a slash); None: only in the full one."""

NEWEST_SPARK = frozenset({"crossing_points", "kafka_join/newest", "small_steps", "spark_join"})
"""What is measured beside the newest Spark, which has an environment of its own."""


def sources() -> str:
    """A hash of everything that could change a figure."""
    digest = hashlib.sha256()
    for folder in (*PACKAGES, HERE.name):
        for path in sorted(each for kind in ("*.py", "*.java") for each in (HERE.parent / folder).rglob(kind)):
            digest.update(str(path.relative_to(HERE.parent)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def measured_before(run: dict[str, str]) -> dict[str, float]:
    """The minutes of each benchmark that an unfinished run of the same kind has measured."""
    try:
        stored = json.loads(UNFINISHED.read_text())
        return dict(stored["minutes"]) if stored["run"] == run else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


@click.command()
@click.option("--full", is_flag=True, help="everything, the engines too")
@click.option("--only", type=click.Choice(list(RUNS)), multiple=True, help="these alone, with all their cases")
@click.option("--again", is_flag=True, help="measure again what an unfinished run has measured")
def main(full: bool, only: tuple[str, ...], again: bool) -> None:
    """Run all of them, then render the page."""
    chosen = {name: args[full] for name, args in RUNS.items() if (name in only if only else args[full] is not None)}
    # Python inside Flink's JVM does not find editable installs.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(HERE.parent / name) for name in PACKAGES)}
    run = {"sources": sources(), "part": "full" if full else "quick"}
    minutes = {} if again or only else measured_before(run)
    failed = []
    for at, (name, arguments) in enumerate(chosen.items(), 1):
        what = f"{at} of {len(chosen)}, after {sum(minutes.values()):.1f} min: {name} {arguments or ''}".rstrip()
        if name in minutes:
            click.secho(f"== {what}: measured before", bold=True)
            continue
        click.secho(f"== {what}", bold=True)
        begun = time.monotonic()
        python = str(HERE.parent / ".venv-newest" / "bin" / "python") if name in NEWEST_SPARK else sys.executable
        command = [python, str(HERE / f"{name.partition('/')[0]}.py"), *shlex.split(arguments or "")]
        if subprocess.run(command, check=False, cwd=HERE.parent, env=environment).returncode:
            failed.append(name)
            continue
        minutes[name] = (time.monotonic() - begun) / 60
        if not only:
            UNFINISHED.parent.mkdir(exist_ok=True)
            UNFINISHED.write_text(json.dumps({"run": run, "minutes": minutes}, indent=1) + "\n")
    subprocess.run([sys.executable, str(HERE / "page.py")], check=True)
    for name, spent in sorted(minutes.items(), key=lambda item: -item[1]):
        click.echo(f"{spent:6.1f} min  {name}")
    if failed:
        raise click.ClickException(f"failed: {', '.join(failed)}")
    if not only:
        UNFINISHED.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
