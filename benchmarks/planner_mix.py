"""Six queries over the Intel Lab stream, eager or lazy as planned: is the mix as cheap as it is said to be, measured?

    WHENABOUTS_COSTS=costs.json whenabouts calibrate
    WHENABOUTS_COSTS=costs.json WHENABOUTS_DATA=/path/to/data python benchmarks/planner_mix.py [--case 3]

The four cases of Table 5 of Al-Kateb et al. 2010: six queries on (temperature, humidity) by mote, quantised so that
tuples coalesce with the probability asked for, each with a quantum of its own. The queries run together
(`SharedCoalescing`), all eager, all lazy, and as the planner decides from the costs that were calibrated here. Memory
is what the store holds after a look, update and scan are CPU time; each is divided by its maximum (of the calibrated
costs, the same for all plans) and weighted (1, 1, 2). All plans must give the same rows.
"""

from __future__ import annotations

import os
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from whenabouts.core.coalescing import Coalesce
from whenabouts.core.local import run_stream
from whenabouts.core.shared_coalescing import SharedCoalescing
from whenabouts.planner import CoalescingQuery, Registry, Sizes, Statistics
from whenabouts.planner.calibration import Calibration, sizes_of, stored_calibration
from whenabouts.planner.scheme_measurements import Measured, measure, median

CASES = {1: (0.1,) * 6, 2: (0.8,) * 6, 3: (0.5,) * 3 + (0.1,) * 3, 4: (0.8,) * 3 + (0.1,) * 3}
WINDOW_H, SLIDE_H = 6, 1
WEIGHTS = (1.0, 1.0, 2.0)


def readings(rows: int) -> pa.Table:
    """The readings in order of arrival, times in microseconds."""
    folder = os.environ.get("WHENABOUTS_DATA")
    if folder is None:
        raise click.UsageError("WHENABOUTS_DATA names the folder of the data")
    table = pq.read_table(Path(folder) / "intel_lab_20040304_20040308.parquet").slice(0, rows)
    return table.set_column(0, "recv_ts", table["recv_ts"].cast(pa.int64()))


def with_values(table: pa.Table, cps: tuple[float, ...]) -> tuple[pa.Table, list[float]]:
    """The readings with value columns of the wished probabilities, found by bisection, and what was reached.

    Temperature and humidity are taken in steps of so many times their resolution.
    """
    steps = {"temperature": 0.0098, "humidity": 0.0335}
    plain = [table[name].to_numpy().astype(float) / step for name, step in steps.items()]
    mote = table["mote"].to_numpy()
    order = np.argsort(mote, kind="stable")
    same = mote[order][1:] == mote[order][:-1]

    def quantised(scale: float, phase: float) -> list[np.ndarray]:
        return [np.floor(values / scale + phase).astype(np.int64) for values in plain]

    def coalescing(values: list[np.ndarray]) -> float:
        """The probability that a reading goes on the previous one of its mote."""
        equal = np.logical_and.reduce([value[order][1:] == value[order][:-1] for value in values])
        return float(equal[same].mean())

    reached = []
    for number, cp in enumerate(cps):
        low, high = 0.5, 4000.0
        for _ in range(20):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if coalescing(quantised(middle, number / 6)) < cp else (low, middle)
        values = quantised(high, number / 6)
        reached.append(coalescing(values))
        for name, value in zip("th", values, strict=True):
            table = table.append_column(f"{name}{number}", pa.array(value))
    return table, reached


def queries() -> dict[str, Coalesce]:
    """The six queries."""
    given = {"time": "recv_ts", "group": "mote", "window": f"{WINDOW_H} h", "slide": f"{SLIDE_H} h"}
    return {f"Q{n + 1}": Coalesce(**given, values=[f"t{n}", f"h{n}"]) for n in range(6)}


def planned(found: Calibration, sizes: Sizes, cps: list[float], tuples: float) -> dict[str, str]:
    """What the planner decides."""
    registry = Registry(weights=WEIGHTS, costs=found.costs, sizes=sizes)
    for number, cp in enumerate(cps):
        query = CoalescingQuery((f"t{number}", f"h{number}"), ("mote",), rows=int(tuples))
        registry.register(f"Q{number + 1}", query, Statistics(cp, 0.0, source="measured"))
    return dict(registry.plan().choices)


def weighted(got: Measured, found: Calibration, sizes: Sizes, cps: list[float]) -> tuple[float, float, float]:
    """Memory, update and scan, each a part of its maximum and weighted."""
    every = found.costs.at(1.0, 1.0)
    at = [found.costs.at(cp, 0.0) for cp in cps]
    scan = got.tuples * float(np.mean([each["read"] + each["coalesce"] for each in at]))
    maxima = got.tuples * sizes.lazy_row, every["merge"] + every["detach"], scan
    parts = (got.memory, got.update, got.scan)
    memory, update, scanned = (w * part / most for w, part, most in zip(WEIGHTS, parts, maxima, strict=True))
    return memory, update, scanned


@click.command()
@click.option("--rows", default=120_000, show_default=True)
@click.option("--repeat", default=3, show_default=True)
@click.option("--case", "cases", type=click.IntRange(1, 4), multiple=True, help="Of Table 5; default: all.")
def main(rows: int, repeat: int, cases: tuple[int, ...]) -> None:
    """Print a table of measured costs; plans take turns, so that they meet the same machine."""
    pa.set_cpu_count(1)
    found = stored_calibration()
    if found is None:
        raise click.UsageError("there are no calibrated costs: run whenabouts calibrate")
    click.echo(f"{found.machine}, release {found.release}; {rows:,} readings, median of {repeat}\n")
    plain = readings(rows)
    click.echo("| case | cp | plan | Q1..Q6 | memory | update | scan | sum | of the better |")
    click.echo("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for case in cases or CASES:
        wished = CASES[case]
        table, cps = with_values(plain, wished)
        sizes = sizes_of(found, table.schema, ["mote", "t0", "h0"])
        tuples = rows * WINDOW_H * 3.6e9 / (table["recv_ts"][-1].as_py() - table["recv_ts"][0].as_py())
        plans = {name: dict.fromkeys(queries(), name.removeprefix("all ")) for name in ("all eager", "all lazy")}
        plans["planned"] = planned(found, sizes, cps, tuples)
        check_same(table, plans)
        how = {"slide_us": int(SLIDE_H * 3.6e9), "warm_slides": WINDOW_H + 1}
        distinct = {tuple(schemes.items()) for schemes in plans.values()}  # the same plan is the same run
        runs = [{each: measure(queries(), dict(each), table, **how) for each in distinct} for _ in range(repeat)]
        sums = {}
        for name, schemes in plans.items():
            parts = weighted(median([run[tuple(schemes.items())] for run in runs]), found, sizes, cps)
            sums[name] = sum(parts)
            best = min(sums[each] for each in sums if each != "planned")
            letters = "".join(scheme[0].upper() for scheme in schemes.values())
            cells = " | ".join(f"{part:.3f}" for part in (*parts, sum(parts)))
            shown = f"{sums[name] / best:.2f}" if name == "planned" else ""
            click.echo(
                f"| {case} | {'/'.join(f'{cp:.2f}' for cp in cps[::3])} | {name} | {letters} | {cells} | {shown} |"
            )


def check_same(table: pa.Table, plans: dict[str, dict[str, str]]) -> None:
    """All plans give the same rows."""
    files = [table.slice(start, 10_000) for start in range(0, min(len(table), 40_000), 10_000)]
    found = []
    for schemes in plans.values():
        rows = run_stream(SharedCoalescing(queries=queries(), schemes=schemes), [files]).output
        found.append(rows.sort_by([(name, "ascending") for name in rows.column_names]))
    assert all(rows.equals(found[0]) for rows in found)


if __name__ == "__main__":
    main()
