"""The curves of the W-join paper (Hammad et al., SSDBM 2003, section 6), with plots.

    python benchmarks/window_join_curves.py [NAME ...] [--plots FOLDER]

CPU seconds of this process. Streams are Poisson, with 2,000 keys (nested loops: 200) and a window of 2 s; algorithms
take turns on the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import click
import numpy as np
import pyarrow as pa
from window_join import SECOND, cpu, streams, uniform_clique

from whenabouts.core import Point
from whenabouts.core.local import run
from whenabouts.core.protocol import NO_WATERMARK, Arrival
from whenabouts.core.stores import DictStore
from whenabouts.core.window_cost import alternatives
from whenabouts.core.window_join import WindowJoin

WIDTH, ROUNDS = 2 * SECOND, 3
KEYS = {"hash": 2_000, "nested": 200}
SHARE = 0.1
"""Of a core: what the operator may use where its throughput is measured; what comes out in a second must fit memory."""

BOTH = ("bew", "few")
Series = dict[str, list[tuple[float, float]]]


@dataclass
class Pace:
    """What a stream's steps took: CPU seconds by step, rows that came out, tuples tried, and mean wait of a row."""

    seconds: float = 0.0
    combinations: int = 0
    tuple_tests: int = 0
    waited: float = 0.0


def pace(query: WindowJoin, tables: Mapping[str, pa.Table], tick: int) -> Pace:
    """Run the operator at every tick on what has arrived since the last one; what comes out is counted and dropped.

    CPU time passes on the same clock, and work that is not done by the next tick delays it. FEW's rows also wait until
    every stream has come past them.
    """
    operator, store = query.operator([table.schema for table in tables.values()], streaming=True), DictStore()
    times = [table.column("t").to_numpy() for table in tables.values()]
    found, clock, rows, passed = Pace(), 0.0, 0, NO_WATERMARK
    for now in range(tick, int(max(t[-1] for t in times)), tick):
        arrivals = []
        for place, (table, t) in enumerate(zip(tables.values(), times, strict=True)):
            first, last = np.searchsorted(t, [now - tick, now])
            if last > first:
                batch = table.slice(first, last - first).combine_chunks().to_batches()[0]
                arrivals.append(Arrival(place, operator.readers[place].read(batch).block))
        watermark = min(int(t[max(np.searchsorted(t, now) - 1, 0)]) for t in times)
        begun = time.process_time()
        steps = [operator.step(store, arrivals, passed)]
        if query.strategy == "few" and watermark > passed:
            steps.append(operator.step(store, [], watermark))
        spent = time.process_time() - begun
        clock = max(clock, now / SECOND) + spent
        found.seconds += spent
        found.combinations += sum(batch.num_rows for step in steps for batch in step.output)
        found.tuple_tests += sum(step.metrics["tuple_tests"] for step in steps)
        low, high = (now - tick, now) if query.strategy == "bew" else (max(passed, 0), watermark)
        for t in times:  # the rows that are done with now
            done = t[np.searchsorted(t, low) : np.searchsorted(t, high)]
            found.waited, rows = found.waited + float((clock - done / SECOND).sum()), rows + len(done)
        passed = max(passed, watermark)
    found.waited /= max(rows, 1)
    return found


def sustained(k: int, method: str) -> tuple[dict[str, float], str]:
    """The rate of all streams together at which a second of event time takes `SHARE` of CPU, and the tuples tried."""
    keys, rate, seconds = KEYS[method], 160.0, 6
    points = {name: [(0.0, 0.0)] for name in BOTH}
    while any(of[-1][1] < SHARE for of in points.values()):
        tables = streams(k, int(rate * seconds), keys, rate / keys)
        paces: dict[str, list[Pace]] = {name: [] for name in BOTH}
        for _ in range(ROUNDS):
            for name in BOTH:
                query = uniform_clique(tables, WIDTH, strategy=name, method=method)
                paces[name].append(pace(query, tables, SECOND))
        for name in BOTH:
            points[name].append((rate, min(found.seconds for found in paces[name]) / seconds))
        rate *= 1.5
    tried = ", ".join(f"{name.upper()} {paces[name][0].tuple_tests / (k * rate / 1.5 * seconds):.1f}" for name in BOTH)
    return {
        name: k * _crossing(of) for name, of in points.items()
    }, f"tuples tried a row {tried}; {_model(k, rate, method)}"


def _crossing(points: list[tuple[float, float]]) -> float:
    """Where the load crosses `SHARE`, on logarithmic axes."""
    over = next(place for place, (_, load) in enumerate(points) if load >= SHARE)
    (low, below), (high, above) = points[over - 1], points[over]
    share = np.log(SHARE / below) / np.log(above / below)
    return float(np.exp(np.log(low) + share * np.log(high / low)))


def _model(k: int, rate: float, method: str) -> str:
    """What the cost function of `auto` expects at this rate."""
    query = uniform_clique({f"s{place}": None for place in range(k)}, WIDTH, conservative="none", method=method)  # type: ignore[dict-item]
    per_key = rate / (KEYS[method] if method == "hash" else 1)
    costs = {c.strategy: c.cost for c in alternatives(query, query.graph(), [per_key] * k, streaming=True)}
    return f"the cost function says FEW/BEW {costs['bew'] / costs['few']:.2f}"


def throughput(method: str) -> Series:
    """Figure 6: maximum throughput of 2- to 5-way uniform cliques."""
    found: Series = {name.upper(): [] for name in BOTH}
    for k in (2, 3, 4, 5):
        rates, why = sustained(k, method)
        for name in BOTH:
            found[name.upper()].append((k, rates[name]))
        ratio = rates["few"] / rates["bew"]
        told = ", ".join(f"{name.upper()} {rates[name]:,.0f}" for name in BOTH)
        click.echo(f"{method} {k}-way, rows/s: {told}, FEW/BEW {ratio:.2f} ({why})")
    return found


def response() -> Series:
    """Figure 7: time from a row's arrival to its last combination, 3-way hash, ticks of 100 ms."""
    found: Series = {name.upper(): [] for name in BOTH}
    for rate in (10, 100, 1_000, 4_000, 16_000, 24_000, 32_000):
        tables = streams(3, rate * 6, KEYS["hash"], rate / KEYS["hash"])
        told: dict[str, list[float]] = {name: [] for name in BOTH}
        for _ in range(ROUNDS):
            for name in BOTH:
                told[name].append(
                    1000 * pace(uniform_clique(tables, WIDTH, strategy=name), tables, SECOND // 10).waited
                )
        for name in BOTH:
            found[name.upper()].append((3 * rate, median(told[name])))
        click.echo(f"{3 * rate:>7,} rows/s, ms: " + ", ".join(f"{n.upper()} {median(v):,.1f}" for n, v in told.items()))
    return found


def conservative() -> Series:
    """Section 5: tuples tried for each row on a path of 1 s, 1 s and d; 4 x 50,000 rows, 100 keys, BEW."""
    tables = dict(zip("abc", streams(3, 50_000, 100, 0.1).values(), strict=True))
    tables["d"] = streams(1, 50_000, 100, 0.1, seed=9)["s0"]
    titles = {"none": "modified BEW", "lca": "LCA", "gca": "GCA"}
    found: Series = {title: [] for title in titles.values()}
    for apart in (1, 2, 4, 8, 16, 32):
        windows = {("a", "b"): SECOND, ("b", "c"): SECOND, ("c", "d"): apart * SECOND}
        told, expected = [], None
        for how, title in titles.items():
            query = WindowJoin(
                times=dict.fromkeys(tables, Point("t")), windows=windows, on="k", strategy="bew", conservative=how
            )
            spent, outcome = cpu(partial(run, query, list(tables.values())), 3)
            tried = outcome.metrics["tuple_tests"] / 200_000
            told.append(f"{title} {tried:.2f} ({spent:.3f} CPU-s)")
            found[title].append((apart, tried))
            expected = outcome.output.num_rows if expected is None else expected
            assert outcome.output.num_rows == expected
        click.echo(f"d = {apart} s, {expected:,} combinations, tuples tried a row: " + ", ".join(told))
    return found


CURVES: dict[str, tuple[Callable[[], Series], str, str]] = {
    "throughput-hash": (partial(throughput, "hash"), "streams", "rows per second, all streams"),
    "throughput-nested": (partial(throughput, "nested"), "streams", "rows per second, all streams"),
    "response": (response, "rows per second, all streams", "mean response, ms"),
    "conservative": (conservative, "widest window : narrowest", "tuples tried for each row"),
}


def plot(name: str, series: Series, folder: Path) -> None:
    """One picture, as SVG."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    mpl.rcParams["svg.fonttype"] = "none"
    mpl.rcParams["svg.hashsalt"] = name
    _, x_label, y_label = CURVES[name]
    figure, axes = plt.subplots(figsize=(5, 3.4), layout="constrained")
    for marker, (label, points) in zip("os^", series.items(), strict=False):
        axes.plot(*zip(*points, strict=True), marker=marker, label=label)
    axes.set(xlabel=x_label, ylabel=y_label, yscale="log", xscale="linear" if x_label == "streams" else "log")
    if x_label == "streams":
        axes.set_xticks([2, 3, 4, 5])
    axes.legend()
    figure.savefig(folder / f"window_join_{name}.svg", metadata={"Date": None})
    plt.close(figure)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(CURVES)))
@click.option("--plots", type=click.Path(file_okay=False, path_type=Path), help="Write the pictures into this folder.")
def main(names: tuple[str, ...], plots: Path | None) -> None:
    """Print the curves, and draw them if asked to."""
    warm = streams(3, 200, 20, 1.0)
    for strategy in BOTH:  # to load the kernels
        pace(uniform_clique(warm, WIDTH, strategy=strategy), warm, SECOND)
    for name in names or tuple(CURVES):
        series = CURVES[name][0]()
        if plots is not None:
            plot(name, series, plots)


if __name__ == "__main__":
    main()
