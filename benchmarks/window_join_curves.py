"""The curves of the W-join paper (Hammad et al., SSDBM 2003, section 6), with plots.

    python benchmarks/window_join_curves.py [NAME ...]

CPU seconds of this process. Streams are Poisson, with 2,000 keys (nested loops: 200) and a window of 2 s; the
algorithms alternate on the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median

import click
import numpy as np
import pyarrow as pa
from curves import draw
from measuring import Suite
from simulation import SECOND, Tick, simulate
from window_join import FIRST, cpu, streams, uniform_clique

from whenabouts.core import Point
from whenabouts.core.local import run
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.runtime.protocol import NO_WATERMARK, Arrival
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.window_join.cost import alternatives
from whenabouts.core.window_join.query import WindowJoin

WIDTH = 2 * SECOND
KEYS = {"hash": 2_000, "nested": 200}
SHARE = 0.1
"""The share of a core that the operator may use when its throughput is measured; the output of a second must fit into
memory."""
REPEATABLE = 1.05
"""Ratios of two runs closer to 1 than this differ from run to run: they are no advantage."""

BOTH = ("backward", "forward")
PAPER = {"backward": "bew", "forward": "few"}
"""The paper's names of the strategies, under which results are recorded."""
Series = dict[str, list[tuple[float, float]]]


@dataclass
class Pace:
    """The cost of a stream's steps: CPU seconds by step, output rows, tuples tried, and mean wait of a row."""

    seconds: float = 0.0
    combinations: int = 0
    tuple_tests: int = 0
    waited: float = 0.0


def ticks(
    tables: Mapping[str, pa.Table], readers: tuple[EventReader, ...], tick: int, *, settle: bool
) -> Iterator[Tick]:
    """The arrivals of each tick; `settle`: followed by a step with the progress of every stream, which FEW needs."""
    times = [table.column("t").to_numpy() for table in tables.values()]
    passed = NO_WATERMARK
    for now in range(FIRST + tick, int(max(t[-1] for t in times)), tick):
        arrivals = []
        for place, (table, t) in enumerate(zip(tables.values(), times, strict=True)):
            first, last = np.searchsorted(t, [now - tick, now])
            if last > first:
                batch = table.slice(first, last - first).combine_chunks().to_batches()[0]
                arrivals.append(Arrival(place, readers[place].read(batch).block))
        watermark = min(int(t[max(np.searchsorted(t, now) - 1, 0)]) for t in times)
        yield Tick(now, arrivals, passed)
        if settle and watermark > passed:
            yield Tick(now, [], watermark)
        passed = max(passed, watermark)


def pace(query: WindowJoin, tables: Mapping[str, pa.Table], tick: int) -> Pace:
    """Run the operator at every tick on the rows since the last one; the output is counted and dropped.

    FEW's rows also wait until every stream has passed them.
    """
    operator = query.operator([table.schema for table in tables.values()], streaming=True)
    times = [table.column("t").to_numpy() for table in tables.values()]
    found, rows, reached = Pace(), 0, 0
    few = query.strategy == "forward"
    for done in simulate(operator, DictStore(), ticks(tables, operator.readers, tick, settle=few)):
        found.seconds += done.spent
        found.combinations += sum(batch.num_rows for batch in done.step.output)
        found.tuple_tests += done.step.metrics["tuple_tests"]
        until = done.tick.watermark_us if few else done.tick.now_us
        for t in times:  # the rows that are now done
            settled = t[np.searchsorted(t, reached) : np.searchsorted(t, max(until, reached))]
            found.waited, rows = found.waited + float((done.clock - settled / SECOND).sum()), rows + len(settled)
        reached = max(reached, until)
    found.waited /= max(rows, 1)
    return found


def sustained(k: int, method: str, rounds: int) -> tuple[dict[str, float], str]:
    """The rate of all streams together at which a second of event time takes `SHARE` of CPU, and the tuples tried."""
    keys, rate, seconds = KEYS[method], 160.0, 6
    points = {name: [(0.0, 0.0)] for name in BOTH}
    while any(of[-1][1] < SHARE for of in points.values()):
        tables = streams(k, int(rate * seconds), keys, rate / keys)
        paces: dict[str, list[Pace]] = {name: [] for name in BOTH}
        for _ in range(rounds):
            for name in BOTH:
                query = uniform_clique(tables, WIDTH, strategy=name, method=method)
                paces[name].append(pace(query, tables, SECOND))
        for name in BOTH:
            points[name].append((rate, min(found.seconds for found in paces[name]) / seconds))
        rate *= 1.5
    rows = k * rate / 1.5 * seconds
    tried = ", ".join(f"{PAPER[name].upper()} {paces[name][0].tuple_tests / rows:.1f}" for name in BOTH)
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
    """The prediction of `auto`'s cost function at this rate."""
    query = uniform_clique({f"s{place}": None for place in range(k)}, WIDTH, conservative="none", method=method)  # type: ignore[dict-item]
    per_key = rate / (KEYS[method] if method == "hash" else 1)
    costs = {c.strategy: c.cost for c in alternatives(query, query.graph(), [per_key] * k, streaming=True)}
    return f"the cost function says FEW/BEW {costs['backward'] / costs['forward']:.2f}"


def throughput(suite: Suite, method: str) -> None:
    """Figure 6: maximum throughput of 2- to 5-way uniform cliques."""
    found: Series = {PAPER[name].upper(): [] for name in BOTH}
    ratios = {}
    for k in (2, 3, 4, 5):
        rates, why = sustained(k, method, suite.rounds)
        for name in BOTH:
            found[PAPER[name].upper()].append((k, rates[name]))
            suite.record(
                f"{k}-way, {method}, rows/s at a tenth of a core / {PAPER[name]}", [round(rates[name])], unit="integer"
            )
        ratios[k] = rates["forward"] / rates["backward"]
        told = ", ".join(f"{PAPER[name].upper()} {rates[name]:,.0f}" for name in BOTH)
        click.echo(f"{method} {k}-way, rows/s: {told}, FEW/BEW {ratios[k]:.2f} ({why})")
    options = {"xscale": "linear", "xticks": [2, 3, 4, 5]}
    plot = draw(f"window_join_throughput-{method}", found, "streams", "rows per second, all streams", **options)
    told = ", ".join(f"{ratio:.2f} {k}-way" for k, ratio in ratios.items())
    suite.claim(
        f"W-join, maximum throughput ({'hash' if method == 'hash' else 'nested loops'})",
        "FEW sustains more than BEW from 2- to 5-way joins, and its advantage shrinks with the number of streams.",
        holds=min(ratios.values()) > REPEATABLE and ratios[5] < ratios[2],
        why=f"FEW over BEW: {told}. What FEW spares in the paper is comparing timestamps tuple by tuple. Here BEW does "
        "not compare them either: it finds a period by two searches in sorted rows, for each partial combination. FEW "
        "needs none, so that it gains where there are many partial combinations. Its cost: rows wait in state until "
        "the watermark has passed them, and are read again to be joined.",
        plots=[plot],
    )


def slow_stream(suite: Suite) -> None:
    """Section 3.2: two fast streams and a slow one, whose tuples most of the others have no period with."""
    fast, keys, width, seconds = 4_000, 200, SECOND // 2, 40
    found: Series = {PAPER[name].upper(): [] for name in BOTH}
    ratios, tried = [], []
    for share in (100, 1_000, 4_000, 20_000, 80_000):
        tables = streams(3, fast * seconds, keys, fast / keys)
        tables["s2"] = tables["s2"].take(pa.array(np.arange(0, fast * seconds, share)))
        best: dict[str, Pace] = {}
        for _ in range(suite.rounds):
            for name in BOTH:
                one = pace(uniform_clique(tables, width, strategy=name), tables, SECOND)
                best[name] = min(best.get(name, one), one, key=lambda each: each.seconds)
        rows = sum(table.num_rows for table in tables.values())
        for name in BOTH:
            found[PAPER[name].upper()].append((fast / share, 1e6 * best[name].seconds / rows))
            suite.record(f"slow stream of {fast / share:g} rows/s / {PAPER[name]}", [best[name].seconds], rows_in=rows)
        tried.append(tuple(best[name].tuple_tests / rows for name in BOTH))
        ratios.append(best["backward"].seconds / best["forward"].seconds)
        click.echo(
            f"slow stream of {fast / share:g} rows/s: BEW/FEW CPU {ratios[-1]:.2f}, tuples tried a row {tried[-1]}"
        )
    plot = draw("window_join_slow_stream", found, "rows per second of the slow stream", "CPU-us per row")
    told = ", ".join(f"{ratio:.2f} at {rate:g}" for ratio, (rate, _) in zip(ratios, found["FEW"], strict=True))
    suite.claim(
        "W-join, one slow stream",
        "Where a stream is slow, FEW spares the tuples that have no period with its tuples, which BEW iterates over.",
        holds=min(ratios) > 1 and all(few < bew for bew, few in tried),
        why=f"Two streams of {fast:,} rows/s, a window of {width / SECOND:g} s; BEW's CPU time over FEW's, by "
        f"rows/s of the third: {told}. At the slowest FEW tries {tried[-1][1]:.2f} tuples a row, BEW "
        f"{tried[-1][0]:.2f}. "
        "As long as every window holds a tuple of the slow stream, whatever its key, no tuple is older than a period, "
        "and reading the rows again from state costs FEW more than it saves.",
        plots=[plot],
    )


def response(suite: Suite) -> None:
    """Figure 7: time from a row's arrival to its last combination, 3-way hash, ticks of 100 ms."""
    found: Series = {PAPER[name].upper(): [] for name in BOTH}
    for rate in (10, 100, 1_000, 4_000, 16_000, 24_000, 32_000):
        tables = streams(3, rate * 6, KEYS["hash"], rate / KEYS["hash"])
        told: dict[str, list[float]] = {name: [] for name in BOTH}
        for _ in range(suite.rounds):
            for name in BOTH:
                told[name].append(
                    1000 * pace(uniform_clique(tables, WIDTH, strategy=name), tables, SECOND // 10).waited
                )
        for name in BOTH:
            found[PAPER[name].upper()].append((3 * rate, median(told[name])))
        medians = ", ".join(f"{PAPER[n].upper()} {median(v):,.1f}" for n, v in told.items())
        click.echo(f"{3 * rate:>7,} rows/s, ms: {medians}")
    plot = draw("window_join_response", found, "rows per second, all streams", "mean response, ms")
    crossed = [rate for (rate, bew), (_, few) in zip(found["BEW"], found["FEW"], strict=True) if few < bew]
    (_, bew), (_, few) = found["BEW"][0], found["FEW"][0]
    suite.claim(
        "W-join, response time against rate",
        "At low rates BEW answers first, since FEW waits for slow streams; near BEW's greatest rate the curves cross.",
        holds=bew < few and bool(crossed) and crossed[0] >= 10_000,
        why=f"At {found['BEW'][0][0]} rows/s BEW takes {bew:.0f} ms and FEW {few:.0f} ms (both wait half a tick, 50 "
        "ms); " + (f"they cross at {crossed[0]:,} rows/s." if crossed else "they do not cross up to 96,000 rows/s."),
        plots=[plot],
    )


def conservative(suite: Suite) -> None:
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
                times=dict.fromkeys(tables, Point("t")), windows=windows, on="k", strategy="backward", conservative=how
            )
            spent, outcome = cpu(partial(run, query, list(tables.values())), 3)
            tried = outcome.metrics["tuple_tests"] / 200_000
            told.append(f"{title} {tried:.2f} ({spent:.3f} CPU-s)")
            found[title].append((apart, tried))
            suite.record(f"path of 1 s, 1 s, {apart} s / {title}", [spent], rows_out=outcome.output.num_rows)
            expected = outcome.output.num_rows if expected is None else expected
            assert outcome.output.num_rows == expected
        click.echo(f"d = {apart} s, {expected:,} combinations, tuples tried a row: " + ", ".join(told))
    plot = draw("window_join_conservative", found, "widest window : narrowest", "tuples tried for each row")
    ratios = [gca / lca for (_, gca), (_, lca) in zip(found["GCA"], found["LCA"], strict=True)]
    spared = found["LCA"][-1][1] / found["modified BEW"][-1][1]
    suite.claim(
        "W-join, LCA against GCA",
        "Where windows differ widely, LCA tests fewer combinations than GCA.",
        holds=min(ratios) > 1,
        why=f"GCA tries {min(ratios):.1f} to {max(ratios):.1f} times what LCA tries. Modified BEW tries fewer than "
        f"both ({spared:.0f} times fewer than LCA at 32 s) and costs nothing more per tuple where bounds are "
        "searched for in sorted rows: `auto` takes it.",
        plots=[plot],
    )


CURVES: dict[str, Callable[[Suite], None]] = {
    "throughput-hash": partial(throughput, method="hash"),
    "throughput-nested": partial(throughput, method="nested"),
    "slow-stream": slow_stream,
    "response": response,
    "conservative": conservative,
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(CURVES)))
@click.option("--rounds", default=3, show_default=True)
def main(names: tuple[str, ...], rounds: int) -> None:
    """The curves, with their pictures."""
    warm = streams(3, 200, 20, 1.0)
    for strategy in BOTH:  # to load the kernels
        pace(uniform_clique(warm, WIDTH, strategy=strategy), warm, SECOND)
    suite = Suite("window_join_curves", rounds)
    for name in names or tuple(CURVES):
        CURVES[name](suite)
    suite.save()


if __name__ == "__main__":
    main()
