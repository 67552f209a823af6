"""Laws of the as-of join: for each left row the right row that prevails at its time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from whenabouts.conformance import asof_join_oracle, case_tables, expectations, multiset, oracle, prevailing_oracle
from whenabouts.conformance.case_tables import SECOND, Files
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.join_modes_oracle import in_order
from whenabouts.conformance.multiset import Row
from whenabouts.conformance.prevailing_oracle import Rules
from whenabouts.conformance.slow_engine_cases import fewer_on_slow_engines
from whenabouts.core import Interval, Point
from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.asof_join.settings import DIRECTIONS, HOWS
from whenabouts.core.harness import Variant
from whenabouts.core.local import Outcome
from whenabouts.core.runtime.key_names import shared

POINTS = "points"
"""Dataset of exact times: few instants, rows that repeat, keys with nulls, other columns with nulls in them."""

_OPTIONS: dict[str, dict[str, Any]] = {
    "": {},
    " strict": {"allow_exact_matches": False, "order_by": "small"},
    " tolerance": {"tolerance": 2 * SECOND, "order_by": ("day", "price")},
    " strict tolerance 0": {"tolerance": 0, "allow_exact_matches": False},
}
OPTIONS = {
    direction + name: {"direction": direction, **options}
    for direction in DIRECTIONS
    for name, options in _OPTIONS.items()
}


def query_of(options: str, **more: Any) -> AsofJoin:
    """An as-of join over the dataset of points."""
    on = case_tables.dataset(POINTS).query.on
    return AsofJoin(**({"left_time": Point("t"), "right_time": Point("t"), "on": on} | OPTIONS[options] | more))


@lru_cache
def tables() -> Mapping[str, pa.Table]:
    """The dataset."""
    return case_tables.dataset(POINTS).tables


CASES = [(options, how) for options in OPTIONS for how in HOWS]


@pytest.mark.parametrize(
    ("options", "how"),
    fewer_on_slow_engines(
        CASES, [("backward", "left_outer"), ("nearest tolerance", "inner"), ("forward", "left_anti")]
    ),
)
def test_oracle_asof_points(engine: Engine, options: str, how: str) -> None:
    """Exact times: each left row has the right row of brute force, whatever the order of the rows."""
    query = query_of(options, how=how)
    outcome = engine.run(query, case_tables.finite(POINTS, 2), Variant(parallelism=2))
    multiset.assert_same(
        multiset.rows(outcome.output), asof_join_oracle.rows(query, tables()), "rows", {"query": query}
    )
    assert outcome.metrics["matched"] == outcome.output.num_rows


EVERYWHERE = [(POINTS, options) for options in OPTIONS] + [
    (dataset, options)
    for dataset, turn in (("ties", 0), ("point and interval", 1), ("histograms", 2), ("histogram and interval", 3))
    for options in [name for name in OPTIONS if "strict tolerance" not in name][turn % 3 :: 3]
]
EVERYWHERE.append(("learned clock", "nearest tolerance"))
UNCERTAIN = [(dataset, options) for dataset, options in EVERYWHERE if dataset != POINTS]


def any_query(dataset: str, options: str, **more: Any) -> AsofJoin:
    """An as-of join over a dataset of any times."""
    if dataset == POINTS:
        return query_of(options, **more)
    source = case_tables.dataset(dataset)
    given: dict[str, Any] = {f"{side}_time": spec for side, spec in source.specs.items()}
    asked = {name: value for name, value in OPTIONS[options].items() if name != "order_by"}
    if asked.get("tolerance"):
        asked["tolerance"] = 7 * SECOND
    return AsofJoin(**(given | {"on": source.query.on, "confidence": 0.3, "order_by": "small"} | asked | more))


@lru_cache
def numbered(dataset: str, files: int = 1, seed: int = 0) -> dict[str, Files]:
    """A dataset as files of a batch, in any order, with a number for each left row."""
    given = dict(case_tables.finite(dataset, files, seed))
    whole = case_tables.dataset(dataset).tables["left"]
    order = case_tables.rng(dataset, "left", seed).permutation(whole.num_rows)  # that of `finite`
    ends = np.cumsum([0, *(table.num_rows for table in given["left"])])
    given["left"] = tuple(
        table.append_column("number", pa.array(order[first:last]))
        for table, first, last in zip(given["left"], ends, ends[1:], strict=False)
    )
    return given


@pytest.mark.parametrize(("dataset", "options"), fewer_on_slow_engines(EVERYWHERE, [("ties", "nearest")]))
def test_differential_asof_buckets(engine: Engine, dataset: str, options: str) -> None:
    """The rows are those of one bucket in four and sixteen of them, for rows in any order, in any number of files."""
    query = any_query(dataset, options)
    expected = multiset.rows(engine.run(query, numbered(dataset)).output)
    for parallelism, files in ((4, 3), (16, 1)):
        outcome = engine.run(query, numbered(dataset, files, seed=files), Variant(parallelism=parallelism))
        multiset.assert_same(multiset.rows(outcome.output), expected, f"{parallelism} buckets", {"query": query})


@pytest.mark.parametrize(
    ("dataset", "options"),
    fewer_on_slow_engines(
        [case for case in EVERYWHERE if "tolerance" in case[1]], [("histograms", "nearest tolerance")]
    ),
)
def test_differential_asof_time_slots(engine: Engine, dataset: str, options: str) -> None:
    """Spread over four buckets by time, with a key and without, the rows are those of one bucket; rows count once."""
    files = numbered(dataset)
    without = [None] if dataset == POINTS else []  # all cases of uncertain times together have too many candidates
    for on in (case_tables.dataset(dataset).query.on, *without):
        query = any_query(dataset, options, on=on)
        expected = multiset.rows(engine.run(query, files).output)
        for width in (SECOND, 40 * SECOND):
            slotted = replace(query, time_slots=width)
            outcome = engine.run(slotted, files, Variant(parallelism=4))
            multiset.assert_same(multiset.rows(outcome.output), expected, "rows in slots", {"query": slotted})
            assert outcome.metrics["rows_in"] == sum(len(table) for tables in files.values() for table in tables)
            assert outcome.metrics["rows_in"] == outcome.metrics["rows_processed"] + outcome.metrics["rows_rejected"]


class Found(NamedTuple):
    """What a left row, by its number, came out with: right rows with their probabilities; and that of none."""

    partners: list[tuple[Row, float]]
    none: float


def _found(outcome: Outcome, right_columns: int) -> dict[int, Found]:
    """By number, what each left row came out with."""
    found: dict[int, Found] = {}
    names = outcome.output.column_names
    first = len(names) - 2 - right_columns
    cells = zip(*(multiset.cells(column) for column in outcome.output.columns), strict=True)
    for row, id_ in zip(cells, outcome.output.column("number").to_pylist(), strict=True):
        p, none = row[-2], row[-1].value
        answer = found.setdefault(id_, Found([], none))
        assert answer.none == none
        if p is not None:
            answer.partners.append((row[first:-2], p.value))
    return found


def _right_columns(query: AsofJoin, dataset: str) -> int:
    kept = set(case_tables.dataset(dataset).tables["right"].column_names) - set(shared(query.key_columns))
    return len(kept)


ANY = 1e-300
"""A confidence that every right row reaches that can prevail."""
CONFIDENCES = (0.2, 0.5, 1.0)
EDGE = 0.31
"""A confidence that no row of the datasets has exactly."""


@pytest.mark.parametrize(("dataset", "options"), fewer_on_slow_engines(UNCERTAIN, [("ties", "backward")]))
def test_oracle_asof_sum(engine: Engine, dataset: str, options: str) -> None:
    """The probabilities of all right rows that can prevail and of none sum to 1 for each left row, to 1e-12."""
    query = any_query(dataset, options, keep="all", confidence=ANY)
    outcome = engine.run(query, numbered(dataset))
    answers = _found(outcome, _right_columns(query, dataset))
    assert len(answers) + outcome.metrics["rows_rejected"] >= len(case_tables.dataset(dataset).tables["left"])
    for id_, (partners, none) in answers.items():
        assert abs(math.fsum([none, *(p for _, p in partners)]) - 1) <= 1e-12, (id_, partners, none)


def _orders(query: AsofJoin, dataset: str) -> dict[Row, tuple[Any, ...]]:
    """By the columns of a right row that come out: its place among equally probable ones."""
    names = case_tables.dataset(dataset).tables["right"].column_names
    keys, found = shared(query.key_columns), {}
    for event in asof_join_oracle.read(query, case_tables.dataset(dataset).tables)[0]["right"]:
        value = dict(zip(names, event.values, strict=True))
        ends = (event.t_min, event.t_max) if query.direction == "forward" else (event.t_max, event.t_min)
        columns = [*query.ordered_by, *(name for name in names if name not in keys)]
        row = tuple(value[name] for name in names if name not in keys)
        found[row] = (*ends, *(in_order(value[name]) for name in columns))
    return found


CASES_OF_WORLDS = 20
"""How many cases of a dataset the exact oracle computes: tens of milliseconds for a left row."""


@lru_cache
def _worlds(dataset: str, options: str) -> dict[int, tuple[Counter[Row], Fraction]]:
    """By number of a left row of the first cases: the exact probability of each right row, and of none."""
    query = any_query(dataset, options)
    tables = dict(case_tables.dataset(dataset).tables)
    tables["left"] = tables["left"].append_column("number", pa.array(np.arange(tables["left"].num_rows)))
    rules = Rules(query.direction, query.tolerance_us, query.allow_exact_matches)  # type: ignore[arg-type]
    events = asof_join_oracle.read(query, tables)[0]
    columns, by_key = tables["right"].column_names, oracle.by_key(events["right"])
    kept = [index for index, name in enumerate(columns) if name not in shared(query.key_columns)]
    order = _orders(query, dataset)
    found: dict[int, tuple[Counter[Row], Fraction]] = {}
    for left in events["left"]:
        case, number = (cast(int, left.values[index]) for index in (0, -1))
        if case >= CASES_OF_WORLDS:
            continue
        partners = by_key.get(left.key, []) if left.key is not None else []
        rows = [tuple(each.values[index] for index in kept) for each in partners]
        ranks = [sorted(map(order.get, rows)).index(order[row]) for row in rows]  # type: ignore[type-var]
        answer = prevailing_oracle.prevailing(left.time, [each.time for each in partners], rules, ranks)
        probability: Counter[Row] = Counter()
        for row, p in zip(rows, answer.rows, strict=True):
            probability[row] += p  # type: ignore[assignment]  # a fraction
        found[number] = probability, answer.none
    return found


@pytest.mark.parametrize(("dataset", "options"), fewer_on_slow_engines(UNCERTAIN, (), canary=("ties", "nearest")))
def test_oracle_asof_worlds(engine: Engine, dataset: str, options: str) -> None:
    """Each probability is within 1e-12 of that of exact rational arithmetic.

    It is 1 for certain rows and for no others.
    """
    query = any_query(dataset, options, keep="all", confidence=ANY)
    found = _found(engine.run(query, numbered(dataset)), _right_columns(query, dataset))
    expected = _worlds(dataset, options)
    assert len(expected) > CASES_OF_WORLDS
    for number, (probability, none) in expected.items():
        actual: Counter[Row] = Counter()
        for row, p in found[number].partners:
            actual[row] += Fraction(p)  # type: ignore[assignment]
        assert abs(found[number].none - none) <= 1e-12
        for row in probability.keys() | actual.keys():
            assert abs(actual[row] - probability[row]) <= 1e-12, (number, row)
        alike = Counter(row for row, _ in found[number].partners)
        for row, p in found[number].partners:
            if alike[row] > 1:
                continue  # equal points, nearest: one is the answer as the last before, the other as the first after
            exact = probability[row]
            assert (p == 1) == (exact == 1), (number, row)
            assert abs(exact - EDGE) > 1e-12, "a row at the edge of the confidence shows nothing"
            assert (p >= EDGE) == (exact >= EDGE), (number, row)


@pytest.mark.parametrize(
    ("dataset", "options"), fewer_on_slow_engines(UNCERTAIN, [("point and interval", "backward strict")])
)
def test_oracle_asof_all_is_bounded(engine: Engine, dataset: str, options: str) -> None:
    """`keep="all"` gives the right rows that reach the confidence, at most 1 / confidence for each left row."""
    query = any_query(dataset, options, keep="all", confidence=ANY)
    columns = _right_columns(query, dataset)
    every = _found(engine.run(query, numbered(dataset)), columns)
    for confidence in CONFIDENCES:
        found = _found(engine.run(replace(query, confidence=confidence), numbered(dataset)), columns)
        assert found.keys() == every.keys()
        for id_, (partners, none) in found.items():
            expected = [(row, p) for row, p in every[id_].partners if p >= confidence]
            assert Counter(partners) == Counter(expected)
            assert none == every[id_].none
            assert len(partners) <= 1 / confidence


@pytest.mark.parametrize(
    ("dataset", "options"), fewer_on_slow_engines(UNCERTAIN, [("histograms", "forward tolerance")])
)
def test_oracle_asof_best(engine: Engine, dataset: str, options: str) -> None:
    """`keep="best"` gives the most probable of the rows of `keep="all"`, of equally probable ones the later, forward
    the earlier; `inner` drops left rows without one."""
    query = any_query(dataset, options, keep="all", confidence=ANY)
    columns = _right_columns(query, dataset)
    every = _found(engine.run(query, numbered(dataset)), columns)
    order, last = _orders(query, dataset), min if query.direction == "forward" else max
    for confidence in CONFIDENCES:
        best = replace(query, confidence=confidence, keep="best")
        outcome = engine.run(best, numbered(dataset))
        found = _found(outcome, columns)
        assert found.keys() == every.keys()
        assert outcome.output.num_rows == len(every)
        for id_, (partners, _) in found.items():
            greatest = max((p for _, p in every[id_].partners), default=0.0)
            if greatest < confidence:
                assert not partners
                continue
            tied = [row for row, p in every[id_].partners if p == greatest]
            ((row, p),) = partners
            assert (order[row], p) == (last(order[each] for each in tied), greatest)
        inner = engine.run(replace(best, how="inner"), numbered(dataset)).output
        kept = outcome.output.filter(outcome.output.column("probability").is_valid())
        multiset.assert_same(multiset.rows(inner), multiset.rows(kept), "rows with a partner")


def _as_intervals(files: Mapping[str, Files]) -> dict[str, Files]:
    return {side: tuple(table.append_column("until", table["t"]) for table in of) for side, of in files.items()}


@pytest.mark.parametrize("options", fewer_on_slow_engines(OPTIONS, ["nearest tolerance"]))
def test_differential_asof_intervals_of_no_length(engine: Engine, options: str) -> None:
    """Intervals that end where they begin give the rows of points, at any confidence."""
    query = query_of(options)
    expected = multiset.rows(engine.run(query, case_tables.finite(POINTS)).output)
    interval = Interval("t", "until", max_uncertainty="1 s")
    for confidence in (1e-9, 1.0):
        same = replace(query, left_time=interval, right_time=interval, confidence=confidence)
        outcome = engine.run(same, _as_intervals(case_tables.finite(POINTS)), Variant(parallelism=2))
        output = outcome.output.select([name for name in outcome.output.column_names if not name.startswith("until")])
        multiset.assert_same(multiset.rows(output), expected, "rows of intervals", {"query": same})


@pytest.mark.parametrize(("dataset", "options"), fewer_on_slow_engines(EVERYWHERE, [("ties", "forward")]))
def test_differential_asof_anti(engine: Engine, dataset: str, options: str) -> None:
    """`left_anti` gives the left rows whose `none_probability` in `left_outer` reaches the confidence."""
    files, query = numbered(dataset), any_query(dataset, options)
    whole = engine.run(query, files).output
    alone = engine.run(replace(query, how="left_anti"), files).output
    assert alone.column_names == [*files["left"][0].column_names, "none_probability"]
    kept = whole.filter(pc.greater_equal(whole["none_probability"], query.confidence))
    multiset.assert_same(
        multiset.rows(alone, ["number", "none_probability"]),
        multiset.rows(kept, ["number", "none_probability"]),
        "left rows without a partner",
    )


@pytest.mark.parametrize(("dataset", "options"), fewer_on_slow_engines(EVERYWHERE, [("ties", "nearest")]))
def test_differential_asof_without_probability(engine: Engine, dataset: str, options: str) -> None:
    """`probability=False` gives the same rows, without the columns of probabilities."""
    for how in ("left_outer", "left_anti"):
        query = any_query(dataset, options, how=how)
        usual = engine.run(query, numbered(dataset))
        plain = engine.run(replace(query, probability=False), numbered(dataset))
        names = [name for name in usual.output.column_names if name not in ("probability", "none_probability")]
        assert plain.output.column_names == names
        multiset.assert_same(multiset.rows(plain.output), multiset.rows(usual.output, names), how, {"query": query})
        assert plain.metrics["unmatched"] == usual.metrics["unmatched"]


@pytest.mark.parametrize("how", fewer_on_slow_engines(HOWS, ("left_outer",)))
def test_oracle_asof_accounting(engine: Engine, how: str) -> None:
    """Malformed rows of both sides are rejected with their code; rows in = rows processed + rows rejected."""
    source = case_tables.dataset("malformed")
    query = AsofJoin(left_time=Point("t_max"), right_time=Point("t_max"), on=source.query.on, how=how)
    outcome = engine.run(query, case_tables.finite("malformed"), Variant(parallelism=2))
    _, refused = asof_join_oracle.read(query, source.tables)
    expected = asof_join_oracle.rows(query, source.tables)
    multiset.assert_same(multiset.rows(outcome.output), expected, "rows", {"query": query})
    whole = expectations.whole(case_tables.finite("malformed"))
    assert outcome.rejects.num_rows == outcome.metrics["rows_rejected"] == refused > 0
    assert outcome.metrics["rows_in"] == sum(table.num_rows for table in whole.values())
    assert outcome.metrics["rows_in"] == outcome.metrics["rows_processed"] + outcome.metrics["rows_rejected"]
