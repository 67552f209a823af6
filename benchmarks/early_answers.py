"""What early answers of a stream cost: CPU-seconds of `emit="early"` over those of `emit="final"`, rows out of order.

    python benchmarks/early_answers.py [--rows 400000] [--out-of-order 0.1] [--rounds 5]

Readings of many groups, a tenth of them late by up to the lateness, which is a number of steps. The local engine runs
both as a stream; the changes of the early answers, applied, must be the final rows. Rows of `early` are those of
`final` and the corrections: how many, and the ratio without building them, come last.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import click
import numpy as np
import pyarrow as pa
from measuring import Suite

from whenabouts.core import SingleBucketWarning
from whenabouts.core.coalescing.early_changes import ChangeOutput
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.local import run_stream

APART_US = 1_000
"""Between readings."""


def readings(rows: int, groups: int, out_of_order: float, lateness_us: int) -> pa.Table:
    """In order of arrival; with probability 0.7 a value equals that of the group's previous reading."""
    rng = np.random.default_rng(1)
    at, group, value = np.arange(rows) * APART_US, rng.integers(0, groups, rows), np.empty(rows, np.int64)
    value[np.argsort(group, kind="stable")] = np.cumsum(rng.random(rows) >= 0.7)
    comes = at + np.where(rng.random(rows) < out_of_order, rng.integers(0, lateness_us, rows), 0)
    return pa.table({"g": group, "t": at, "v": value}).take(pa.array(np.argsort(comes, kind="stable")))


def run_as(query: Coalesce, files: list[pa.Table]) -> pa.Table:
    """The output of a stream."""
    return run_stream(query, [files]).output


def spent_on_rows(query: Coalesce, files: list[pa.Table]) -> tuple[int, float]:
    """How many rows early answers have, and the CPU-seconds in which they are built from what has changed."""
    spent, build = [0.0], ChangeOutput.of_rows

    def timed(self: ChangeOutput, *args: Any) -> pa.RecordBatch:
        begun = time.process_time()
        rows = build(self, *args)
        spent[0] += time.process_time() - begun
        return rows

    ChangeOutput.of_rows = timed  # type: ignore[method-assign]
    try:
        return run_as(query, files).num_rows, spent[0]
    finally:
        ChangeOutput.of_rows = build  # type: ignore[method-assign]


def digest(found: pa.Table) -> tuple[int, int]:
    """The rows that remain, and their hash."""
    sign = np.ones(found.num_rows, np.int64)
    if "op" in found.column_names:
        sign[np.isin(found["op"].to_numpy(), ["update_before", "delete"])] = -1
        found = found.drop_columns(["op"])
    hashed = np.zeros(found.num_rows, np.uint64)
    for column in found.columns:
        hashed = (hashed ^ column.to_numpy().astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        hashed ^= hashed >> np.uint64(29)
    return int(sign.sum()), int((hashed * sign.astype(np.uint64)).sum())


@click.command()
@click.option("--rows", default=400_000, show_default=True)
@click.option("--out-of-order", default=0.1, show_default=True)
@click.option("--rounds", default=5, show_default=True)
def main(rows: int, out_of_order: float, rounds: int) -> None:
    """Print the ratio for windows of each kind; for steps and latenesses of several sizes."""
    pa.set_cpu_count(1)
    warnings.simplefilter("ignore", SingleBucketWarning)
    suite, span_us = Suite("early_answers", rounds), rows * APART_US
    windows: dict[str, dict[str, Any]] = {
        "all": {},
        "sliding": {"window": span_us // 4, "slide": span_us // 40},
        "at an instant": {"window": span_us // 2, "at": span_us - 1},
        "up to the latest": {"window": span_us // 4},
        "rows of all groups": {"rows": rows // 20, "slide": f"{span_us // 40}us"},
        "last rows": {"rows": rows // 20},
        "rows of each group": {"rows": 50, "per_group": True, "slide": f"{span_us // 40}us"},
    }
    for groups, step, late_steps in ((1_000, 20_000, 2), (1_000, 5_000, 8), (20, 20_000, 2)):
        lateness_us = late_steps * step * APART_US
        table = readings(rows, groups, out_of_order, lateness_us)
        files = [table.slice(start, step) for start in range(0, rows, step)]
        for name, options in windows.items():
            final = Coalesce(time="t", group="g", values="v", lateness=lateness_us, **options)
            workload = f"{name}, {groups:,} groups, steps of {step:,}, late by {late_steps}"
            contenders = {emit: partial(run_as, replace(final, emit=emit), files) for emit in ("final", "early")}
            spent = suite.compare(workload, contenders, digest)
            emitted, building = spent_on_rows(replace(final, emit="early"), files)
            ratio, without = (each / spent["final"] for each in (spent["early"], spent["early"] - building))
            click.echo(f"{workload}: final {spent['final']:.3f} s, ratio {ratio:.2f}")
            click.echo(f"  {emitted:,} rows; without building them {without:.2f}")
    suite.save()


if __name__ == "__main__":
    main()
