"""Nanoseconds of the operations of window joins: the defaults of `window_join.cost.WindowJoinPrices`.

Uniform cliques on streams, hash. The CPU time of the kernels is divided by what they count; the waiting of forward
evaluation is what it reads from state beyond backward evaluation. The least of several runs. The last two columns are
the CPU time of forward evaluation over that of backward evaluation, with all that both do alike, and the ratio of the
costs by which `auto` chooses, without it:

    python benchmarks/window_join_prices.py
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from whenabouts.core import Point
from whenabouts.core.local import Outcome, run_stream
from whenabouts.core.window_join import expansion, forward_evaluation
from whenabouts.core.window_join.cost import alternatives
from whenabouts.core.window_join.operator import WindowJoinOperator
from whenabouts.core.window_join.query import WindowJoin

KEYS, ROWS, WINDOW_S, STEPS, ROUNDS = 200, 20_000, 10, 10, 5


def measured() -> None:
    """Print a line for each clique."""
    spent: Counter[str] = Counter()
    for name in ("fill_periods", "fill_level", "fill_positions", "fill_products"):
        _timed(expansion, name, spent)
    _timed(forward_evaluation.ForwardSweep, "run", spent)
    _timed(WindowJoinOperator, "_load", spent)
    _timed(WindowJoinOperator, "step", spent)
    print("streams rows/window  period  candidate  combination (BEW, FEW)  period test  waiting  CPU  model")
    for streams, held in itertools.product((3, 4, 5), (0.5, 1, 2, 4)):
        files = _files(streams, held)
        (bew, of_bew), (few, of_few) = (_least(streams, how, files, spent) for how in ("backward", "forward"))
        found, rows = bew["matched"], streams * ROWS
        print(
            f"{streams:7} {held:11} {of_bew['fill_periods'] / bew['periods']:7.1f}"
            f" {of_bew['fill_level'] / (bew['tuple_tests'] - found):10.1f}"
            f" {of_bew['fill_positions'] / found:12.1f} {of_few['fill_products'] / found:10.1f}"
            f" {of_few['run'] / few['period_tests']:12.1f} {(of_few['_load'] - of_bew['_load']) / rows:8.1f}"
            f" {of_few['step'] / of_bew['step']:4.2f} {_modelled(streams, held):6.2f}"
        )


def _timed(owner: Any, name: str, spent: Counter[str]) -> None:
    call: Callable[..., Any] = getattr(owner, name)

    def timed(*given: Any, **options: Any) -> Any:
        begun = time.thread_time_ns()
        found = call(*given, **options)
        spent[name] += time.thread_time_ns() - begun
        return found

    setattr(owner, name, timed)


def _files(streams: int, held: float) -> list[list[pa.Table]]:
    draw = np.random.default_rng(1)
    span_us = int(ROWS / KEYS / held * WINDOW_S * 1e6)
    bounds = np.linspace(0, span_us, STEPS + 1).astype(np.int64)
    found = []
    for _ in range(streams):
        t = np.sort(draw.integers(0, span_us, ROWS))
        table = pa.table({"k": draw.integers(0, KEYS, ROWS), "t": t})
        cuts = np.searchsorted(t, bounds)
        found.append([table.slice(first, last - first) for first, last in itertools.pairwise(cuts.tolist())])
    return found


def _query(streams: int, strategy: str) -> WindowJoin:
    names = "abcde"[:streams]
    return WindowJoin(
        times=dict.fromkeys(names, Point("t")), on="k", strategy=strategy, conservative="none", lateness="1 s",
        windows=dict.fromkeys(itertools.combinations(names, 2), f"{WINDOW_S} s"),
    )  # fmt: skip


def _modelled(streams: int, held: float) -> float:
    query = _query(streams, "auto")
    costs = alternatives(query, query.graph(), [held / WINDOW_S] * streams, streaming=True)
    by_strategy = {each.strategy: each.cost for each in costs}
    return by_strategy["forward"] / by_strategy["backward"]


def _least(
    streams: int, strategy: str, files: list[list[pa.Table]], spent: Counter[str]
) -> tuple[dict[str, int], Counter[str]]:
    query = _query(streams, strategy)
    least: Counter[str] = Counter()
    outcome: Outcome = run_stream(query, files)
    for _ in range(ROUNDS):
        spent.clear()
        outcome = run_stream(query, files)
        least = Counter({name: min(ns, least[name] or ns) for name, ns in spent.items()})
    return dict(outcome.metrics), least


if __name__ == "__main__":
    measured()
