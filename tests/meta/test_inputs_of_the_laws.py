"""Tests of the laws' inputs: they contain the cases that the laws are about; otherwise the laws would hold
trivially."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import Phase, find, settings

from whenabouts.conformance import (
    case_tables,
    coalescing_case_tables,
    expectations,
    generators,
    multiset,
    operation_counts,
    oracle,
    templates,
)
from whenabouts.conformance.coalescing_answers import answer
from whenabouts.conformance.templates import TemplateSet
from whenabouts.core import Interval

pytestmark = pytest.mark.slow

DATASETS = tuple(case_tables.PROFILES)


@pytest.mark.parametrize("name", DATASETS)
def test_a_sheet_has_pairs_and_near_misses_empty_and_single_rows_and_repeats(name: str) -> None:
    source, (inputs, answer) = case_tables.dataset(name), expectations.of_dataset(name)
    met = sum(1 for _ in oracle.candidates(inputs.events["left"], inputs.events["right"]))
    assert answer.rows.total() > 40
    assert met - answer.rows.total() > 40
    for side in expectations.SIDES:
        per_case = Counter(source.tables[side].column("case").to_pylist())
        assert len(per_case) < 200, "a case without rows"
        assert 1 in per_case.values()
        assert max(multiset.rows(source.tables[side]).values()) > 1
        assert any(event.key is None for event in inputs.events[side])
        assert len({event.t_max for event in inputs.events[side]}) < len(inputs.events[side])


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("ties", 50), ("wide", 3), ("narrow", 25), ("point and interval", 5),
        ("ties of histograms", 20), ("narrow ties of histograms", 10),
    ],
)  # fmt: skip
def test_sheets_have_probabilities_of_exactly_the_confidence(name: str, least: int) -> None:
    condition, (inputs, _) = case_tables.dataset(name).query.condition, expectations.of_dataset(name)
    ties = sum(
        oracle.probability(left.time, right.time, condition.lo_us, condition.hi_us).nearest == condition.confidence
        for left, right in oracle.candidates(inputs.events["left"], inputs.events["right"])
    )
    assert ties >= least


def test_the_sheets_have_points_narrow_windows_and_all_keys() -> None:
    events = expectations.of_dataset("ties")[0].events["left"]
    assert any(event.t_min == event.t_max for event in events)
    narrow = case_tables.dataset("narrow").query
    assert isinstance(narrow.left_time, Interval)
    assert narrow.condition.hi_us - narrow.condition.lo_us < (narrow.left_time.max_uncertainty_us or 0)
    floats = {repr(k) for k in case_tables.dataset("certain").tables["left"].column("k").to_pylist()}
    assert floats == {"nan", "0.0", "-0.0", "1.5", "None"}
    types = [case_tables.dataset("ties").tables[side].schema.field("k").type for side in expectations.SIDES]
    assert types == [pa.int64(), pa.int32()]
    assert len(case_tables.dataset("wide").query.key_columns) == 3


def _left_open(name: str) -> int:
    events = expectations.of_dataset(name)[0].events
    return operation_counts.left_open(events["left"], events["right"], case_tables.dataset(name).query.condition)


def _cut(name: str) -> int:
    """Pairs that a comparison of supports cannot decide: probability neither 0 nor 1."""
    condition, events = case_tables.dataset(name).query.condition, expectations.of_dataset(name)[0].events
    return sum(
        0 < oracle.probability(left.time, right.time, condition.lo_us, condition.hi_us).exact < 1
        for left, right in oracle.candidates(events["left"], events["right"])
    )


@pytest.mark.parametrize("name", [*case_tables.HISTOGRAMS, "few lengths"])
def test_sheets_of_few_shapes_leave_nothing_open_but_ties_and_narrow_windows(name: str) -> None:
    """Without pairs near the bounds the law that nothing is probed would hold trivially."""
    assert _cut(name) > 300
    if name == "ties of histograms":
        assert 20 < _left_open(name) < 60
    elif name.startswith("narrow"):
        assert _left_open(name) > 300
    else:
        assert _left_open(name) == 0


def test_the_template_sets_have_every_kind_of_template() -> None:
    """Holes, zero ends, single buckets, text and float probabilities, offsets across 0, names that are numbers."""
    given = {name: dict(given.definitions) for name, given in vars(templates).items() if isinstance(given, TemplateSet)}
    buckets = [template for definitions in given.values() for template in definitions.values()]
    zero = [[float(Fraction(p)) == 0 for *_, p in template] for template in buckets]
    assert any(any(row[1:-1]) for row in zero)
    assert any(row[0] and row[-1] for row in zero)
    assert any(len(template) == 1 for template in buckets)
    assert {type(p) for template in buckets for *_, p in template} == {str, float}
    assert any(template[0][0] < 0 < template[-1][1] for template in buckets)
    assert len({oracle.shape_of(template) for _, template in templates.MANY.spec(1).templates}) >= 30
    names = {given.column for given in vars(templates).values() if isinstance(given, TemplateSet)}
    assert names == {pa.string(), pa.large_string(), pa.int32(), None}


def test_faulty_histograms_have_unknown_and_null_templates() -> None:
    for side in expectations.SIDES:
        source = case_tables.dataset("malformed histograms")
        kinds = source.tables[side].column("kind").to_pylist()
        known = {name for name, _ in source.specs[side].templates}
        assert None in kinds
        assert any(kind is not None and str(kind) not in known for kind in kinds)
        assert {str(kind) for kind in kinds} > known


@pytest.mark.parametrize("name", DATASETS)
def test_streams_have_rows_out_of_order_but_none_late_and_all_rows(name: str) -> None:
    source, files = case_tables.dataset(name), case_tables.stream(name)
    disorder = 0
    for place, side in enumerate(expectations.SIDES):
        whole = pa.concat_tables(files[side])
        multiset.assert_same(multiset.rows(whole), multiset.rows(source.tables[side]), "rows of the stream")
        events, _ = oracle.read(whole, source.specs[side])
        greatest = events[0].t_max
        for event in events:
            assert event.t_max >= greatest - source.query.lateness_us[place]
            disorder += event.t_max < greatest
            greatest = max(greatest, event.t_max)
    assert disorder > 5 or name.startswith("realistic"), "in it cases lie years apart"


def test_the_readings_make_runs_of_every_kind() -> None:
    found = answer(coalescing_case_tables.QUERIES["all"], coalescing_case_tables.readings())
    runs = list(found.rows.elements())
    assert sum(run[-1] > 2 for run in runs) > 100
    assert sum(run[-1] == 1 for run in runs) > 50
    assert {repr(run[1]) for run in runs} == {"None", "nan", "1.0", "2.5"}
    assert set(Counter(row[0] for row in found.rejects.elements())) == {"WA-1003", "WA-1021", "WA-1022"}
    assert found.replayed > 50
    times = coalescing_case_tables.stream()["events"][0].column("t").drop_null().to_pylist()
    assert 0 < len(times) < coalescing_case_tables.readings().num_rows
    assert times != sorted(times)


def test_inputs_are_the_same_in_every_process() -> None:
    """A dataset depends on its name alone; the digest changes only with the generators."""
    rows = multiset.rows(case_tables.finite("ties")["left"][0], ["case", "k", "t_min", "t_max"])
    assert rows == multiset.rows(
        case_tables._tables("ties", case_tables.PROFILES["ties"])["left"], ["case", "k", "t_min", "t_max"]
    )
    assert case_tables.rng("a", 1).integers(0, 10**6) == case_tables.rng("a", 1).integers(0, 10**6)
    assert case_tables.rng("a", 1).integers(0, 10**6) != case_tables.rng("a", 2).integers(0, 10**6)


@pytest.mark.full
@pytest.mark.parametrize(
    "wanted",
    [
        lambda e: e.query.on == ("k",) and any(v != v for v in e.tables["left"].column("k").to_pylist()),
        lambda e: e.query.condition.hi_us == e.query.condition.lo_us,
        lambda e: any(pair.p.nearest == e.query.condition.confidence < 1 for pair in _matches(e)),
        lambda e: e.query.strategy == "lazy_lookup" and len(_matches(e)) > 2,
        lambda e: max(multiset.rows(e.tables["right"]).values(), default=0) > 1,
        lambda e: all(_templates(e)) and any(p.p.nearest == e.query.condition.confidence < 1 for p in _matches(e)),
        lambda e: any(_templates(e)) and not all(_templates(e)) and len(_matches(e)) > 2,
    ],
    ids=[
        "NaN keys", "a window of one instant", "a tie below certainty", "lazy_lookup with pairs", "rows that repeat",
        "a tie of histograms", "a histogram on one side",
    ],
)  # fmt: skip
def test_hypothesis_draws(wanted: Callable[[generators.Example], bool]) -> None:
    how = settings(max_examples=4000, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
    find(generators.joins(), lambda example: bool(wanted(example)), settings=how)


def _templates(example: generators.Example) -> tuple[int, int]:
    return len(example.query.left_time.templates), len(example.query.right_time.templates)


def _matches(example: generators.Example) -> list[oracle.Pair]:
    events = expectations.read(example.query, example.tables).events
    return oracle.pairs(events["left"], events["right"], example.query.condition)
