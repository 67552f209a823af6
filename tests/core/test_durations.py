"""Durations: every spelling to exact microseconds, everything else to a coded error."""

from datetime import timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.core.durations import MAX_DURATION_US, parse_duration, parse_non_negative
from whenabouts.core.errors import Code, QueryError


@pytest.mark.parametrize(
    ("value", "microseconds"),
    [
        (np.int64(5), 5), (np.uint8(3), 3), (np.timedelta64(1, "s"), 1_000_000),
        (np.timedelta64(2, "D"), 172_800_000_000),
        (np.timedelta64(3000, "ns"), 3), (np.timedelta64(3, "25s"), 75_000_000), (np.timedelta64(1, "m"), 60_000_000),
    ],
)  # fmt: skip
def test_numbers_and_durations_of_numpy(value: Any, microseconds: int) -> None:
    found = parse_duration(value)
    assert found == microseconds
    assert type(found) is int


@pytest.mark.parametrize(
    "value", [np.timedelta64("NaT"), np.timedelta64(1, "M"), np.timedelta64(7), np.timedelta64(1, "ns"), np.bool_(True)]
)
def test_durations_of_numpy_that_are_none(value: Any) -> None:
    with pytest.raises(QueryError, match="WA-2002: duration cannot be read"):
        parse_duration(value)


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("500ms", 500_000),
        ("2s", 2_000_000),
        ("2 s", 2_000_000),
        ("1h30m", 5_400_000_000),
        ("1h 30min", 5_400_000_000),
        ("0.5 s", 500_000),
        (".5s", 500_000),
        ("0.1s", 100_000),
        ("7us", 7),
        ("7 µs", 7),
        ("3000ns", 3),
        ("1 week 2 days", 777_600_000_000),
        ("-5s", -5_000_000),
        ("+5s", 5_000_000),
        ("PT1.5S", 1_500_000),
        ("P1DT2H3M4S", 93_784_000_000),
        ("P1W", 604_800_000_000),
        ("-PT1M", -60_000_000),
        ("0s", 0),
    ],
)
def test_spellings(text: str, microseconds: int) -> None:
    assert parse_duration(text) == microseconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "5",
        "s",
        "5 parsecs",
        "1.2.3s",
        "5s!",
        "P",
        "PT",
        "P1Y",
        "P1M",
        "1ns",
        "nan s",
        "--5s",
        1.5,
        float("nan"),
        None,
        True,
    ],
)
def test_unreadable(value: object) -> None:
    with pytest.raises(QueryError) as caught:
        parse_duration(value)  # type: ignore[arg-type]
    assert caught.value.code == Code.BAD_DURATION
    assert repr(value) in str(caught.value)


def test_too_long() -> None:
    assert parse_duration(MAX_DURATION_US) == MAX_DURATION_US
    with pytest.raises(QueryError, match="WA-2002"):
        parse_duration(MAX_DURATION_US + 1)


def test_negative_refused_with_its_name() -> None:
    with pytest.raises(QueryError, match="WA-2003: lateness is negative"):
        parse_non_negative("-1s", name="lateness")


@given(st.timedeltas(min_value=timedelta(days=-10_000), max_value=timedelta(days=10_000)))
def test_timedelta_is_exact(value: timedelta) -> None:
    assert parse_duration(value) == value / timedelta(microseconds=1)


@given(st.integers(0, 10**6), st.integers(0, 999_999))
def test_decimal_seconds_are_exact(seconds: int, micros: int) -> None:
    assert parse_duration(f"{seconds}.{micros:06}s") == int(Fraction(f"{seconds}.{micros:06}") * 1_000_000)


# pandas 2.3 itself does what numpy 2.5 warns of.
@pytest.mark.filterwarnings("ignore:The 'generic' unit:DeprecationWarning")
def test_nanoseconds_of_pandas_are_not_lost() -> None:
    pd = pytest.importorskip("pandas")
    assert parse_duration(pd.Timedelta("3000ns")) == 3
    assert parse_duration(pd.Timedelta("-2s")) == -2_000_000
    with pytest.raises(QueryError, match="WA-2002"):
        parse_duration(pd.Timedelta("1500ns"))
