"""Temporal predicates and functions, on all pairs of small periods and against sets of instants."""

import itertools

import pyarrow as pa
import pytest

from whenabouts.core.temporal_queries import periods
from whenabouts.core.temporal_queries.periods import ALLEN, Period

ENDS = [(s, e) for s in range(5) for e in range(s, 6)]
PAIRS = list(itertools.product(ENDS, repeat=2))
A, B = (Period(*(pa.array(ends) for ends in zip(*side, strict=True))) for side in zip(*PAIRS, strict=True))
INSTANTS = [(set(range(*a)), set(range(*b))) for a, b in PAIRS]


def test_exactly_one_of_the_thirteen_holds() -> None:
    found = [relation(A, B).to_pylist() for relation in ALLEN.values()]
    assert len(found) == 13
    assert {sum(holds) for holds in zip(*found, strict=True)} == {1}
    assert all(any(holds) for holds in found)


@pytest.mark.parametrize("place", range(13))
def test_the_inverse_of_the_kth_is_the_kth_from_the_end(place: int) -> None:
    relations = list(ALLEN.values())
    assert relations[place](A, B) == relations[12 - place](B, A)


def test_allen_on_periods_with_a_duration() -> None:
    """Allen's definitions, for intervals whose ends differ."""
    definitions = {
        "before": lambda a, b: a[1] < b[0],
        "meets": lambda a, b: a[1] == b[0],
        "partly_before": lambda a, b: a[0] < b[0] < a[1] < b[1],
        "starts": lambda a, b: a[0] == b[0] and a[1] < b[1],
        "during": lambda a, b: b[0] < a[0] and a[1] < b[1],
        "finishes": lambda a, b: a[1] == b[1] and a[0] > b[0],
        "equals": lambda a, b: a == b,
    }
    for name, definition in definitions.items():
        for (a, b), holds in zip(PAIRS, ALLEN[name](A, B).to_pylist(), strict=True):
            if a[0] < a[1] and b[0] < b[1]:
                assert holds == definition(a, b), (name, a, b)


def test_overlaps_contains_intersect_and_union_are_those_of_sets_of_instants() -> None:
    overlap, contain = periods.overlaps(A, B).to_pylist(), periods.contains(A, B).to_pylist()
    both = list(zip(*(ends.to_pylist() for ends in periods.intersect(A, B)), strict=True))
    either = list(zip(*(ends.to_pylist() for ends in periods.union(A, B)), strict=True))
    for place, ((a, b), (pair_a, pair_b)) in enumerate(zip(INSTANTS, PAIRS, strict=True)):
        assert overlap[place] == bool(a & b)
        assert (set(range(*both[place])) if both[place][0] is not None else set()) == a & b
        if a and b:
            assert contain[place] == (b <= a)
            whole = a | b
            solid = whole == set(range(min(whole), max(whole) + 1))
            assert (either[place][0] is not None) == solid
            assert not solid or set(range(*either[place])) == whole
        assert periods.contains(A, A).to_pylist()[place]
        assert pair_a != pair_b or contain[place]


def test_functions_of_timestamps_and_of_nulls() -> None:
    time = pa.timestamp("us", "UTC")
    table = pa.table({"valid_from": pa.array([0, None], time), "valid_to": pa.array([5, 7], time)})
    period = periods.valid(table)
    assert periods.duration(period).to_pylist()[0].microseconds == 5
    assert periods.begin(period) is period.start
    assert periods.end(period) is period.end
    assert all(relation(period, period).to_pylist()[1] is None for relation in periods.PREDICATES.values())
