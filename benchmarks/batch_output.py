"""`batches=True`: memory while the pairs grow, and what it costs beside one table.

    python benchmarks/batch_output.py [--rounds 3] [--large]

100,000 rows a side, 10 keys, intervals of up to 50 us; the window grows, and with it the pairs: 10, 100, 1,000 and
(`--large`) 10,000 a row, the last of which no memory holds. Each run is a process of its own that counts its pairs. The
aim is 10^9 pairs in 1 GiB.
"""

from __future__ import annotations

import json
import subprocess
import sys

import click
from first_call import of_children
from measuring import SEPARATOR, Suite

ROWS, KEYS = 100_000, 10

RUN = """
import json, resource, sys
import numpy as np
import pyarrow as pa
import whenabouts as wa

form, rows, keys, pairs = sys.argv[1], *map(int, sys.argv[2:])
draw, span = np.random.default_rng(0), 10_000_000_000
def table(name):
    t = draw.integers(0, span, rows)
    return pa.table({"t0": t, "t1": t + draw.integers(0, 50, rows), "k": draw.integers(0, keys, rows),
                     name: np.arange(rows)})
time = wa.Interval("t0", "t1", max_uncertainty=50)
distance = span * keys * pairs // (2 * rows)
result = wa.timing_join(table("a"), table("b"), left_time=time, right_time=time, on="k", probability=False,
                        condition=wa.within(distance, confidence=0.5), batches=form == "batches")
found = sum(batch.num_rows for batch in result) if form == "batches" else result.num_rows
print(json.dumps([found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))
"""


@click.command()
@click.option("--rounds", default=3, show_default=True)
@click.option("--large/--no-large", default=False, help="10^9 pairs, too.")
def main(rounds: int, large: bool) -> None:
    """Measure, and store what was measured."""
    suite = Suite("batch_output", rounds=rounds, clock=of_children)
    for pairs in (10, 100, 1_000, *([10_000] if large else [])):
        workload, peaks = f"{pairs:,} pairs a row", dict[str, list[int]]()

        def run(form: str, pairs: int = pairs, peaks: dict[str, list[int]] = peaks) -> int:
            done = subprocess.run(
                [sys.executable, "-c", RUN, form, str(ROWS), str(KEYS), str(pairs)],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            found, peak = json.loads(done.stdout)
            peaks.setdefault(form, []).append(peak)
            return int(found)

        forms = ["batches"] if pairs == 10_000 else ["batches", "one table"]
        suite.compare(workload, {form: lambda form=form, run=run: run(form) for form in forms}, lambda n: (n, 0))
        for form in forms:
            suite.record(f"{workload}, memory{SEPARATOR}{form}", peaks[form], unit="byte")
            click.echo(f"  {form}: at most {max(peaks[form]) / 2**20:,.0f} MiB")
    suite.save()


if __name__ == "__main__":
    main()
