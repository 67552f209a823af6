"""`whenabouts join` on random files gives exactly the pairs of the oracle, which loops over rationals."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from pyarrow import csv

from whenabouts.conformance import oracle
from whenabouts.core.times.limits import UNBOUNDED_US
from whenabouts.core.timing_join.settings import STRATEGIES

Cli = Callable[..., Result]
Row = dict[str, Any]


def join(
    left: list[Row], right: list[Row], lo: int | None, hi: int | None, confidence: float
) -> dict[tuple[int, int], Fraction]:
    """Probability by (left id, right id) of all pairs of equal, present keys that reach the confidence."""
    window = (-UNBOUNDED_US if lo is None else lo, UNBOUNDED_US if hi is None else hi)
    found = {}
    for x in left:
        for y in right:
            if x["k"] is None or x["k"] != y["k"]:
                continue
            p = oracle.probability((x["a"], x["b"]), (y["c"], y["d"]), *window)
            if oracle.is_match(p, confidence):
                found[x["l"], y["r"]] = p.exact
    return found


@lru_cache
def answer(seed: int, lo: int | None, hi: int | None, confidence: float) -> dict[tuple[int, int], Fraction]:
    """Of the two sides that the seed draws."""
    return join(*sides(seed), lo, hi, confidence)


@lru_cache
def sides(seed: int) -> tuple[list[Row], list[Row]]:
    random_ = random.Random(seed)
    return rows(random_, 70, ("l", "a", "b")), rows(random_, 60, ("r", "c", "d"))


def rows(random_: random.Random, n: int, names: tuple[str, str, str]) -> list[Row]:
    """Random events of three keys and no key: points, intervals up to 60 us, equal times, in random order."""
    made = []
    for number in range(n):
        start, length = random_.randrange(400), random_.choice([0, 1, 7, 60, random_.randrange(60)])
        made.append(
            {names[0]: number, names[1]: start, names[2]: start + length, "k": random_.choice(["x", "y", "z", None])}
        )
    return made


def write(rows: list[Row], folder: Path, kind: str, files: int) -> str:
    """The rows in files of a folder; returns the folder's name."""
    folder.mkdir()
    for number in range(files):
        part, file = rows[number::files], folder / f"part-{number}.{kind}"
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(part), file)
        elif kind == "csv":
            csv.write_csv(pa.Table.from_pylist(part), file)
        else:
            file.write_text("".join(json.dumps(row) + "\n" for row in part))
    return folder.name


def pairs(file: Path) -> list[tuple[int, int]]:
    table = pq.read_table(file)
    return sorted(zip(table["l"].to_pylist(), table["r"].to_pylist(), strict=True))


CONFIDENCES = (0.0613, 0.437, 0.8713)
"""No exact tie of a probability with one of them: ties are the core's own tests."""

CONDITIONS = [
    pytest.param("--within 40us", -40, 40, id="within"),
    pytest.param("--within 3us", -3, 3, id="within narrower than the intervals"),
    pytest.param("--deadline 50us --since 10us", 10, 50, id="deadline since"),
    pytest.param("--delay -20us --until 5us", -20, 5, id="delay until"),
    pytest.param("--between -30us,-10us", -30, -10, id="between, both negative"),
]
ONE_SIDED = [
    pytest.param("--deadline 50us", None, 50, id="deadline"),
    pytest.param("--delay 100us", 100, None, id="delay"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("condition", "lo", "hi"), CONDITIONS + ONE_SIDED)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_batch_gives_the_pairs_of_brute_force(
    cli: Cli, tmp_path: Path, strategy: str, condition: str, lo: int | None, hi: int | None
) -> None:
    check(cli, tmp_path, f"{condition} --strategy {strategy}", lo, hi, kind="parquet", seed=1)


@pytest.mark.slow
@pytest.mark.parametrize(("condition", "lo", "hi"), CONDITIONS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_stream_over_files_gives_the_pairs_of_brute_force(
    cli: Cli, tmp_path: Path, strategy: str, condition: str, lo: int, hi: int
) -> None:
    extra = f"{condition} --strategy {strategy} --stream --lateness 1s"
    check(cli, tmp_path, extra, lo, hi, kind="parquet", seed=2, files=4)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_text_files_give_the_pairs_of_brute_force(cli: Cli, tmp_path: Path, kind: str) -> None:
    check(cli, tmp_path, "--within 20us", -20, 20, kind=kind, seed=3, files=2)


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # a client in this process leaves sockets and pipes to the garbage collector
@pytest.mark.parametrize("mode", ["", "--stream --lateness 1s"], ids=["batch", "stream"])
@pytest.mark.parametrize("engine", ["spark"])
def test_an_engine_gives_the_pairs_of_brute_force(cli: Cli, tmp_path: Path, engine: str, mode: str) -> None:
    """From files that overlap in time, with rows in random order."""
    extra = f"--within 40us --engine {engine} {mode}"
    check(cli, tmp_path, extra, -40, 40, kind="parquet", seed=4, files=4, confidences=CONFIDENCES[::2])


def check(
    cli: Cli,
    tmp_path: Path,
    extra: str,
    lo: int | None,
    hi: int | None,
    *,
    kind: str,
    seed: int,
    files: int = 1,
    confidences: Sequence[float] = CONFIDENCES,
) -> None:
    """Run `join` on random files and compare pairs and probabilities with the oracle's."""
    left, right = sides(seed)
    names = [write(side, tmp_path / name, kind, files) for side, name in ((left, "left"), (right, "right"))]
    sizes = []
    for confidence in confidences:
        done = cli(
            f"join {names[0]} {names[1]} --on k --left-time a,b --right-time c,d --confidence {confidence} {extra} "
            "-o out.parquet --max-uncertainty 60us"
        )
        assert done.exit_code == 0, done.stderr
        expected = answer(seed, lo, hi, confidence)
        sizes.append(len(expected))
        assert pairs(tmp_path / "out.parquet") == sorted(expected)
        for row in pq.read_table(tmp_path / "out.parquet").to_pylist():
            assert abs(Fraction(row["probability"]) - expected[row["l"], row["r"]]) < Fraction(1, 10**12)
    assert sizes[0] > max(30, sizes[-1])  # the results are not empty, and have probabilities between 0 and 1
