"""`from_clock(domain_column=...)`: right rows of several clocks in public calls, and where two inputs are refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import whenabouts as wa
from whenabouts.core.errors import Code, InputError, QueryError

HOSTS = wa.from_clock("t", offset="1 s", jitter="10 ms", domain_column="host")
LEFT = pa.table({"t": [0]})
REPORTS = pa.table({"t": [200_000, 210_000, 400_000, 700_000, 900_000], "host": ["a", "a", "b", "b", "b"]})
CALL: dict[str, Any] = {"left_time": wa.Point("t"), "condition": ("0 s", "500 ms")}
ASKED = {"nobody": "p_none", "expected": "expected_count"}


def asked(reports: pa.Table, clock: Any, **more: Any) -> dict[str, Any]:
    found = wa.join_aggregate(LEFT, reports, **(CALL | {"right_time": clock, "aggregates": ASKED} | more))
    row: dict[str, Any] = found.to_pylist()[0]
    return row


def test_one_name_is_one_clock_and_many_are_many() -> None:
    one_clock = wa.from_clock("t", offset="1 s", jitter="10 ms")
    one = asked(REPORTS.set_column(1, "host", pa.array(["a"] * 5)), HOSTS)
    assert one["nobody"] == pytest.approx(asked(REPORTS, one_clock)["nobody"], rel=1e-14)
    many = asked(REPORTS.set_column(1, "host", pa.array(list("abcde"))), HOSTS)
    assert many["nobody"] == pytest.approx(0.75**5, rel=1e-14)
    two = asked(REPORTS, HOSTS)
    assert many["nobody"] < two["nobody"] < one["nobody"]
    assert one["expected"] == two["expected"] == many["expected"]


def test_names_may_be_of_any_type_and_readings_without_one_are_rejected() -> None:
    numbers = REPORTS.set_column(1, "host", pa.array([7, 7, 3, 3, 3]))
    coded = REPORTS.set_column(1, "host", REPORTS["host"].dictionary_encode())
    assert asked(numbers, HOSTS)["nobody"] == pytest.approx(asked(REPORTS, HOSTS)["nobody"], rel=1e-14)
    assert asked(coded, HOSTS) == asked(REPORTS, HOSTS)
    with pytest.warns(wa.RejectedRowsWarning, match="1 x WA-1021"):
        found = asked(REPORTS.set_column(1, "host", pa.array(["a", "a", "b", "b", None])), HOSTS)
    assert found == asked(REPORTS.slice(0, 4), HOSTS)


def test_the_column_is_read_only_where_it_matters() -> None:
    plain = REPORTS.drop_columns(["host"])
    with pytest.raises(InputError, match="the right input has no column 'host'") as raised:
        asked(plain, HOSTS)
    assert raised.value.code is Code.MISSING_COLUMN
    decided = {"condition": wa.between("0 s", "500 ms", confidence=0.2), "aggregates": {"n": "count"}}
    assert asked(plain, HOSTS, **decided)["n"] == 5
    exact = wa.from_clock("t", offset=0, jitter="10 ms", domain_column="host")
    assert asked(plain, exact)["nobody"] == asked(plain, wa.from_clock("t", offset=0, jitter="10 ms"))["nobody"]


def test_no_partner_and_no_rows() -> None:
    assert asked(REPORTS.slice(0, 0), HOSTS) == {"t": 0, "nobody": 1.0, "expected": 0.0}
    far = REPORTS.set_column(0, "t", pa.array([10**9] * 5))
    assert asked(far, HOSTS) == {"t": 0, "nobody": 1.0, "expected": 0.0}


def test_most_uncertain_and_terms_of_many_readings() -> None:
    with pytest.raises(QueryError, match="WA-2182"):
        asked(REPORTS, HOSTS, most_uncertain=4)


@pytest.mark.parametrize(
    "given", [{"domain": "a", "domain_column": "host"}, {"domain_column": ""}, {"domain_column": 3}]
)
def test_what_a_clock_refuses(given: dict[str, Any]) -> None:
    with pytest.raises(QueryError) as raised:
        wa.from_clock("t", **given)
    assert raised.value.code is Code.BAD_OPTION


def test_two_inputs_with_a_domain_column_are_refused() -> None:
    both = {"left_time": HOSTS, "right_time": HOSTS}
    condition = wa.within("1 s", confidence=0.5)
    calls = [
        lambda: wa.TimingJoin(**both, condition=condition),
        lambda: wa.JoinAggregate(**both, condition="1 s", aggregates=ASKED),
        lambda: wa.WindowJoin(times={"a": HOSTS, "b": HOSTS}, windows={("a", "b"): condition}),
        lambda: wa.AsofJoin(left_time=wa.Point("t"), right_time=HOSTS, confidence=0.5),
    ]
    for call in calls:
        with pytest.raises(QueryError) as raised:
            call()
        assert raised.value.code is Code.NOT_AVAILABLE, str(raised.value)


def test_one_input_with_a_domain_column_is_as_across_clocks() -> None:
    """A pair's own probability, and the joint one of a window join's combinations, know one reading of each input."""
    across = wa.from_clock("t", offset="1 s", jitter="10 ms")
    for left, right in ((wa.Point("t"), HOSTS), (HOSTS, wa.Point("t"))):
        condition = wa.between("-2 s", "2 s", confidence=0.1)
        plain = [across if spec is HOSTS else spec for spec in (left, right)]
        found, want = (
            wa.timing_join(LEFT, REPORTS.select(["t"]), left_time=one, right_time=other, condition=condition)
            for one, other in ((left, right), plain)
        )
        assert found.equals(want)
        assert found.num_rows == 5
