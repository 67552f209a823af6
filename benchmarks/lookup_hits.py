"""How often the look-up table of `lazy_lookup` saves a kernel call, by block size (ITC Figure 7).

    python benchmarks/lookup_hits.py [--seconds 60]

500 tuples a second a side, times known to 20 to 200 ms, rows in the order of their detection (which lags up to 250 ms
behind `t_max`, so they are only roughly sorted), d = 500 ms, confidence 0.8 and 0.5. The hit ratio is ITC's: rows in
the probing ranges that needed no computation over all rows in them. A run fails unless `lazy_lookup` and `lazy` give
the same number of pairs.
"""

from __future__ import annotations

import click
import numpy as np
import pyarrow as pa
from curves import draw
from measuring import Suite

from whenabouts.core import Interval, Lateness, within
from whenabouts.core import metrics as names
from whenabouts.core.local import run_stream
from whenabouts.core.timing_join.query import TimingJoin

RATE, LAG_US = 500, 250_000


def stream(seed: int, seconds: int) -> list[pa.Table]:
    """Files of a tenth of a second each, in the order of detection."""
    random = np.random.default_rng(seed)
    t_max = np.sort(random.integers(0, seconds * 1_000_000, RATE * seconds))
    t_min = t_max - random.integers(20_000, 200_000, len(t_max), endpoint=True)
    order = np.argsort(t_max + random.integers(0, LAG_US, len(t_max)), kind="stable")
    table = pa.table({"t_min": t_min[order], "t_max": t_max[order]})
    return [table.slice(start, RATE // 10) for start in range(0, table.num_rows, RATE // 10)]


@click.command()
@click.option("--seconds", default=60, show_default=True)
def main(seconds: int) -> None:
    """Print a table of hit ratios and probe counts."""
    suite, ratios = Suite("lookup_hits"), {}
    files = [stream(1, seconds), stream(2, seconds)]
    click.echo("confidence  block size  lazy probed  lazy_lookup probed     hits  hit ratio")
    for confidence in (0.8, 0.5):
        for block in (100, 200, 400, 800, 1200, 2400):
            counts = {}
            for strategy in ("lazy", "lazy_lookup"):
                query = TimingJoin(
                    left_time=Interval("t_min", "t_max", max_uncertainty="200ms"),
                    right_time=Interval("t_min", "t_max", max_uncertainty="200ms"),
                    condition=within("500ms", confidence=confidence),
                    strategy=strategy,
                    block_size=block,
                    lateness=Lateness(left=LAG_US, right=LAG_US),
                    probability=False,
                )
                counts[strategy] = run_stream(query, files).metrics
            lazy, lookup = counts["lazy"], counts["lazy_lookup"]
            if lazy[names.MATCHED] != lookup[names.MATCHED]:
                raise click.ClickException("the strategies disagree")
            hits, probed = lookup[names.LOOKUP_HITS], lookup[names.PROBED]
            ratio = hits / (hits + probed)
            ratios.setdefault(f"confidence {confidence}", []).append((block, ratio))
            suite.record(f"confidence {confidence}, blocks of {block} / hits", [hits], unit="integer", probed=probed)
            told = f"{confidence:10}  {block:10}  {lazy[names.PROBED]:11,}  {probed:18,}  {hits:7,}"
            click.echo(f"{told}  {ratio:9.3f}")
    rising = all(points[0][1] < points[-1][1] for points in ratios.values())
    least, most = (of(points[-1][1] for points in ratios.values()) for of in (min, max))
    suite.claim(
        "ITC Figure 7", "The larger the block, the more probes the look-up table answers.", holds=rising,
        why=f"Of the rows in probing ranges it answers {least:.0%} to {most:.0%} with blocks of 2,400.",
        plots=[draw("lookup_hits", ratios, "block size", "hit ratio", yscale="linear")],
    )  # fmt: skip
    suite.save()


if __name__ == "__main__":
    main()
