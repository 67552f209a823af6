"""`why_not` of as-of joins: its answer agrees with the join, and names what prevails instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import whenabouts as wa
from whenabouts.core.errors import Code

QUOTES = pa.table({"k": ["a", "a", "a", "b", None], "t": [10, 20, 20, 15, 16], "v": [1, 2, 3, 4, 5]})
POINT = wa.Point("t")


def _query(**options: Any) -> wa.AsofJoin:
    return wa.AsofJoin(**({"left_time": POINT, "right_time": POINT, "on": "k"} | options))


@pytest.mark.parametrize(
    ("row", "options", "reason", "said"),
    [
        (2, {}, "match", "match: it prevails with probability 1 >= 1 (none with 0)"),
        (1, {}, "cannot prevail", "another row surely does before it (right row 2 with 1, none with 0)"),
        (0, {}, "cannot prevail", "right row 2 with 1"),
        (3, {}, "key", "key: left has k='a', right has k='b'"),
        (4, {}, "key", "'k' of the right row is null"),
        (2, {"tolerance": 4}, "outside tolerance", "farther from the left one than 4 us"),
        (2, {"direction": "forward"}, "outside window", "the right row lies before the left one"),
        ({"v": 3}, {}, "match", "prevails"),
        ({"v": 2, "k": "a"}, {"order_by": "v"}, "cannot prevail", "right row 2"),
    ],
)
def test_exact_times(row: Any, options: dict[str, Any], reason: str, said: str) -> None:
    answer = wa.why_not({"k": "a", "t": 25}, row, query=_query(**options), right=QUOTES)
    assert (answer.reason, said in str(answer), bool(answer)) == (reason, True, reason == "match"), str(answer)


def test_an_excluded_exact_match() -> None:
    answer = wa.why_not({"k": "a", "t": 10}, 0, query=_query(allow_exact_matches=False), right=QUOTES)
    assert answer.reason is wa.Reason.EXACT_MATCH


def test_a_row_behind_the_watermark_is_late() -> None:
    query = _query(lateness={"left": 0, "right": 0})
    answer = wa.why_not({"k": "a", "t": 25}, 2, query=query, right=QUOTES, right_watermark_us=21)
    assert answer.code is Code.LATE
    assert str(answer).endswith("in time it would have prevailed with 1")


def test_too_many_candidates() -> None:
    right = pa.table({"k": ["a"] * 5, "t": range(5), "u": range(10, 15)})
    query = _query(right_time=wa.Interval("t", "u"), confidence=0.1, max_candidates=3)
    answer = wa.why_not({"k": "a", "t": 9}, 1, query=query, right=right)
    assert answer.code is Code.TOO_MANY_CANDIDATES


@pytest.mark.parametrize("keep", ["best", "all"])
@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_it_agrees_with_the_join(direction: str, keep: str) -> None:
    """Each pair of small tables of intervals: a match if and only if it is in the result, with the same probability."""
    random = np.random.default_rng(len(direction + keep))
    tables = []
    for side in ("l", "r"):
        first = random.integers(0, 30, 9)
        last = first + random.integers(0, 8, 9) * random.integers(0, 2, 9)
        tables.append(pa.table({"k": random.integers(0, 2, 9), "a": first, "b": last, side: range(9)}))
    time = wa.Interval("a", "b")
    query = _query(left_time=time, right_time=time, confidence=0.3, keep=keep, direction=direction, tolerance=9)
    joined = wa.run(query, tables)
    found = {(row["l"], row["r"]): row["probability"] for row in joined.to_pylist() if row["r"] is not None}
    assert found
    for left in range(9):
        for right in range(9):
            answer = wa.why_not(tables[0].slice(left, 1), right, query=query, right=tables[1])
            assert bool(answer) == ((left, right) in found), str(answer)
            if answer:
                assert answer.probability == found[left, right]
            elif answer.reason is wa.Reason.PROBABILITY:
                assert answer.probability is not None
                assert answer.probability < 0.3


@pytest.mark.parametrize(
    ("row", "right", "code"),
    [
        (9, QUOTES, Code.NOT_AN_INPUT),
        (-1, QUOTES, Code.NOT_AN_INPUT),
        ({"v": 9}, QUOTES, Code.NOT_AN_INPUT),
        ({"w": 9}, QUOTES, Code.MISSING_COLUMN),
        (0, None, Code.BAD_OPTION),
        ("0", QUOTES, Code.NOT_AN_INPUT),
    ],
)
def test_bad_input(row: Any, right: Any, code: Code) -> None:
    with pytest.raises(wa.WhenaboutsError) as raised:
        wa.why_not({"k": "a", "t": 25}, row, query=_query(), right=right)
    assert raised.value.code is code


def test_a_malformed_row() -> None:
    right = pa.table({"k": ["a", "a"], "t": pa.array([None, 5], pa.int64())})
    assert wa.why_not({"k": "a", "t": 25}, 0, query=_query(), right=right).code is Code.NULL_TIME
    assert wa.why_not({"k": "a", "t": 25}, 1, query=_query(), right=right)
