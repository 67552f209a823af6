"""Six queries over the Intel Lab stream, eager or lazy as planned: is the mix as cheap as predicted?

    WHENABOUTS_COSTS=costs.json whenabouts calibrate
    WHENABOUTS_COSTS=costs.json WHENABOUTS_DATA=/path/to/data python benchmarks/planner_mix.py [--case NAME]

The four cases of Table 5 of Al-Kateb et al. 2010: six queries on (temperature, humidity), quantised so that tuples
coalesce with the requested probability, each with a quantum and, as in the paper, a grouping of its own (the mote,
under six names). In further cases they differ like real queries: in the lengths of their windows, in whether they share
a grouping, and in their results (aggregates are the longest period of each mote, which an eager
query keeps from slide to slide). The queries run together (`SharedCoalescing`), all eager, all lazy,
and as the planner decides from the costs calibrated on this machine (calibrated now if necessary). Memory is the size
of the store after an evaluation; update and scan are CPU time; each is divided by its maximum (of the calibrated costs,
the same for
all plans) and weighted.
All plans must give the same rows.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measuring import Suite

from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.costs.eager_lazy_cost import maxima
from whenabouts.core.errors import SingleBucketWarning
from whenabouts.core.local import run_stream
from whenabouts.core.shared_coalescing.query import SharedCoalescing
from whenabouts.core.temporal_queries.aggregate_query import TemporalAggregate
from whenabouts.planner import Plan, Registry, Sizes, Statistics, Weights
from whenabouts.planner.calibration import Calibration, calibrate, sizes_of, stored_calibration
from whenabouts.planner.scheme_measurements import SchemeMeasurement, measure, median


class Case(NamedTuple):
    """For each query: how often tuples coalesce, its window in hours, its grouping, and whether it returns runs (R) or
    aggregates (A); and the weights."""

    cp: tuple[float, ...]
    hours: tuple[int, ...] = (48,) * 6
    groupings: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    kinds: str = "RRRRRR"
    weights: Weights = Weights(1, 1, 2)


HALVES = (0.8,) * 3 + (0.1,) * 3
LONG_AND_SHORT = (48,) * 3 + (4,) * 3
CASES = {
    "Table 5, case 1": Case((0.1,) * 6),
    "Table 5, case 2": Case((0.8,) * 6),
    "Table 5, case 3": Case((0.5,) * 3 + (0.1,) * 3),
    "Table 5, case 4": Case(HALVES),
    "long and short windows": Case(HALVES, LONG_AND_SHORT),
    "short windows have a grouping in common": Case(HALVES, (48,) * 3 + (12,) * 3, (0, 1, 2, 3, 3, 3)),
    "long aggregates, short runs": Case((0.5,) * 6, (48,) * 3 + (8,) * 3, kinds="AAARRR"),
    "memory weighs double": Case(HALVES, (48,) * 3 + (12,) * 3, weights=Weights(2, 1, 2)),
}
WITHIN = 1.05
"""The greatest ratio of a plan's measured cost to that of the better simple plan."""


def readings(rows: int) -> pa.Table:
    """The readings in order of arrival, times in microseconds."""
    folder = os.environ.get("WHENABOUTS_DATA")
    if folder is None:
        raise click.UsageError("WHENABOUTS_DATA names the folder of the data")
    table = pq.read_table(Path(folder) / "intel_lab_20040304_20040308.parquet").slice(0, rows)
    return table.set_column(0, "recv_ts", table["recv_ts"].cast(pa.int64()))


def with_values(table: pa.Table, cps: tuple[float, ...]) -> tuple[pa.Table, list[float]]:
    """The readings with value columns of the requested probabilities, found by bisection, and the actual probabilities.

    Temperature and humidity are quantised in multiples of their resolution; each query has its mote column.
    """
    steps = {"temperature": 0.0098, "humidity": 0.0335}
    plain = [table[name].to_numpy().astype(float) / step for name, step in steps.items()]
    mote = table["mote"].to_numpy()
    order = np.argsort(mote, kind="stable")
    same = mote[order][1:] == mote[order][:-1]

    def quantised(scale: float, phase: float) -> list[np.ndarray]:
        return [np.floor(values / scale + phase).astype(np.int64) for values in plain]

    def coalescing(values: list[np.ndarray]) -> float:
        """The probability that a reading coalesces with the previous one of its mote."""
        equal = np.logical_and.reduce([value[order][1:] == value[order][:-1] for value in values])
        return float(equal[same].mean())

    reached, columns = [], {"recv_ts": table["recv_ts"]}
    for number, cp in enumerate(cps):
        low, high = 0.5, 4000.0
        for _ in range(20):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if coalescing(quantised(middle, number / 6)) < cp else (low, middle)
        values = quantised(high, number / 6)
        reached.append(coalescing(values))
        for name, value in zip("th", values, strict=True):
            columns[f"{name}{number}"] = pa.chunked_array([value])
        columns[f"m{number}"] = table["mote"]
    return pa.table(columns).combine_chunks(), reached


def queries(case: Case, slide_h: int) -> dict[str, Coalesce]:
    """The six queries."""
    found: dict[str, Coalesce] = {}
    for n, (hours, grouping, kind) in enumerate(zip(case.hours, case.groupings, case.kinds, strict=True)):
        given = {
            "time": "recv_ts", "group": f"m{grouping}", "values": [f"t{n}", f"h{n}"], "window": f"{hours} h",
            "slide": f"{slide_h} h",
        }  # fmt: skip
        longest = {f"longest{n}": "max"}
        found[f"Q{n + 1}"] = TemporalAggregate(**given, aggregates=longest) if kind == "A" else Coalesce(**given)
    return found


def planned(asked: dict[str, Coalesce], found: Calibration, sizes: Sizes, case: Case, known: list[Statistics]) -> Plan:
    """The planner's decision."""
    registry = Registry(weights=case.weights, costs=found.costs, sizes=sizes)
    for (name, query), statistics in zip(asked.items(), known, strict=True):
        registry.register(name, query, statistics, stream="readings")
    return registry.plan()


def weighted(
    got: SchemeMeasurement, found: Calibration, sizes: Sizes, weights: Weights, known: list[Statistics]
) -> tuple[float, float, float]:
    """Memory, update and scan, each relative to its maximum and weighted."""
    most = np.mean([maxima(got.tuples, each, found.costs, sizes) for each in known], axis=0)
    parts = (got.memory, got.update, got.scan)
    memory, update, scanned = (w * part / whole for w, part, whole in zip(weights.values, parts, most, strict=True))
    return memory, update, scanned


@click.command()
@click.option("--rows", default=500_000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--case", "cases", type=click.Choice(list(CASES)), multiple=True, help="Default: all.")
@click.option("--slide", "slide_h", default=4, show_default=True, help="Hours; as much is taken in at a time.")
def main(rows: int, rounds: int, cases: tuple[str, ...], slide_h: int) -> None:
    """Measure the cases and record them; plans alternate, so that they run under the same conditions."""
    pa.set_cpu_count(1)
    warnings.simplefilter("ignore", SingleBucketWarning)  # here there is one
    found = stored_calibration() or calibrate(repeat=2)
    click.echo(f"{found.machine}, release {found.release}; {rows:,} readings, median of {rounds}")
    plain, suite = readings(rows), Suite("planner_mix", rounds)
    for name in cases or CASES:
        measure_case(suite, name, plain, found, slide_h)
    suite.save()


def measure_case(suite: Suite, name: str, plain: pa.Table, found: Calibration, slide_h: int) -> None:
    """One row of the table."""
    case = CASES[name]
    table, cps = with_values(plain, case.cp)
    sizes = sizes_of(found, table.schema, ["m0", "t0", "h0"])
    seconds = (table["recv_ts"][-1].as_py() - table["recv_ts"][0].as_py()) / 1e6
    rate = len(table) / seconds
    # Rows come in one step per slide; one more step makes them final.
    step_rows = rate * slide_h * 3600 / 2
    known = [Statistics(cp, 0.0, rate, source="measured", step_rows=step_rows) for cp in cps]
    asked = queries(case, slide_h)
    plan = planned(asked, found, sizes, case, known)
    plans = {kind: dict.fromkeys(asked, kind.removeprefix("all ")) for kind in ("all eager", "all lazy")}
    plans["planned"] = dict(plan.schemes)
    check_same(asked, table, plans)
    how = {"slide_us": int(slide_h * 3.6e9), "warm_slides": max(case.hours) // slide_h + 1, "steps_per_slide": 1}
    distinct = {tuple(schemes.items()) for schemes in plans.values()}  # equal plans are run once
    runs = [{each: measure(asked, dict(each), table, **how) for each in distinct} for _ in range(suite.rounds)]
    modelled = {"planned": plan.cost} | {kind.replace("_", " "): cost for kind, cost in plan.alternatives.items()}
    sums, told = {}, []
    for kind, schemes in plans.items():
        each = [run[tuple(schemes.items())] for run in runs]
        parts = weighted(median(each), found, sizes, case.weights, known)
        sums[kind] = sum(parts)
        letters = "".join(scheme[0].upper() for scheme in schemes.values())
        told.append(
            f"{kind} {letters} {sum(parts):.2f} ({', '.join(f'{part:.2f}' for part in parts)}; modelled "
            f"{modelled[kind]:.2f})"
        )
        suite.record(f"{name}: update of a tuple / {kind}", [run.update / 1e6 for run in each], schemes=letters)
        suite.record(f"{name}: looks of a slide / {kind}", [run.scan / 1e6 for run in each], schemes=letters)
        suite.record(f"{name}: state / {kind}", [run.memory for run in each], unit="byte", schemes=letters)
    best = min(sums["all eager"], sums["all lazy"])
    suite.claim(
        f"Planned mix, {name}: cp {case.cp[0]:g} and {case.cp[-1]:g}, weights {case.weights.values}",
        "Measured, the planned mix costs no more than the better of all eager and all lazy, within 5 %.",
        holds=bool(sums["planned"] <= WITHIN * best),
        why=f"{sums['planned'] / best:.2f} times the better one. Memory, update and scan, weighted: {'; '.join(told)}.",
    )


def check_same(asked: dict[str, Coalesce], table: pa.Table, plans: dict[str, dict[str, str]]) -> None:
    """All plans give the same rows."""
    files = [table.slice(start, 10_000) for start in range(0, min(len(table), 40_000), 10_000)]
    found = []
    for schemes in plans.values():
        rows = run_stream(SharedCoalescing(queries=asked, schemes=schemes), [files]).output
        found.append(rows.sort_by([(name, "ascending") for name in rows.column_names]))
    assert all(rows.equals(found[0]) for rows in found)


if __name__ == "__main__":
    main()
