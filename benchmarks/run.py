"""Run the benchmarks one after the other, each in its own process, and render the page.

    python benchmarks/run.py [--full] [--only NAME ...]

The quick part takes less than ten minutes on two cores; the full one some hours, engines included. A failed benchmark
is reported at the end and keeps its earlier figures; the exit code is then 1.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import click

HERE = Path(__file__).parent
RUNS: dict[str, tuple[str | None, str]] = {
    "join_core": ("--rounds 3", ""),
    "answers": ("--quick", ""),
    "local_join": ("--rounds 3", ""),
    "asof_join": ("--rows 1000000 --rounds 1", ""),
    "asof_chance": ("--rows 50000 --rounds 3", ""),
    "asof_stream": ("--engine local --rows 200000", ""),
    "asof_keys": ("--most 10000", ""),
    "join_aggregate": ("--rounds 1 --most 10", ""),
    "batch_output": ("--rounds 1", "--large"),
    "first_call": ("--rounds 1", ""),
    "learn_clock": ("--rounds 1", "--large"),
    "chance_pieces": ("--rounds 1", ""),
    "histogram_join": ("--rounds 3", ""),
    "lookup_hits": ("--seconds 10", ""),
    "itc_figures": ("--seconds 4 --rounds 1", ""),
    "ptjoin_figure": ("", ""),
    "window_join": ("cliques", ""),
    "window_join_curves": (None, ""),
    "coalesce": ("--rows 1000000", ""),
    "coalesce_stream": ("", ""),
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
    "spark_window_join": (None, ""),
    "join_aggregate_engines": (None, ""),
    "flink_join": (None, ""),
    "kafka_join": (None, ""),
}
"""Arguments of the quick and of the full run by script; None: only in the full one."""


@click.command()
@click.option("--full", is_flag=True, help="everything, the engines too")
@click.option("--only", type=click.Choice(list(RUNS)), multiple=True, help="these alone")
def main(full: bool, only: tuple[str, ...]) -> None:
    """Run all of them, then render the page."""
    chosen = {name: args[full] for name, args in RUNS.items() if (name in only if only else args[full] is not None)}
    # Python inside Flink's JVM does not find editable installs.
    roots = [HERE.parent / name for name in ("core", "cli", "planner", "spark_plugin", "flink_plugin", "conformance")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, roots))}
    failed, begun = [], time.monotonic()
    for at, (name, arguments) in enumerate(chosen.items(), 1):
        passed = (time.monotonic() - begun) / 60
        click.secho(f"== {at} of {len(chosen)}, after {passed:.0f} min: {name} {arguments or ''}", bold=True)
        command = [sys.executable, str(HERE / f"{name}.py"), *shlex.split(arguments or "")]
        if subprocess.run(command, check=False, cwd=HERE.parent, env=environment).returncode:
            failed.append(name)
    subprocess.run([sys.executable, str(HERE / "page.py")], check=True)
    if failed:
        raise click.ClickException(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
