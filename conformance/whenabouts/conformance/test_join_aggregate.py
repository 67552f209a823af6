"""Laws of join aggregates: numbers about the right rows of each left row, instead of pairs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from whenabouts.conformance import case_tables, join_aggregate_oracle, join_aggregate_rows, multiset, oracle
from whenabouts.conformance.case_tables import Files
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.slow_engine_cases import fewer_on_slow_engines
from whenabouts.core import Histogram, Interval, between, possibly
from whenabouts.core.harness import Variant
from whenabouts.core.join_aggregate.query import JoinAggregate
from whenabouts.core.local import Outcome
from whenabouts.core.times.conditions import UNSAID
from whenabouts.core.timing_join.query import TimingJoin

LEAST = 5e-324

DECIDED: dict[str, Any] = {
    "n": "count", "notes": "count:note", "some": "any", "small_sum": "sum:small", "price_sum": ("sum", "price"),
    "value_sum": "sum:value", "value_mean": "mean:value", "small_mean": "mean:small", "price_mean": "mean:price",
    "value_min": "min:value", "value_max": "max:value", "note_min": "min:note", "seen_max": "max:seen",
    "note_first": "first:note", "value_last": "last:value", "price_last": "last:price",
    "values_distinct": "count_distinct:value", "notes_distinct": "count_distinct:note", "values": "collect:value",
    "days": "collect:day",
}  # fmt: skip
MOST = 20
"""No left row of the datasets has more partners."""
CHANCE: dict[str, Any] = {
    "expected": "expected_count", "expected_sum": "expected_sum:amount", "variance": "count_variance",
    "sum_variance": "sum_variance:amount", "none": "p_none", "any": "p_any", "at_half": "count_at:0.5",
    "at_nine": ("count_at", 0.9), **{f"p{k}": ("p_at_least", k) for k in range(1, MOST + 1)},
}  # fmt: skip


@lru_cache
def tables(dataset: str, cases: int = 200) -> dict[str, pa.Table]:
    """The first cases of a dataset, with a number for each left row, and values of each kind for right ones."""
    found = {
        side: table.filter(pc.less(table["case"], cases)) for side, table in case_tables.dataset(dataset).tables.items()
    }
    left, right = found["left"], found["right"]
    random = case_tables.rng("values", dataset)
    special = np.array([0.1, -0.0, 0.0, math.nan, math.inf, -math.inf, 5e-324, 1e300, -1e300, 0.2, 2.0**60])
    usual = np.round(random.normal(size=len(right)), 2)
    value = np.where(random.random(len(right)) < 0.6, usual, random.choice(special, len(right)))
    amount = random.integers(-8, 9, len(right))
    return {
        "left": left.append_column("number", pa.array(np.arange(len(left)))),
        "right": right.append_column(
            "value", pa.array(value, pa.float64(), mask=random.random(len(right)) < 0.1)
        ).append_column("amount", pa.array(amount, pa.int64(), mask=random.random(len(right)) < 0.1)),
    }


@lru_cache
def files_of(dataset: str, files: int = 1, seed: int = 0, cases: int = 200) -> dict[str, Files]:
    """These tables as files of a batch, rows in any order."""
    return {
        side: case_tables.cut(
            table.take(pa.array(case_tables.rng(dataset, side, seed).permutation(len(table)))), files, side, seed
        )
        for side, table in tables(dataset, cases).items()
    }


def query_of(dataset: str, aggregates: Mapping[str, Any], **more: Any) -> JoinAggregate:
    """A join aggregate over a dataset, at its condition."""
    source = case_tables.dataset(dataset).query
    given = {name: getattr(source, name) for name in ("left_time", "right_time", "condition", "on", "lateness")}
    return JoinAggregate(**(given | {"aggregates": aggregates} | more))


SHEETS = [name for name in case_tables.PROFILES if name != "realistic"]


@pytest.mark.parametrize("dataset", fewer_on_slow_engines(SHEETS, ["ties"]))
def test_oracle_aggregates(engine: Engine, dataset: str) -> None:
    """Decided functions are those of brute-force pairs, for all types, to the last bit, whatever the order of rows."""
    query = query_of(dataset, DECIDED)
    outcome = engine.run(query, files_of(dataset, 2), Variant(parallelism=2))
    multiset.assert_same(
        multiset.rows(outcome.output), join_aggregate_rows.rows(query, tables(dataset)), "rows", {"query": query}
    )
    assert outcome.metrics["matched"] == outcome.output.num_rows
    assert outcome.metrics["unmatched"] == sum(not any_ for any_ in outcome.output["some"].to_pylist())
    assert outcome.metrics["rows_in"] == outcome.metrics["rows_processed"] + outcome.metrics["rows_rejected"]


@pytest.mark.parametrize(
    "dataset", fewer_on_slow_engines(["points", "ties", "point and interval", "histograms"], ["point and interval"])
)
def test_oracle_aggregates_of_possible_pairs(engine: Engine, dataset: str) -> None:
    """`possibly` takes the pairs whose supports touch the window, and exact times only inside it."""
    condition = possibly(case_tables.dataset(dataset).query.condition)
    asked = {"n": "count", "sum": "sum:value", "last": "last:amount"}
    query = query_of(dataset, asked, condition=condition, how="inner")
    outcome = engine.run(query, files_of(dataset))
    multiset.assert_same(multiset.rows(outcome.output), join_aggregate_rows.rows(query, tables(dataset)), "rows")
    mixed = replace(query, aggregates={**asked, "p": "p_any"})
    both = engine.run(mixed, files_of(dataset)).output
    multiset.assert_same(multiset.rows(both.drop_columns("p")), multiset.rows(outcome.output), "rows with a chance")


@pytest.mark.parametrize("dataset", fewer_on_slow_engines(SHEETS, ["few lengths"]))
def test_differential_aggregate_and_join(engine: Engine, dataset: str) -> None:
    """The group of the timing join's pairs; `expected_count` is the exact sum of their probabilities at any confidence.

    Nor do chance functions in the same call change a decided one; `probed` and `sure` are those of the join.
    """
    files = files_of(dataset)
    plain = query_of(dataset, {"n": "count", "sum": "sum:amount", "last": "last:note"})
    decided = engine.run(plain, files)
    mixed = engine.run(replace(plain, aggregates={"expected": "expected_count", **_asked(plain)}), files)
    multiset.assert_same(
        multiset.rows(mixed.output, decided.output.column_names), multiset.rows(decided.output), "mixed functions"
    )
    source = case_tables.dataset(dataset).query
    join = TimingJoin(**{name: getattr(source, name) for name in ("left_time", "right_time", "condition", "on")})
    pairs = engine.run(join, files)
    found = {row["number"]: row for row in mixed.output.to_pylist()}
    amounts = _by_number(pairs, "amount")
    for number, row in found.items():
        values = [value for value in amounts[number] if value is not None]
        assert (row["n"], row["sum"]) == (len(amounts[number]), sum(values) if values else None), number
    assert [decided.metrics[name] for name in ("probed", "sure")] == [pairs.metrics[n] for n in ("probed", "sure")]
    possible = _by_number(
        engine.run(replace(join, condition=replace(join.condition, confidence=LEAST)), files), "probability"
    )
    for number, row in found.items():
        assert row["expected"] == math.fsum(possible[number]), number


def _asked(query: JoinAggregate) -> dict[str, tuple[str, Any]]:
    return {each.name: (each.function, each.argument) for each in query.aggregates}


def _by_number(pairs: Outcome, column: str) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = defaultdict(list)
    for number, value in zip(pairs.output["number"].to_pylist(), pairs.output[column].to_pylist(), strict=True):
        found[number].append(value)
    return found


CHANCE_SHEETS = ["ties", "narrow", "microseconds", "point and interval", "few lengths", "point and histogram",
                 "histogram and interval", "narrow histograms", "points", "one-sided"]  # fmt: skip


@lru_cache
def _exact(dataset: str, cases: int) -> dict[int, tuple[join_aggregate_oracle.Chances, int]]:
    """By number of the left row its chances, and how many partners are certain."""
    query = query_of(dataset, CHANCE)
    given = tables(dataset, cases)
    events, found = join_aggregate_rows.read(query, given), {}
    by_key = oracle.by_key(events["right"])
    amount, number = given["right"].column_names.index("amount"), given["left"].column_names.index("number")
    window = query.condition.lo_us, query.condition.hi_us
    for left in events["left"]:
        rights = by_key.get(left.key, []) if left.key else []
        near = [row for row in rights if oracle.probability(left.time, row.time, *window).numerator]
        values = [None if row.values[amount] is None else Fraction(row.values[amount]) for row in near]
        truth = join_aggregate_oracle.chances(left.time, [row.time for row in near], *window, values)
        found[left.values[number]] = truth, sum(p == 1 for p in truth.probabilities)
    return found


@pytest.mark.parametrize("dataset", fewer_on_slow_engines(CHANCE_SHEETS, CHANCE_SHEETS[:1]))
def test_oracle_chance(engine: Engine, dataset: str) -> None:
    """Chance functions are within 1e-12 of exact rationals, and 0.0 or 1.0 exactly where that is certain."""
    cases = 12
    query = query_of(dataset, CHANCE, condition=replace(query_of(dataset, CHANCE).condition, confidence=UNSAID))
    outcome = engine.run(query, files_of(dataset, 1, 0, cases))
    truths, seen = _exact(dataset, cases), 0
    for row in outcome.output.to_pylist():
        truth, certain = truths[row["number"]]
        at_least = (*truth.at_least, *[Fraction(0)] * (MOST + 1 - len(truth.at_least)))
        tails = {f"p{k}": at_least[k] for k in range(1, MOST + 1)}
        for name, exact in {"none": truth.none, "any": 1 - truth.none, **tails}.items():
            assert abs(Fraction(row[name]) - exact) <= 1e-12, (row["number"], name)
            assert [row[name] == 0.0, row[name] == 1.0] == [exact == 0, exact == 1], (row["number"], name)
        size = 1 + float(truth.expected_count)
        assert abs(Fraction(row["expected"]) - truth.expected_count) <= 1e-12 * size
        assert abs(Fraction(row["variance"]) - truth.count_variance) <= 1e-12 * size**2
        assert abs(Fraction(row["expected_sum"]) - truth.expected_sum) <= 1e-11 * size
        assert abs(Fraction(row["sum_variance"]) - truth.sum_variance) <= 1e-10 * size**2
        for name, confidence in (("at_half", 0.5), ("at_nine", 0.9)):
            tail = at_least[row[name]], at_least[row[name] + 1]  # a tie at the confidence may fall either way
            assert tail[0] >= Fraction(confidence) - Fraction(1, 10**12) > tail[1] - Fraction(2, 10**12), row["number"]
        if certain:
            assert row["none"] == 0.0
        seen += 1
    assert seen == len(truths)
    assert outcome.metrics["unmatched"] == sum(not truth.probabilities for truth, _ in truths.values())


IDENTITIES = ["wide", "histograms", "many templates", "certain histograms"]


@pytest.mark.parametrize("dataset", fewer_on_slow_engines(IDENTITIES, ["wide"]))
def test_oracle_identities(engine: Engine, dataset: str) -> None:
    """P(none) + P(any) = 1; the tails sum up to the expected count, and with it give the variance (1e-11)."""
    output = engine.run(query_of(dataset, CHANCE), files_of(dataset)).output
    for row in output.to_pylist():
        tails = [row[f"p{k}"] for k in range(1, MOST + 1)]
        assert abs(row["none"] + row["any"] - 1) <= 1e-15
        assert abs(row["any"] - tails[0]) <= 1e-15
        assert max(more - less for less, more in pairwise(tails)) < 1e-15
        assert abs(math.fsum(tails) - row["expected"]) <= 1e-11
        second = math.fsum((2 * k - 1) * p for k, p in enumerate(tails, start=1))
        assert abs(second - row["variance"] - row["expected"] ** 2) <= 1e-11 * (1 + row["expected"]) ** 2


@pytest.mark.parametrize("dataset", fewer_on_slow_engines(["wide", "histograms"], ["wide"]))
def test_differential_one_partner_more(engine: Engine, dataset: str) -> None:
    """More right rows lower no expected count, no tail and no P(any), and raise no P(none), to 1e-12."""
    files = files_of(dataset)
    again = [table.slice(0, len(table) // 2) for table in files["right"]]
    twice = {"left": files["left"], "right": (*files["right"], *again)}
    query = query_of(dataset, {"expected": "expected_count", "none": "p_none", "any": "p_any", "two": "p_at_least:2"})
    before, after = (
        {row["number"]: row for row in engine.run(query, given).output.to_pylist()} for given in (files, twice)
    )
    for number, row in before.items():
        more = after[number]
        assert more["none"] <= row["none"] + 1e-12
        assert all(more[name] >= row[name] - 1e-12 for name in ("expected", "any", "two")), number


@pytest.mark.parametrize("dataset", fewer_on_slow_engines(["ties", "histograms", "points"], ["ties"]))
def test_differential_aggregates_in_buckets(engine: Engine, dataset: str) -> None:
    """The rows are those of one bucket in four of them, by key and by time, for rows in any order, in any files."""
    query = query_of(dataset, DECIDED | CHANCE)
    expected = multiset.rows(engine.run(query, files_of(dataset)).output)
    for width, files in ((None, 3), ("20 s", 2), ("3 s", 1)):
        changed = replace(query, time_slots=width)
        outcome = engine.run(changed, files_of(dataset, files, seed=files), Variant(parallelism=4))
        multiset.assert_same(multiset.rows(outcome.output), expected, "rows", {"query": changed})
        assert outcome.metrics["rows_in"] == sum(len(table) for table in tables(dataset).values())
        assert outcome.metrics["rows_in"] == outcome.metrics["rows_processed"] + outcome.metrics["rows_rejected"]


def _worked(rights: list[tuple[int, int]], values: list[int]) -> dict[str, Files]:
    left = pa.table({"a": [0], "b": [10]})
    a, b = zip(*rights, strict=True)
    return {"left": (left,), "right": (pa.table({"a": a, "b": b, "v": values}),)}


def test_oracle_worked_numbers(engine: Engine) -> None:
    """Worked examples as exact fractions: partners share the left row's time, so that they are not independent."""
    interval = Interval("a", "b", max_uncertainty=20)
    asked = {
        "n": "expected_count", "var": "count_variance", "none": "p_none", "two": "p_at_least:2",
        "three": "p_at_least:3", "sum": "expected_sum:v", "sum_var": "sum_variance:v",
    }  # fmt: skip
    query = JoinAggregate(left_time=interval, right_time=interval, condition=between(0, 5), aggregates=asked)
    four = engine.run(query, _worked([(8, 12), (10, 20), (3, 3), (12, 14)], [5, 1, 2, -3])).output.to_pylist()[0]
    truth = {"n": (43, 40), "var": (557, 960), "none": (1901, 9600), "two": (69, 320), "three": (551, 9600),
             "sum": (19, 8), "sum_var": (7523, 1600)}  # fmt: skip
    for name, (numerator, denominator) in truth.items():
        assert four[name] == pytest.approx(numerator / denominator, rel=1e-14), name
    points = engine.run(query, _worked([(12, 12)] * 3, [1, 1, 1])).output.to_pylist()[0]
    assert points["none"] == pytest.approx(0.7, rel=1e-15)  # not 0.343
    assert points["var"] == pytest.approx(1.89, rel=1e-15)
    assert points["three"] == pytest.approx(0.3, rel=1e-15)
    assert points["n"] == math.fsum([0.3] * 3)
    # Two points that share the whole of Y between them: one is always in reach.
    assert engine.run(query, _worked([(5, 5), (10, 10)], [1, 1])).output["none"].to_pylist() == [0.0]


def test_oracle_worked_numbers_of_histograms(engine: Engine) -> None:
    """The same for two templates of PTJoin, page 1 of its examples."""
    phi1 = [(0, 20, 0.1), (20, 30, 0.3), (30, 40, 0.6)]
    phi2 = [(0, 10, 0.15), (10, 20, 0.3), (20, 30, 0.4), (30, 40, 0.15)]
    asked = {"n": "expected_count", "var": "count_variance", "none": "p_none", "two": "p_at_least:2"}
    query = JoinAggregate(
        left_time=Histogram("t", templates={"a": phi1}), right_time=Histogram("t", templates={"b": phi2}),
        condition=between(-60, 60), aggregates=asked,
    )  # fmt: skip
    files = {"left": (pa.table({"t": [100]}),), "right": (pa.table({"t": [150, 160]}),)}
    found = engine.run(query, files).output.to_pylist()[0]
    truth = {"n": Fraction(271, 160), "var": Fraction(8239, 25600), "none": Fraction(7, 128), "two": Fraction(479, 640)}
    for name, exact in truth.items():
        assert found[name] == pytest.approx(float(exact), rel=1e-12), name
