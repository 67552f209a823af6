"""The first call of a new process: with nothing compiled, with all kernels in the cache, and importing alone.

    python benchmarks/first_call.py [--rounds 5]

Each run is a process of its own, with a cache of kernels of its own: empty, or filled by a run before. The aims with an
empty cache: two rows a side in 1.5 s, a million rows in 6 s more than with a filled one.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from measuring import Suite

CALL = """
import sys
import numpy as np
import pyarrow as pa
import whenabouts as wa

rows, draw = int(sys.argv[1]), np.random.default_rng(0)
left, right = (pa.table({"t": draw.integers(0, 500_000 * rows, rows), "k": draw.integers(0, 50, rows)}) for _ in "ab")
second = wa.from_granularity("t", "1 s")
pairs = wa.timing_join(left, right, left_time=second, right_time=second, on="k",
                       condition=wa.within("2 s", confidence=0.5))
print(pairs.num_rows)
"""
IMPORTS = "import numpy, numba, pyarrow, whenabouts; print(0)"


def call(program: str, rows: int, cache: Path) -> int:
    """Run a program in a new process; what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program, str(rows)], env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(done.stdout)


def of_children() -> float:
    """CPU-seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def digest(pairs: int) -> tuple[int, int]:
    """The number of pairs."""
    return pairs, 0


@click.command()
@click.option("--rounds", default=5, show_default=True)
def main(rounds: int) -> None:
    """Measure, and store what was measured."""
    suite = Suite("first_call", rounds=rounds, clock=of_children)
    with TemporaryDirectory() as kept:
        filled = Path(kept)

        def cold(rows: int) -> Callable[[], int]:
            def run() -> int:
                with TemporaryDirectory() as empty:
                    return call(CALL, rows, Path(empty))

            return run

        for rows, name in ((2, "two rows a side"), (1_000, "1,000 rows a side"), (1_000_000, "1,000,000 rows a side")):
            contenders = {
                "empty cache": cold(rows),
                "filled cache": lambda rows=rows: call(CALL, rows, filled),
                "imports alone": lambda rows=rows: call(IMPORTS, rows, filled),
            }
            call(CALL, 1_000_000, filled)
            suite.compare(name, contenders, digest, incomparable=["imports alone"])
    suite.save()


if __name__ == "__main__":
    main()
