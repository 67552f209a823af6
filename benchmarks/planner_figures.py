"""Tables 5 and 6 and Figures 3 to 5 of Al-Kateb et al. 2010, from our cost model: decisions printed, costs plotted.

    python benchmarks/planner_figures.py [--costs default|calibrated]

`default` are fitted costs: chosen so that they reproduce all ten decisions of the tables, which shows only that such
costs exist. `calibrated` are those that `whenabouts calibrate` stored on this machine. Both runs print how many of the
ten decisions either costs give, if any are stored. With any constant costs cases 4 and 5 of Table 6 contradict each
other: lazy at (.5, .7) requires d(.5, .7) > 0 and eager at (.4, .6) requires d(.4, .6) < 0, where d is the extra cost
of eager, but d(.5, .7) <= 1.25 d(.4, .6). The script searches for costs that give both and finds none. Plots need
matplotlib.
"""

from __future__ import annotations

import warnings
from itertools import groupby, pairwise, product
from math import fsum
from typing import Any, NamedTuple

import click
import numpy as np
from measuring import RESULTS, Suite

from whenabouts.planner import AtomicCosts, Sizes, Statistics, Weights, scheme_costs, select
from whenabouts.planner.calibration import Calibration, stored_calibration

SIX = 6
TUPLES = 100_000
"""Tuples in a window. The paper's costs all grow with it in proportion; ours include a fixed price per step."""


class Case(NamedTuple):
    """A case of a table: cp and oop of each query, and the paper's decisions (E eager, L lazy)."""

    cp: tuple[float, ...]
    oop: tuple[float, ...]
    paper: str


TABLE_5 = [
    Case((0.1,) * 6, (0.0,) * 6, "LLLLLL"),
    Case((0.8,) * 6, (0.0,) * 6, "EEEEEE"),
    Case((0.5,) * 3 + (0.1,) * 3, (0.0,) * 6, "EEELLL"),
    Case((0.8,) * 3 + (0.1,) * 3, (0.0,) * 6, "EEELLL"),
]
TABLE_6 = [
    Case((0.2,) * 6, (0.3,) * 6, "LLLLLL"),
    Case((0.7,) * 6, (0.6,) * 6, "EEEEEE"),
    Case((0.5,) * 6, (0.3,) * 6, "EEEEEE"),
    Case((0.5,) * 6, (0.7,) * 6, "LLLLLL"),
    Case((0.4,) * 3 + (0.2,) * 3, (0.6,) * 3 + (0.7,) * 3, "EEELLL"),
    Case((0.4,) * 3 + (0.2,) * 3, (0.6, 0.8, 0.8, 0.7, 0.7, 0.7), "ELLLLL"),
]
TABLES = {5: (TABLE_5, Weights(1, 1, 2)), 6: (TABLE_6, Weights(0, 1, 1))}
FIGURE_3 = [Weights(1, 1, 1), Weights(1, 50, 1), Weights(1, 100, 1)]
FIGURE_4 = [Weights(0, 1, 1)]


class Decided(NamedTuple):
    """The program's decision, and its cost and that of the two simple plans."""

    letters: str
    optimal: float
    all_eager: float
    all_lazy: float


def decide(case: Case, weights: Weights, costs: AtomicCosts, sizes: Sizes) -> Decided:
    """A case, decided by the 0-1 program."""
    both = [scheme_costs(TUPLES, Statistics(cp, oop), costs, sizes) for cp, oop in zip(case.cp, case.oop, strict=True)]
    memory, update, _ = both[0].lazy.normalised
    eager = [each.eager.weighted(weights) for each in both]
    lazy = [weights.scan * each.lazy.normalised[2] for each in both]
    shared = weights.memory * memory + weights.update * update
    found = select(eager, lazy, shared)
    return Decided("".join("LE"[x] for x in found.eager), found.cost, fsum(eager), fsum([*lazy, shared]))


def surface(weights: Weights, costs: AtomicCosts, sizes: Sizes, steps: int = 21) -> tuple[Any, Any, Any]:
    """cp, oop, and the cost of eager and lazy for one query, on a grid (cp from .05: split costs oop / cp)."""
    cp, oop = np.meshgrid(np.linspace(0.05, 1, steps), np.linspace(0, 1, steps))
    cost = np.empty((2, *cp.shape))
    for at in np.ndindex(*cp.shape):
        both = scheme_costs(TUPLES, Statistics(float(cp[at]), float(oop[at])), costs, sizes)
        cost[0][at], cost[1][at] = both.eager.weighted(weights), both.lazy.weighted(weights)
    return cp, oop, cost


def constants_that_decide_both(tries: int, seed: int = 5) -> int:
    """How many of the given number of random constant costs give both case 4 and case 5 of Table 6."""
    random, found = np.random.default_rng(seed), 0
    for merge, split, detach, insert, delete, coalesce in random.random((tries, SIX)):
        costs = AtomicCosts(1.0, insert, delete, merge, split, detach, coalesce)
        cases = [TABLE_6[3], TABLE_6[4]]
        found += all(decide(case, Weights(0, 1, 1), costs, Sizes()).letters == case.paper for case in cases)
    return found


def costs_exist(*, falling: bool) -> bool:
    """Whether costs of the paper's form exist that give all ten decisions (a linear program).

    Merge is `m0 + m1 cp oop`, split `s0 + s1 oop / cp`, the others are numbers; sizes and the price of reading are the
    defaults, and `U_max` is 1. `falling`: and an eager update costs no more with a higher cp, at any oop.
    """
    import pulp

    names = ("insert", "delete", "detach", "m0", "m1", "s0", "s1")
    x = {name: pulp.LpVariable(name, 0) for name in names}
    program = pulp.LpProblem("costs", pulp.LpMinimize)
    program += x["m0"] + x["m1"] + x["detach"] == 1

    def update(cp: float, oop: float) -> Any:
        split = oop * (1 - cp) * (x["s0"] + x["s1"] * (oop / cp))
        return (1 - cp) * (x["insert"] + x["delete"]) + cp * (x["m0"] + x["m1"] * (cp * oop) + x["detach"]) + split

    for cases, weights in TABLES.values():
        for case in cases:
            both = [
                scheme_costs(1, Statistics(cp, oop), AtomicCosts(), Sizes())
                for cp, oop in zip(case.cp, case.oop, strict=True)
            ]
            eager = [
                weights.memory * each.eager.normalised[0] + weights.scan * each.eager.normalised[2]
                + weights.update * update(cp, oop)
                for each, cp, oop in zip(both, case.cp, case.oop, strict=True)
            ]  # fmt: skip
            lazy = [weights.scan * each.lazy.normalised[2] for each in both]
            shared = weights.memory + weights.update * (x["insert"] + x["delete"])
            cost = {}
            for letters in map("".join, product("EL", repeat=SIX)):
                own = [e if letter == "E" else one for letter, e, one in zip(letters, eager, lazy, strict=True)]
                cost[letters] = pulp.lpSum([*own, shared] if "L" in letters else own)
            for letters, other in cost.items():
                if letters != case.paper:
                    program += cost[case.paper] <= other
    if falling:
        for oop in np.linspace(0, 1, 11):
            for low, high in pairwise(np.linspace(0.05, 1, 20)):
                program += update(float(high), float(oop)) <= update(float(low), float(oop))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PuLP 3 includes CBC and warns that PuLP 4 will not
        program.solve(pulp.PULP_CBC_CMD(msg=False))
    return bool(program.status == pulp.LpStatusOptimal)


def score(costs: AtomicCosts, sizes: Sizes) -> int:
    """How many of the decisions of the tables these costs give."""
    return sum(
        decide(case, weights, costs, sizes).letters == case.paper
        for cases, weights in TABLES.values()
        for case in cases
    )


def both_scores(found: Calibration) -> str:
    """The scores of the fitted costs and of calibrated ones."""
    every = sum(len(cases) for cases, _ in TABLES.values())
    fitted, own = score(AtomicCosts(), Sizes()), score(found.costs, found.sizes)
    return (
        f"The fitted costs, chosen for this, give {fitted} of the {every} decisions of Tables 5 and 6. The costs that "
        f"were calibrated on this machine ({found.machine}) give {own} of {every}."
    )


def trends(costs: AtomicCosts, sizes: Sizes) -> list[tuple[str, bool, str]]:
    """The observations of sections 7.2 to 7.4, whether they hold with these costs, and the deciding figures."""
    cps, oops = np.linspace(0.05, 1, 20), np.linspace(0, 1, 11)
    update = np.array([[_eager_update(cp, oop, costs, sizes) for cp in cps] for oop in oops])
    wins = [float(np.mean(cost[0] < cost[1])) for cost in (surface(w, costs, sizes)[2] for w in FIGURE_3)]
    eager = surface(Weights(1, 50, 1), costs, sizes)[2][0]
    worst, best = np.unravel_index(eager.argmax(), eager.shape), np.unravel_index(eager.argmin(), eager.shape)
    nearly = surface(FIGURE_4[0], costs, sizes)[2]
    apart = float(np.max(np.abs(nearly[0] - nearly[1]) / nearly[1]))
    whole = surface(Weights(1, 1, 1), costs, sizes)[2][0]
    in_order, out_of_order = np.diff(whole[0]), np.diff(whole[-1])
    by_weight = {w: decide(TABLE_5[2], Weights(*w), costs, sizes).letters.count("L") for w in WEIGHTS_VARIED}
    more = [by_weight[w] - by_weight[1, 1, 1] for w in WEIGHTS_VARIED[1:]]
    mixed = decide(TABLE_5[3], Weights(1, 1, 1), costs, sizes).letters
    every = [decide(case, weights, costs, sizes) for cases, weights in TABLES.values() for case in cases]
    corner = [f"cp {0.05 + 0.95 * at[1] / 20:.2f}, oop {at[0] / 20:.2f}" for at in (worst, best)]
    return [
        ("equal weights: eager is cheaper everywhere", wins[0] == 1, f"on {wins[0]:.0%} of the square"),
        ("the heavier updates weigh, the less often is eager cheaper", wins == sorted(wins, reverse=True),
         ", ".join(f"{part:.0%}" for part in wins)),
        ("an eager update costs more with oop, at any cp", bool((np.diff(update, axis=0) >= -1e-12).all()),
         f"{update[0].mean():.3g} to {update[-1].mean():.3g} on average"),
        ("an eager update costs less with cp, at any oop", bool((np.diff(update, axis=1) <= 1e-12).all()),
         f"at oop 0 {update[0, 0]:.3g} to {update[0, -1]:.3g}, at oop 1 {update[-1, 0]:.3g} to {update[-1, -1]:.3g}"),
        ("eager is dearest at cp 0, oop 1 and cheapest at cp 1, oop 0",
         bool(worst == (20, 0) and best == (0, 20)), f"dearest at {corner[0]}, cheapest at {corner[1]}"),
        ("without a memory weight both cost about the same", apart < 0.25, f"apart by up to {apart:.0%}"),
        ("in order, eager costs more with cp", bool((in_order >= 0).all()), f"{whole[0, 0]:.3g} to {whole[0, -1]:.3g}"),
        ("out of order, eager costs less with cp", bool((out_of_order <= 0).all()),
         f"at oop 1 {whole[-1, 0]:.3g} to {whole[-1, -1]:.3g}"),
        ("the optimum costs no more than all eager and all lazy",
         all(found.optimal <= min(found.all_eager, found.all_lazy) for found in every), f"in {len(every)} cases"),
        ("equal weights: eager for high cp, lazy for the rest", mixed == "EEELLL", f"at cp .8 x3, .1 x3: {mixed}"),
        ("more queries are lazy the more update and memory weigh, and fewer the more scans do",
         more[0] >= 0 and more[1] >= 0 and more[2] <= 0,
         ", ".join(f"{w}: {n} lazy" for w, n in by_weight.items())),
    ]  # fmt: skip


WEIGHTS_VARIED = [(1, 1, 1), (1, 4, 1), (4, 1, 1), (1, 1, 4)]
"""Update, memory, and scan made heavier, one after the other."""


def _eager_update(cp: float, oop: float, costs: AtomicCosts, sizes: Sizes) -> float:
    return scheme_costs(TUPLES, Statistics(float(cp), float(oop)), costs, sizes).eager.normalised[1]


@click.command()
@click.option("--costs", "which", type=click.Choice(["default", "calibrated"]), default="default", show_default=True)
def main(which: str) -> None:
    """Judge every decision and trend of the paper, plot, and record both."""
    costs, sizes = AtomicCosts(), Sizes()
    stored = stored_calibration()
    if which == "calibrated":
        if stored is None:
            raise click.UsageError("there are no calibrated costs: run whenabouts calibrate")
        costs, sizes = stored.costs, stored.sizes
        click.echo(f"costs calibrated on {stored.machine}")
    suite = Suite("planner_figures")
    bars = {
        table: [decide(case, weights, costs, sizes) for case in cases] for table, (cases, weights) in TABLES.items()
    }
    plots = plot(costs, sizes, bars, which)
    if which == "calibrated":
        calibrated(suite, bars, trends(costs, sizes), plots)
    else:
        judge(suite, bars, trends(costs, sizes), plots)
    if stored is None:
        click.echo("left out, for no costs are calibrated here (whenabouts calibrate): the decisions they would give")
    else:
        suite.finding("Decisions of Tables 5 and 6 with fitted and with calibrated costs", both_scores(stored))
    suite.save()


def judge(suite: Suite, bars: dict[int, list[Decided]], seen: list[tuple[str, bool, str]], plots: list[str]) -> None:
    """Every decision and trend of the paper as a claim."""
    for table, (cases, _) in TABLES.items():
        for number, (case, found) in enumerate(zip(cases, bars[table], strict=True), start=1):
            suite.claim(
                f"Al-Kateb 2010, Table {table}, case {number}",
                f"cp {_told(case.cp)}, oop {_told(case.oop)}: {case.paper}.",
                holds=found.letters == case.paper,
                why=f"With fitted costs, chosen for this: decided {found.letters} at {found.optimal:.3f}; all eager "
                f"{found.all_eager:.3f}, all lazy {found.all_lazy:.3f}.",
            )
    for claim, holds, figures in seen:
        of = [plot for words, plot in zip(FIGURE_OF, plots, strict=True) if any(word in claim for word in words)]
        suite.claim(
            f"Al-Kateb 2010, sections 7.2 to 7.4: {claim}",
            f"{claim.capitalize()}.",
            holds=holds,
            why=f"{figures}.",
            plots=of[:1],
        )
    tries = 2000
    both = constants_that_decide_both(tries)
    some, falling = (costs_exist(falling=falling) for falling in (False, True))
    suite.finding(
        "What no costs can give",
        f"Of {tries:,} random constant costs {both or 'none'} decide both case 4 and case 5 of Table 6 as the paper "
        f"does. A linear program over all costs of the paper's forms finds {'some' if some else 'none'} that give "
        f"all ten decisions, and {'some' if falling else 'none'} with which an eager update also costs less with "
        "cp, as section 7.2 says.",
    )


def calibrated(
    suite: Suite, bars: dict[int, list[Decided]], seen: list[tuple[str, bool, str]], plots: list[str]
) -> None:
    """The decisions with this machine's costs in the paper's cases."""
    decided = "; ".join(f"Table {table}: {', '.join(each.letters for each in bars[table])}" for table in TABLES)
    held = ", ".join(claim for claim, holds, _ in seen if holds)
    suite.finding(
        "What calibrated costs decide in the cases of Tables 5 and 6",
        f"{decided}, for windows of {TUPLES:,} tuples, steps of 1,000, and one grouping for each query. Of the paper's "
        f"trends hold: {held}. Every eager query pays the fixed cost of a step, and lazy ones pay it once; lazy scans "
        "grow with the window.",
        plots=plots,
    )


FIGURE_OF = (("cheaper", "dearest"), ("about the same",), ("optimum", "lazy"))
"""Words in the claims that Figures 3, 4 and 5 show."""


def _told(values: tuple[float, ...]) -> str:
    """Consecutive equal values, each once with its number.

    >>> _told((0.5, 0.5, 0.1))
    '.5 x2, .1'
    """
    runs = [(value, len(list(each))) for value, each in groupby(values)]
    return ", ".join(f"{value:g}".replace("0.", ".") + (f" x{n}" if n > 1 else "") for value, n in runs)


def plot(costs: AtomicCosts, sizes: Sizes, bars: dict[int, list[Decided]], which: str) -> list[str]:
    """The figures as files, Figures 3, 4 and 5."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = which
    import matplotlib.pyplot as plt

    suffix, found = "" if which == "default" else "_calibrated", []
    for name, every in (("figure3", FIGURE_3), ("figure4", FIGURE_4)):
        figure = plt.figure(figsize=(5 * len(every), 4.5))
        for number, weights in enumerate(every, start=1):
            axes: Any = figure.add_subplot(1, len(every), number, projection="3d")
            cp, oop, cost = surface(weights, costs, sizes, 13)
            axes.plot_surface(cp, oop, cost[0], alpha=0.7, label="eager", rasterized=True)
            axes.plot_surface(cp, oop, cost[1], alpha=0.5, label="lazy", rasterized=True)
            axes.set(xlabel="cp", ylabel="oop", zlabel="cost", title=f"memory, update, scan = {weights.values}")
            axes.legend()
        found.append(_saved(figure, f"planner_{name}{suffix}.svg"))
    figure, both = plt.subplots(1, 2, figsize=(12, 4.5))
    for axes, (table, decided) in zip(both, bars.items(), strict=True):
        at = np.arange(len(decided))
        for place, name in enumerate(("all_lazy", "all_eager", "optimal")):
            axes.bar(at + 0.25 * (place - 1), [getattr(each, name) for each in decided], 0.25, label=name)
        axes.set_xticks(at, [f"case {n + 1}\n{each.letters}" for n, each in enumerate(decided)])
        axes.set(ylabel="cost", title=f"Table {table}")
        axes.legend()
    return [*found, _saved(figure, f"planner_figure5{suffix}.svg")]


def _saved(figure: Any, name: str) -> str:
    import matplotlib.pyplot as plt

    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / name, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    return name


if __name__ == "__main__":
    main()
