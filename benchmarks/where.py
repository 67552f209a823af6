"""What `where=` costs: against the join without it, and against a filter of the join's result.

    python benchmarks/where.py [--rows 300000] [--rounds 5]

Batch, local engine, points of 100 keys, some 30 candidate pairs a row; medians of the CPU-seconds of the process, the
contenders in turn. The filter reads the columns of the condition from the result: both answers are the same rows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import whenabouts as wa

SPAN_US, KEYS, PARTNERS = 3_600_000_000, 100, 30
SHARES = {"1 %": 1, "50 %": 50, "99 %": 99}
"""How many candidates meet the condition, and the least difference that they have in percent."""


def events(seed: int, rows: int) -> pa.Table:
    """Points in random order, `v` from 0 to 99."""
    draw = np.random.default_rng(seed)
    return pa.table(
        {
            "k": draw.integers(0, KEYS, rows),
            "t": 1_704_067_200_000_000 + draw.integers(0, SPAN_US, rows),
            "v": draw.integers(0, 100, rows),
            **{f"x{n}": draw.random(rows) for n in range(4)},
        }
    )


def contenders(left: pa.Table, right: pa.Table, share: int) -> dict[str, Callable[[], pa.Table]]:
    """The join alone, then three ways to the same rows."""
    d = SPAN_US * KEYS * PARTNERS // (2 * right.num_rows)
    times: dict[str, Any] = {"left_time": wa.Point("t"), "right_time": wa.Point("t"), "on": "k"}

    def join(**options: Any) -> pa.Table:
        return wa.timing_join(left, right, condition=wa.within(d, confidence=1), **times, **options)

    def filtered() -> pa.Table:
        pairs = join()
        return pairs.filter(pc.less(pairs["v_right"], share))

    def kept(_: pa.Table, right: pa.Table) -> Any:
        return pc.less(right["v"], share)

    return {
        "the join alone": join,
        "where, in SQL": lambda: join(where=f"left.v >= 0 AND right.v < {share}"),
        "where, a function": lambda: join(where=kept),
        "the join and a filter": filtered,
        "semi join, where in SQL": lambda: join(how="left_semi", where=f"left.v >= 0 AND right.v < {share}"),
    }


@click.command()
@click.option("--rows", default=300_000, show_default=True, help="Rows of a side.")
@click.option("--rounds", default=5, show_default=True)
def main(rows: int, rounds: int) -> None:
    """Print a line for each contender."""
    left, right = events(1, rows), events(2, rows)
    print(f"{'kept':>5} {'contender':<24} {'CPU-s':>7} {'rows':>12}")
    for name, share in SHARES.items():
        runs = contenders(left, right, share)
        counts = {each: run().num_rows for each, run in runs.items()}  # to warm up
        assert len({counts[each] for each in ("where, in SQL", "where, a function", "the join and a filter")}) == 1
        spent: dict[str, list[float]] = {each: [] for each in runs}
        for _ in range(rounds):
            for each, run in runs.items():
                start = time.process_time()
                run()
                spent[each].append(time.process_time() - start)
        for each, seconds in spent.items():
            print(f"{name:>5} {each:<24} {statistics.median(seconds):>7.3f} {counts[each]:>12,}")


if __name__ == "__main__":
    main()
