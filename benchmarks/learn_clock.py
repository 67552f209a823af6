"""What `learn_clock` costs, beside counting the differences of all pairs and correlating the streams.

    python benchmarks/learn_clock.py [--rounds 5] [--large]

Two streams of Poisson events, of which 30 % of the left rows have a partner, 0.2 s off (one standard deviation), on a
clock that gains 1000 ppm; the search goes to +-1 h and 3000 ppm. The aims: 100,000 rows a side within a day in 3 s, 0.2
of them for the search at its coarsest cells of 4 s; a million within a week (`--large`) in 8 s and 2 GiB. "rows out" is
1 where the offset in the middle was found to within 2 s. The peers know no drift, and lose the line.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import click
import numpy as np
import pyarrow as pa
from clock_streams import DAY_US, START_US, Times, poisson
from measuring import SEPARATOR, Suite

import whenabouts as wa
from whenabouts.core.clocks.line_search import plan_levels, search_level
from whenabouts.core.clocks.pair_images import PAIRS_AT_ONCE, in_pieces

OFFSET_US, DRIFT, SHARE, JITTER_US = 1_234_000_000, 1e-3, 0.3, 200_000
HOUR_US, CELL_US = 3_600_000_000, 4_000_000


def streams(rows: int, days: int, drift: float = DRIFT, share: float = SHARE) -> tuple[Times, Times]:
    """Left and right times since the start."""
    rng = np.random.default_rng(0)
    span = days * DAY_US
    left = days * poisson(rng, rows)
    partners = left[rng.random(rows) < share]
    moved = partners + OFFSET_US + drift * (partners - span / 2) + rng.normal(0, JITTER_US, len(partners))
    return left, np.sort(np.concatenate([moved.astype(np.int64), rng.integers(0, span, rows - len(partners))]))


def whole(left: Times, right: Times, max_drift: str) -> Callable[[], float | None]:
    """The function that users call."""
    tables = pa.table({"t": START_US + left}), pa.table({"u": START_US + right})

    def run() -> float | None:
        clock = wa.learn_clock(*tables, left_time="t", right_time="u", max_drift=max_drift)
        return clock.offset_us if clock.found else None

    return run


def search(left: Times, right: Times) -> float:
    """The coarsest level alone: the image, its lines, and their chance."""
    return search_level([(left, right)], plan_levels(DAY_US, HOUR_US, 3e-3, 1, 1 << 26)[0]).offset_us


def all_pairs(left: Times, right: Times) -> float:
    """The most frequent difference of all pairs within an hour, in cells of 4 s."""
    first = np.searchsorted(right, left - HOUR_US)
    many = np.searchsorted(right, left + HOUR_US) - first
    counts = np.zeros(2 * HOUR_US // CELL_US + 1, np.int64)
    for some, partner in in_pieces(first, many, PAIRS_AT_ONCE):
        cell = (right[partner] - np.repeat(left[some], many[some]) + HOUR_US) // CELL_US
        counts += np.bincount(cell, minlength=len(counts))
    return float((np.argmax(counts) + 0.5) * CELL_US - HOUR_US)


def correlated(left: Times, right: Times) -> float:
    """The best lag of the two streams as counts in cells of 4 s."""
    cells = DAY_US // CELL_US
    events, partners = (np.bincount(np.clip(t // CELL_US, 0, cells - 1), minlength=cells) for t in (left, right))
    reach = HOUR_US // CELL_US
    counts = np.correlate(np.pad(partners.astype(float), reach), events.astype(float), "valid")
    return float((np.argmax(counts) - reach) * CELL_US)


def digest(offset: float | None) -> tuple[int, int]:
    """Whether the offset was found."""
    return int(offset is not None and abs(offset - OFFSET_US) < 2_000_000), 0


@click.command()
@click.option("--rounds", default=5, show_default=True)
@click.option("--large/--no-large", default=False, help="A million rows a side, too.")
def main(rounds: int, large: bool) -> None:
    """Measure, and store what was measured."""
    suite = Suite("learn_clock", rounds=rounds)
    left, right = streams(100_000, 1)
    peers = {
        "learn_clock": whole(left, right, "3000 ppm"),
        "its search, cells of 4 s": lambda: search(left, right),
        "all pairs in a histogram": lambda: all_pairs(left, right),
        "np.correlate": lambda: correlated(left, right),
    }
    suite.compare("100,000 x 100,000 in a day", peers, digest, incomparable=list(peers)[2:])
    if large:
        million(suite)
    suite.save()


def million(suite: Suite) -> None:
    """A week, by the bounds of before and by those of default, and without a common clock."""
    for name, drift, share, max_drift, found in (
        ("3000 ppm", DRIFT, SHARE, "3000 ppm", 1),
        ("200 ppm", 1e-4, SHARE, "200 ppm", 1),
        ("200 ppm, unrelated", 0.0, 0.0, "200 ppm", 0),
    ):
        run = whole(*streams(1_000_000, 7, drift, share), max_drift)
        tracemalloc.start()
        assert digest(run())[0] == found
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        workload = "1,000,000 x 1,000,000 in a week"
        suite.compare(workload, {name: run}, digest)
        suite.record(f"{workload}, memory{SEPARATOR}{name}", [peak], unit="byte")
        click.echo(f"  {peak / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
