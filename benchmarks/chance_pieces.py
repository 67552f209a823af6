"""What the chance functions of a join aggregate cost per left row, in CPU time.

    python benchmarks/chance_pieces.py

Left rows are uncertain by 20 s. Their partners are uncertain by 20 s, too, and the window of 10 s holds none of them
for certain. Beside the chances, the time that merely computing the partners' own probabilities takes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import click
import numpy as np
from measuring import SEPARATOR, Suite

from whenabouts.core.join_aggregate.chance_pieces import ANY, COUNT_VARIANCE, NONE, Partners, chances, rows_of
from whenabouts.core.probability.satisfaction_probability import probabilities_at

LENGTH_US, WINDOW_US = 20_000_000, 10_000_000


FUNCTIONS = "P of each partner", "P(none)", "P(any)", "Var N", "P(N >= 3)"


def seconds(work: Callable[[], object], rows: int, rounds: int) -> list[float]:
    """The CPU times per left row."""
    work()
    taken = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        taken.append((time.process_time() - start) / rows)
    return taken


@click.command(help=__doc__)
@click.option("--rounds", default=5, show_default=True)
def main(rounds: int) -> None:
    suite = Suite("chance_pieces", rounds)
    click.echo(f"{'partners':>8} {' '.join(f'{name:>17}' for name in FUNCTIONS)}   us a row")
    for partners in (1, 3, 5, 10, 22, 71, 191, 658):
        rows = max(20_000 // partners, 20)
        random = np.random.default_rng(partners)
        end = np.arange(rows) * 100 * LENGTH_US
        left = rows_of(end - LENGTH_US, end)
        right_end = (end[:, None] + random.integers(-LENGTH_US // 2, LENGTH_US // 2, (rows, partners))).reshape(-1)
        right = rows_of(right_end - LENGTH_US, right_end)
        at = np.repeat(np.arange(rows, dtype=np.int32), partners), np.arange(rows * partners, dtype=np.int32)
        window = -WINDOW_US // 2, WINDOW_US // 2
        p = probabilities_at(left.t_min, left.t_max, right.t_min, right.t_max, *at, *window)
        ring = Partners(np.arange(rows + 1) * partners, at[1], p)

        def each(left=left, right=right, at=at, window=window) -> object:
            return probabilities_at(left.t_min, left.t_max, right.t_min, right.t_max, *at, *window)

        def asked(functions: int, *at_least: int, given=(left, right, *window, ring)) -> Callable[[], object]:
            return lambda: chances(*given, functions, at_least=at_least)

        works = each, asked(NONE), asked(ANY), asked(COUNT_VARIANCE), asked(0, 3)
        costs = [seconds(work, rows, rounds) for work in works]
        click.echo(f"{partners:8d} {' '.join(f'{statistics.median(cost) * 1e6:17.2f}' for cost in costs)}")
        for name, cost in zip(FUNCTIONS, costs, strict=True):
            suite.record(f"a left row with {partners} uncertain partners{SEPARATOR}{name}", cost)
    suite.save()


if __name__ == "__main__":
    main()
