"""How tightly satisfaction times delimit the rows to probe (PTJoin, Figure 3 and Example 5).

    python benchmarks/ptjoin_figure.py [--templates 500] [--seed 1]

d = 1500 ms, confidence 0.8, an event detected at 5000 ms; each side has 500 random histograms. A row of the other
stream is probed if the templates alone do not decide: by Theorem 3 (satisfaction times), and by Equations 4 to 6
(lengths only). The probabilities are those of the join itself. A run fails if a row that is sure by Theorem 3 does not
match.
"""

from __future__ import annotations

import click
import numpy as np
import pyarrow as pa
from curves import draw
from measuring import Suite

from whenabouts.conformance.satisfaction_time import satisfaction_time
from whenabouts.core import Histogram, Template, within
from whenabouts.core.local import timing_join

MS = 1_000
D, CONFIDENCE, DETECTED, LONGEST = 1500 * MS, 0.8, 5000 * MS, 800 * MS


def random_template(random: np.random.Generator) -> Template:
    """Three to eight buckets of any width and mass, 100 to 800 ms long."""
    buckets = int(random.integers(3, 9))
    edges = np.sort(random.choice(np.arange(1, LONGEST // MS), buckets - 1, replace=False))
    edges = np.concatenate([[0], edges, [max(int(edges[-1]) + 1, int(random.integers(100, LONGEST // MS)))]]) * MS
    mass = random.integers(1, 100, buckets)
    parts = [(int(lo), int(hi), f"{m}/{mass.sum()}") for lo, hi, m in zip(edges[:-1], edges[1:], mass, strict=True)]
    return Template(tuple(parts))


def ranges(one: Template, others: list[Template]) -> dict[str, tuple[int, int, int, int]]:
    """The ranges in which rows are probed on the left and on the right, by their greatest possible times."""
    times = {c: [satisfaction_time(one, DETECTED, each, c) for each in others] for c in (1 - CONFIDENCE, CONFIDENCE)}
    left, right = times[1 - CONFIDENCE], times[CONFIDENCE]
    first, longest = DETECTED - one.length_us, max(each.length_us for each in others)
    return {
        "Theorem 3": (int(min(left)) - D, int(max(left)) - D, int(min(right)) + D, int(max(right)) + D),
        "Equations 4 to 6": (first - D, DETECTED - D + longest, first + D, DETECTED + D + longest),
    }


def probabilities(one: Template, others: list[Template], random: np.random.Generator) -> tuple[pa.Array, pa.Array]:
    """The times and probabilities of rows at every millisecond around the event, each with a random template."""
    t_max = np.arange(DETECTED - 2 * D, DETECTED + 2 * D, MS)
    named = {str(n): each for n, each in enumerate(others)}
    left = pa.table({"t": [DETECTED], "template": ["0"]})
    right = pa.table({"t_max": t_max, "template": [str(n) for n in random.integers(0, len(others), len(t_max))]})
    pairs = timing_join(
        left, right,
        left_time=Histogram("t", template="template", templates={"0": one}),
        right_time=Histogram("t_max", template="template", templates=named),
        condition=within(D, confidence=1e-9),
    )  # fmt: skip
    return pairs["t_max"].to_numpy(), pairs["probability"].to_numpy()


@click.command()
@click.option("--templates", default=500, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(templates: int, seed: int) -> None:
    """Widths of the probing ranges, and a plot."""
    random = np.random.default_rng(seed)
    one, *others = (random_template(random) for _ in range(templates + 1))
    found = ranges(one, others)
    at, probability = probabilities(one, others, random)
    tight = found["Theorem 3"]
    sure = (at > tight[1]) & (at <= tight[2])
    if (probability[sure] < CONFIDENCE).any():
        raise click.ClickException("a row that needs no probing does not match")
    outside = (at < tight[0]) | (at > tight[3])
    if (probability[outside] >= CONFIDENCE).any():
        raise click.ClickException("a row that is not probed matches")
    width = {name: (b - a + d - c) / MS for name, (a, b, c, d) in found.items()}
    order = np.argsort(at, kind="stable")
    series = {"rows of the other stream": list(zip(at[order] / MS, probability[order], strict=True))[::5]}
    for height, (name, points) in zip((1.05, 1.1), found.items(), strict=True):
        for side, (first, last) in zip(("left", "right"), (points[:2], points[2:]), strict=True):
            series[f"{name}, {side}"] = [(first / MS, height), (last / MS, height)]
    plot = draw("ptjoin_figure3", series, "t_max of a row, ms", "probability", xscale="linear", yscale="linear")
    suite = Suite("ptjoin_figure", 1)
    suite.claim(
        "PTJoin Figure 3",
        "Satisfaction times delimit what must be probed far more tightly than lengths alone.",
        holds=width["Theorem 3"] < width["Equations 4 to 6"] / 2,
        why=f"With {templates} random templates a side {width['Theorem 3']:,.0f} ms are probed instead of "
        f"{width['Equations 4 to 6']:,.0f} ms; all rows between are sure, and no row outside matches.",
        plots=[plot],
    )
    suite.save()


if __name__ == "__main__":
    main()
