"""The answer to "why is this pair in the result, or not?" agrees with the join, for any rows, in batch and on
streams."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from whenabouts.conformance import generators, oracle
from whenabouts.conformance.case_tables import SECOND
from whenabouts.conformance.generators import Example
from whenabouts.core import (
    Histogram,
    InputError,
    Interval,
    Point,
    QueryError,
    Reason,
    between,
    deadline,
    delay,
    why_not,
    within,
)
from whenabouts.core.local import run_stream, watermarks
from whenabouts.core.timing_join.query import TimingJoin

SPECS: dict[str, Any] = {"left_time": Interval("a", "b", max_uncertainty="10us"), "right_time": Point("t")}


def query(confidence: float = 0.6, **changes: Any) -> TimingJoin:
    return TimingJoin(**({**SPECS, "condition": within("5us", confidence=confidence), "on": "k"} | changes))


def left(a: object = 0, b: object = 10, k: object = 1) -> dict[str, object]:
    return {"a": a, "b": b, "k": k}


def right(t: object = 5, k: object = 1) -> dict[str, object]:
    return {"t": t, "k": k}


def brute_force(example: Example, i: int, j: int) -> tuple[bool, float]:
    """Whether the oracle finds the pair of row i and row j, and the probability of the times alone."""
    rows = {"left": example.tables["left"].slice(i, 1), "right": example.tables["right"].slice(j, 1)}
    specs = {"left": example.query.left_time, "right": example.query.right_time}
    events = [oracle.read(rows[side], specs[side], example.query.key_columns)[0] for side in ("left", "right")]
    condition = example.query.condition
    p = oracle.probability(events[0][0].time, events[1][0].time, condition.lo_us, condition.hi_us)
    return bool(oracle.pairs(*events, condition)), p.nearest


@given(example=generators.joins(), as_dicts=st.booleans())
@generators.examples(0.15)
def test_it_says_match_for_exactly_the_pairs_of_brute_force(example: Example, as_dicts: bool) -> None:
    tables = example.tables
    for i in range(tables["left"].num_rows):
        for j in range(tables["right"].num_rows):
            rows: list[Any] = [tables["left"].slice(i, 1), tables["right"].slice(j, 1)]
            if as_dicts:
                rows = [row.to_pylist()[0] for row in rows]
            answer = why_not(rows[0], rows[1], query=example.query)
            matches, p = brute_force(example, i, j)
            event(str(answer.reason))
            assert (answer.reason is Reason.MATCH, bool(answer), answer.matched) == (matches,) * 3
            assert answer.probability == pytest.approx(p, rel=2**-48, abs=0)
            assert answer.sentence.startswith(str(answer.reason))


@given(st.data(), generators.joins(units=(SECOND,), finite=False))
@generators.examples(0.2)
def test_on_a_stream_it_says_match_for_exactly_the_pairs_that_came_out(data: st.DataObject, example: Example) -> None:
    """Late rows included: the files are out of order by the lateness drawn, and the query allows none."""
    files = data.draw(generators.arrivals(example))
    strict = TimingJoin(
        left_time=example.query.left_time,
        right_time=example.query.right_time,
        condition=example.query.condition,
        on=example.query.on,
        strategy=example.query.strategy,
        block_size=example.query.block_size,
    )
    numbered = [[_numbered(table, number) for number, table in enumerate(files[side])] for side in ("left", "right")]
    outcome = run_stream(strict, numbered)
    pairs = {(row["id_left"], row["id_right"]) for row in outcome.output.to_pylist()}
    late = {(row["input"], row["id"]) for row in outcome.rejects.to_pylist()}
    in_force = watermarks(strict, numbered)
    lefts, rights = ([(n, row) for n, table in enumerate(side) for row in _rows(table)] for side in numbered)
    for step, row in lefts:
        for other_step, other in rights:
            answer = why_not(
                row,
                other,
                query=strict,
                left_watermark_us=in_force[step],
                right_watermark_us=in_force[other_step],
            )
            ids = row["id"][0].as_py(), other["id"][0].as_py()
            event(str(answer.reason))
            assert answer.matched == (ids in pairs), (ids, str(answer))
            was_late = bool({("left", ids[0]), ("right", ids[1])} & late)
            assert (answer.reason is Reason.LATE) == was_late


def _numbered(table: pa.Table, number: int) -> pa.Table:
    ids = [f"{number}.{row}" for row in range(table.num_rows)]
    return table.append_column("id", pa.array(ids, pa.string()))


def _rows(table: pa.Table) -> list[pa.Table]:
    return [table.slice(row, 1) for row in range(table.num_rows)]


def test_what_decides_comes_first() -> None:
    """Malformed before key, key before times: each row of the table has one fault more."""
    for row, other, reason in (
        (left(), right(), Reason.MATCH),
        (left(), right(11), Reason.PROBABILITY),
        (left(), right(16), Reason.OUTSIDE_WINDOW),
        (left(), right(16, k=2), Reason.KEY),
        (left(b=None), right(16, k=2), Reason.MALFORMED),
    ):
        assert why_not(row, other, query=query()).reason is reason


def test_a_malformed_row_has_the_code_of_its_reject() -> None:
    for row, other, code, told in (
        (left(b=None), right(), "WA-1003", "malformed: the left row is rejected with WA-1003, a time is null"),
        (left(), right(None), "WA-1003", "malformed: the right row"),
        (left(10, 0), right(), "WA-1004", "t_min is after t_max"),
        (left(0, 11), right(), "WA-1005", "longer than the declared max_uncertainty"),
        (left(0, 2**62), right(), "WA-1007", "outside the years"),
    ):
        answer = why_not(row, other, query=query())
        assert (answer.code, answer.reason, answer.probability) == (code, Reason.MALFORMED, None)
        assert told in answer.sentence
        assert not answer


@pytest.mark.parametrize(
    ("of_left", "of_right", "told"),
    [
        (1, 2, "left has k=1, right has k=2"),
        ("a", "b", "left has k='a', right has k='b'"),
        (None, 1, "'k' of the left row is null, which equals nothing"),
        ("a", None, "'k' of the right row is null"),
        (None, None, "'k' of the left row is null"),
    ],
)
def test_keys_keep_rows_apart(of_left: object, of_right: object, told: str) -> None:
    answer = why_not(left(k=of_left), right(k=of_right), query=query())
    assert answer.reason is Reason.KEY
    assert told in answer.sentence
    assert answer.probability == 1.0, "the times alone would have matched"


def test_keys_equal_as_in_the_join() -> None:
    assert why_not(left(k=float("nan")), right(k=float("nan")), query=query())
    assert why_not(left(k=0.0), right(k=-0.0), query=query())
    with pytest.raises(QueryError, match="WA-2008"):
        why_not(left(k=1), right(k="1"), query=query())
    assert why_not(left(k=1), right(k=2), query=query(on=None))


def test_sentences_say_what_was_found_and_what_was_asked() -> None:
    assert str(why_not(left(), right(16), query=query())) == (
        "outside window: right minus left lies between 6 us and 16 us, the condition asks for -5 us to 5 us"
    )
    points = query(left_time=Point("a"), condition=deadline("1s", confidence=1))
    assert str(why_not(left(), right(2_500_000), query=points)) == (
        "outside window: right minus left is 2.5 s, the condition asks for at most 1 s"
    )
    assert str(why_not(left(), right(), query=query(condition=between(-5, 5, confidence=0.5)))).startswith(
        "match: probability 1 >= 0.5: "
    )


def test_numbers_that_differ_do_not_look_equal() -> None:
    just_over = float(np.nextafter(0.4, 1))
    told = str(why_not(left(), right(11), query=query(just_over)))
    assert told.startswith(f"probability 0.4 < {just_over!r}: ")
    wide = query(1.0, left_time=Interval("a", "b"), condition=within("1d", confidence=1))
    told = str(why_not(left(0, 2 * 86_400_000_000), right(86_400_000_001), query=wide))
    assert told.startswith("probability 0.99999999999")
    assert "< 1.0: " in told


def test_a_late_row_is_told_with_what_it_would_have_been() -> None:
    answer = why_not(left(), right(5), query=query(), left_watermark_us=0, right_watermark_us=2_000_005)
    assert (answer.reason, answer.code, answer.probability) == (Reason.LATE, "WA-1010", 1.0)
    assert str(answer) == (
        "late: the right row's t_max 5 us was 2 s behind the watermark when it came (WA-1010); "
        "in time it would have met the condition (probability 1)"
    )
    on_time = why_not(left(), right(5), query=query(), left_watermark_us=0, right_watermark_us=5)
    assert on_time.matched, "the watermark is exclusive"


def test_an_evicted_row_is_told_with_the_watermark_that_dropped_it() -> None:
    r"""Left [0, 10], within 5, confidence 0.6, right points: a right row at 9 still reaches 0.6 (x in [4, 10]).

        left  |----------|            P of a right row at  9: (10 - 4) / 10 = 0.6
              0         10                             at 10: (10 - 5) / 10 = 0.5

    So the row can go at watermark 10 and not at 9, since the declared lengths leave no doubt about this one's.
    """
    strict = query(left_time=Interval("a", "b", max_uncertainty="10us", min_uncertainty="10us"))
    at = {w: why_not(left(), right(w), query=strict, left_watermark_us=0, right_watermark_us=w) for w in (9, 10, 11)}
    assert at[9].reason is Reason.MATCH
    assert (at[10].reason, at[10].probability) == (Reason.EVICTED, 0.5)
    assert str(at[11]) == (
        "evicted: no right row from watermark 10 us on could match the left row, and the right row came later "
        "(probability 0.4)"
    )
    same_step = why_not(left(), right(12), query=strict, left_watermark_us=9, right_watermark_us=9)
    assert same_step.reason is Reason.PROBABILITY
    swapped = why_not(left(20, 30), right(10), query=strict, left_watermark_us=30, right_watermark_us=0)
    assert swapped.reason is Reason.EVICTED
    assert "no left row from watermark" in str(swapped)


def test_instants_are_told_as_the_rows_have_them() -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    microsecond = timedelta(microseconds=1)
    base = (start - datetime(1970, 1, 1, tzinfo=UTC)) // microsecond
    row = left(start, start + 10 * microsecond)
    answer = why_not(
        row, right(start + 16 * microsecond), query=query(), left_watermark_us=base, right_watermark_us=base + 16
    )
    assert "from watermark 2024-01-01T00:00:00.000016+00:00 on" in str(answer)
    assert why_not(row, right(start + 5 * microsecond), query=query()).matched


def test_a_stream_refuses_the_queries_that_streams_refuse() -> None:
    endless = query(condition=deadline("1s", confidence=1))
    assert why_not(left(), right(), query=endless)
    with pytest.raises(QueryError, match="WA-2004"):
        why_not(left(), right(), query=endless, right_watermark_us=0)


def test_rows_may_be_arrow_and_hold_more_than_is_asked() -> None:
    table = pa.table({"x": ["?", "!"], "a": [7, 0], "b": [8, 10], "k": [1, 1]})
    assert why_not(table.slice(1), right(), query=query()).probability == 1.0
    assert why_not(table.slice(1).to_batches()[0], right(), query=query()).matched
    assert why_not(left() | {"x": object()}, right(), query=query()).matched
    for rows in (table, table.slice(0, 0)):
        with pytest.raises(ValueError, match="a dataframe of one row"):
            why_not(rows, right(), query=query())


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"a": 0, "k": 1}, "WA-1001"),
        ({"a": 0, "b": 10}, "WA-1001"),
        ({}, "WA-1001"),
        (left(b="10"), "WA-1002"),
        (left(b=10.0), "WA-1002"),
        (left(b=2**70), "WA-1002"),
        (left(k=object()), "WA-1002"),
    ],
)
def test_columns_that_no_row_can_mend_are_errors(row: Mapping[str, object], code: str) -> None:
    with pytest.raises(InputError, match=code):
        why_not(row, right(), query=query())


PHI1 = [(0, 20, "0.1"), (20, 30, "0.3"), (30, 40, "0.6")]
PHI2 = [(0, 10, "0.15"), (10, 20, "0.3"), (20, 30, "0.4"), (30, 40, "0.15")]


def test_templates_are_looked_up_as_in_the_join() -> None:
    """PTJoin, Examples 3 and 4: phi2 at 110 and phi1 at 210; the paper rounds 0.76875."""
    spec = Histogram("t", template="kind", templates={"1": PHI1, "2": PHI2})
    for d, p in ((90, 0.925), (100, 0.76875)):
        asked = TimingJoin(left_time=spec, right_time=spec, condition=delay(d, confidence=0.8))
        answer = why_not({"t": 110, "kind": 2}, {"t": 210, "kind": "1"}, query=asked)
        assert answer.probability == pytest.approx(p, abs=1e-15)
        assert answer.matched == (p >= 0.8)
    for kind in ("3", 3, None):
        unknown = why_not({"t": 110, "kind": kind}, {"t": 210, "kind": "1"}, query=asked)
        assert (unknown.reason, unknown.code) == (Reason.MALFORMED, "WA-1013")


SHAPES = {"early": [(-4, -2, 1), (-2, 0, 0)], "gap": [(-4, -3, "0.5"), (-3, -1, 0), (-1, 0, "0.5")]}


def _possible(side: Interval | Histogram, row: Mapping[str, Any], at: str, end: str) -> set[int]:
    """All whole microseconds at which it can have happened; intervals that touch share one of them."""
    if isinstance(side, Interval):
        return set(range(row[at], row[end] + 1))
    buckets = SHAPES[row["kind"]]
    return {row[end] + us for lo, hi, p in buckets if float(p) for us in range(lo, hi + 1)}


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(-4, 4), min_size=2, max_size=2),
    st.lists(st.integers(-4, 4), min_size=2, max_size=2),
    st.lists(st.integers(-4, 4), min_size=2, max_size=2).map(sorted),
    st.sampled_from([0.01, 0.5, 1.0]),
    st.tuples(*[st.sampled_from(["interval", *SHAPES])] * 2),
)
@example([0, 4], [0, 4], [0, 0], 0.5, ("interval", "interval"))
@example([0, 0], [1, 4], [-1, 1], 0.5, ("interval", "interval"))
@example([0, 0], [2, 2], [0, 0], 0.5, ("interval", "gap"))
def test_the_reason_is_that_of_brute_force(
    of_left: list[int], of_right: list[int], window: list[int], confidence: float, kinds: tuple[str, str]
) -> None:
    """Zero widths included: of the window, of the times, and of their intersection."""
    rows = [
        {"a": of_left[0], "b": of_left[1], "kind": kinds[0]},
        {"c": of_right[0], "d": of_right[1], "kind": kinds[1]},
    ]
    specs: list[Any] = [
        Interval(*names) if kind == "interval" else Histogram(names[1], template="kind", templates=SHAPES)
        for names, kind in zip(("ab", "cd"), kinds, strict=True)
    ]
    asked = TimingJoin(
        left_time=specs[0], right_time=specs[1], condition=between(*window, confidence=confidence), on=None
    )
    answer = why_not(rows[0], rows[1], query=asked)
    event(str(answer.reason))
    if any(kind == "interval" and lo > hi for kind, (lo, hi) in zip(kinds, (of_left, of_right), strict=True)):
        assert answer.reason is Reason.MALFORMED
        return
    tables = [pa.table({name: [value] for name, value in row.items()}) for row in rows]
    times = [oracle.read(table, spec, ())[0][0].time for table, spec in zip(tables, specs, strict=True)]
    p = oracle.probability(*times, *window).nearest
    possible = [_possible(specs[0], rows[0], "a", "b"), _possible(specs[1], rows[1], "c", "d")]
    can = any(window[0] <= y - x <= window[1] for x in possible[0] for y in possible[1])
    expected = Reason.MATCH if p >= confidence else Reason.PROBABILITY if can else Reason.OUTSIDE_WINDOW
    assert answer.reason is expected, str(answer)


def test_a_condition_that_single_instants_satisfy_has_probability_0_and_can_hold() -> None:
    assert str(why_not(left(), right(3), query=query(condition=within(0, confidence=0.5)))) == (
        "probability 0 < 0.5: right minus left lies between -7 us and 3 us, the condition asks for 0 us to 0 us, "
        "which only single instants satisfy"
    )


@pytest.mark.parametrize(
    ("where", "of_left", "of_right", "matches"),
    [
        ("left.v <= right.v", None, None, False),
        ("LOWER(left.v) = right.v", None, "a", False),
        ("left.v + 1 > right.v", 1, None, False),
        ("left.v IS NOT DISTINCT FROM right.v", None, None, True),
        ("COALESCE(left.v, right.v) = 'a'", None, "a", True),
    ],
)
def test_none_in_a_dict_is_null_to_where(where: str, of_left: object, of_right: object, matches: bool) -> None:
    pytest.importorskip("sqlglot")
    asked = TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within(5, confidence=1), where=where)
    answer = why_not({"t": 0, "v": of_left}, {"t": 3, "v": of_right}, query=asked)
    assert (bool(answer), answer.reason) == (matches, Reason.MATCH if matches else Reason.WHERE)


def test_of_a_row_without_its_time_the_columns_are_told() -> None:
    query = TimingJoin(left_time=Point("t"), right_time=Point("seen"), condition=within("1 s", confidence=1))
    for row in ({"see": 5, "k": 1}, pa.table({"see": [5], "k": [1]})):
        with pytest.raises(InputError, match=r"WA-1001: .*'seen' \(hint: it has see, k\)"):
            why_not({"t": 5}, row, query=query)
