"""The as-of join of exact times: against brute force, and against pandas, Polars and DuckDB."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import whenabouts as wa
from whenabouts.conformance import asof_join_oracle, multiset
from whenabouts.core.arrays import threads, value_order
from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.asof_join.settings import DIRECTIONS, HOWS
from whenabouts.core.local import run

POINTS: dict[str, Any] = {"left_time": wa.Point("t"), "right_time": wa.Point("t")}
CASES = 220
OPTIONS = [
    {"direction": direction, "tolerance": tolerance, "allow_exact_matches": exact}
    for direction in DIRECTIONS
    for tolerance in (None, 0, 1, 3)
    for exact in (True, False)
]


def tables(seed: int, cases: int = CASES, span: int = 12) -> dict[str, pa.Table]:
    """Many small pairs of tables, told apart by `case`, full of ties: few times, few keys, rows that repeat."""
    random, made = np.random.default_rng(seed), {}
    for side in ("left", "right"):
        case = np.repeat(np.arange(cases), random.integers(0, 14, cases))
        random.shuffle(case)
        n = len(case)
        made[side] = pa.table(
            {
                "case": case,
                "k": pa.array(random.integers(0, 3, n), mask=random.random(n) < 0.1),
                "t": random.integers(0, span, n),
                side: np.arange(n),
                "v": pa.array(random.integers(0, 2, n), mask=random.random(n) < 0.2),
            }
        )
    return made


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(map(str, options.values())))
def test_rows_are_those_of_brute_force(options: dict[str, Any], how: str) -> None:
    given = tables(5, cases=40)
    for on, order_by in ((["case", "k"], ()), ("case", "v"), (["case", "k"], ("v", "right"))):
        query = AsofJoin(**POINTS, **options, on=on, how=how, order_by=order_by, probability=order_by != "v")
        expected = asof_join_oracle.rows(query, given)
        for buckets in (1, 3):
            outcome = run(query, list(given.values()), buckets=buckets)
            multiset.assert_same(multiset.rows(outcome.output), expected, "rows", {"query": query})
            assert outcome.metrics["matched"] == outcome.output.num_rows


Numbers = Counter[tuple[Any, ...]]
ON = ("case", ["case", "k"])


def ours(given: dict[str, pa.Table], on: Any, options: dict[str, Any]) -> Numbers:
    """The numbers of each left row and of its partner; right rows of one instant are in the order of their numbers."""
    found = wa.asof_join(
        given["left"], given["right"], on=on, **POINTS, order_by="right", probability=False, how="left", **options
    )
    return Counter(zip(*(found.column(name).to_pylist() for name in ("left", "right")), strict=True))


def of_pandas(given: dict[str, pa.Table], on: Any, options: dict[str, Any]) -> Numbers:
    """The same from `pandas.merge_asof`, which wants both sides in time order and takes null as a key."""
    nullable = {pa.int64(): pd.Int64Dtype()}
    frames = [given[side].to_pandas(types_mapper=nullable.get).astype({"t": "int64"}) for side in ("left", "right")]
    frames = [frame.assign(k=frame["k"].fillna(-1 - side)) for side, frame in enumerate(frames)]
    left, right = (frame.sort_values("t", kind="stable") for frame in frames)
    found = pd.merge_asof(left, right, on="t", by=on, **options)
    partner = [None if pd.isna(value) else int(value) for value in found["right"]]
    return Counter(zip((int(value) for value in found["left"]), partner, strict=True))


def of_polars(given: dict[str, pa.Table], on: Any, options: dict[str, Any]) -> Numbers:
    """The same from `polars.DataFrame.join_asof`."""
    frames = [pl.DataFrame(given[side]).sort("t", maintain_order=True) for side in ("left", "right")]
    found = frames[0].join_asof(
        frames[1], on="t", by=on, strategy=options["direction"], tolerance=options["tolerance"],
        allow_exact_matches=options["allow_exact_matches"], check_sortedness=False,
    )  # fmt: skip
    return Counter(zip(found["left"].to_list(), found["right"].to_list(), strict=True))


def only_where_nearest_agrees(given: dict[str, pa.Table], on: Any) -> dict[str, pa.Table]:
    """Without several right rows at one instant, and without left rows that have right rows equally far before and
    after: there Polars decides otherwise."""

    def keys(side: str) -> list[tuple[Any, ...]]:
        names = [on, "t"] if isinstance(on, str) else [*on, "t"]
        return list(zip(*(given[side].column(name).to_pylist() for name in names), strict=True))

    right = keys("right")
    first = {key: number for number, key in reversed(list(enumerate(right)))}
    between = [any({(*k, t - d), (*k, t + d)} <= first.keys() for d in range(1, 12)) for *k, t in keys("left")]
    return {
        "left": given["left"].filter(pa.array([not each for each in between])),
        "right": given["right"].filter(pa.array([first[key] == number for number, key in enumerate(right)])),
    }


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(map(str, options.values())))
def test_rows_are_those_of_pandas_and_polars(options: dict[str, Any]) -> None:
    """10,560 tables over all options."""
    for seed, on in enumerate(ON):
        given = tables(seed)
        assert ours(given, on, options) == of_pandas(given, on, options)
        if options["direction"] == "nearest":
            given = only_where_nearest_agrees(given, on)
        found = ours(given, on, options)
        assert found == of_polars(given, on, options)
        assert sum(partner is not None for _, partner in found) > 100 or options["tolerance"] == 0


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(("direction", "compare"), [("backward", ">"), ("forward", "<")])
def test_prevailing_times_are_those_of_duckdb(direction: str, compare: str, exact: bool) -> None:
    """DuckDB takes any of several rows at one instant, so the times are compared."""
    given = tables(9, cases=400)
    connection = duckdb.connect()
    connection.register("lefts", given["left"])
    connection.register("rights", given["right"])
    same = f"l.case = r.case AND l.k = r.k AND l.t {compare}{'=' if exact else ''} r.t"
    rows = connection.execute(f'SELECT l."left", r.t FROM lefts l ASOF LEFT JOIN rights r ON {same}').fetchall()
    found = wa.asof_join(
        given["left"], given["right"], on=["case", "k"], direction=direction, allow_exact_matches=exact, **POINTS
    )
    times = zip(found.column("left").to_pylist(), found.column("t_right").to_pylist(), strict=True)
    assert Counter(times) == Counter(rows)


@pytest.mark.slow
@pytest.mark.parametrize("on", [None, "case", ["case", "k"]], ids=str)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_rows_are_the_same_by_any_number_of_threads(direction: str, on: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of a few rows, most of which have no right row of some keys; sorted and shuffled."""
    monkeypatch.setattr(threads, "LEAST_ROWS", 5)
    monkeypatch.setattr(value_order, "_LEAST_ROWS", 20)
    for seed, cases, span in ((1, 3, 40), (2, 40, 12), (3, 60, 10**6)):
        given = tables(seed, cases, span)
        for sides in (given, {side: rows.sort_by("t") for side, rows in given.items()}):
            for options in ({"tolerance": 7}, {"allow_exact_matches": False}):
                query = AsofJoin(**POINTS, on=on, direction=direction, **options)
                expected = run(query, list(sides.values())).output
                for count in (2, 3, 8):
                    assert run(query, list(sides.values()), threads=count).output.equals(expected), (seed, count)


def test_times_that_span_all_years_are_in_order() -> None:
    """Their bits and those of a row's number are too many for one sort of packed numbers."""
    random = np.random.default_rng(4)
    first, last = -62_135_596_800_000_000, 253_402_300_799_999_999
    t = np.concatenate([random.integers(first, last, 3_000), 5 + random.permutation(3_000)])
    left = pa.table({"t": random.permutation(t), "left": np.arange(6_000)})
    right = pa.table({"t": random.permutation(t) - 1, "right": np.arange(6_000)})
    found = wa.asof_join(left, right, **POINTS, how="inner")
    at, others = np.asarray(found.column("t_left")), np.sort(right.column("t"))
    assert found.num_rows == 6_000
    assert (np.asarray(found.column("t_right")) == others[np.searchsorted(others, at, "right") - 1]).all()
