"""Times in text, without zone, or in another unit: each becomes the intended instant, or is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.core.errors import InputError, QueryError
from whenabouts.core.sources.time_parsing import ClockRules, ParsedTimes, ParsingCounts, parse_times

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NEW_YORK = ZoneInfo("America/New_York")


def settled(values: list[object] | pa.Array, *, zone: str | None = None, unit: str | None = None) -> ParsedTimes:
    return parse_times(pa.table({"t": values}), ("t",), ClockRules(zone, unit), ParsingCounts(), "f")


def micros(result: ParsedTimes) -> list[int | None]:
    return result.table["t"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()


def us(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
offsets = st.none() | st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.lists(st.tuples(moments, offsets, st.sampled_from("T t"), st.booleans()), min_size=1, max_size=8))
def test_iso_text_reads_as_python_reads_it(written: list[tuple[datetime, timezone | None, str, bool]]) -> None:
    texts, expected = [], []
    for moment, zone, separator, short in written:
        moment = moment.replace(microsecond=0, second=0) if short else moment
        text = moment.replace(tzinfo=zone).isoformat(timespec="minutes" if short else "auto").replace("T", separator)
        texts.append(text.replace("+00:00", "Z"))
        expected.append(us(moment.replace(tzinfo=zone or UTC)))
    result = settled(texts)
    assert micros(result) == expected
    assert result.unparsable.num_rows == 0


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("2024-02-29", "2024-02-29T00:00:00+00:00"),
        (" 2024-02-29 05 ", "2024-02-29T05:00:00+00:00"),
        ("2024-01-01T10:00:00.1234567Z", "2024-01-01T10:00:00.123456+00:00"),
        ("2024-01-01T10:00:00,5-0530", "2024-01-01T15:30:00.500000+00:00"),
        ("2024-01-01 10:00 +02", "2024-01-01T08:00:00+00:00"),
    ],
)
def test_the_forms_that_people_write(text: str, iso: str) -> None:
    assert micros(settled([text, "2024-01-01T00:00"]))[0] == us(datetime.fromisoformat(iso))


@pytest.mark.parametrize(
    "text",
    ["soon", "2024-13-01", "2023-02-29", "2024-01-01T24:00", "2024-01-01T10:60", "2024-01-01T10:00+24:00", "01/02/2024",
     "2024-01-01Z", "20240101T10", "12.5"],
)  # fmt: skip
def test_text_that_is_no_time_is_handed_back(text: str) -> None:
    result = settled(["2024-01-01", text, "2024-01-02"])
    assert result.unparsable.to_pylist() == [{"t": text}]
    assert result.table.num_rows == 2


@pytest.mark.parametrize("word", ["", "NaN", "NA", "null", "None", "NaT", None])
def test_words_for_nothing_are_null_not_unparsable(word: str | None) -> None:
    assert micros(settled(["2024-01-01", word])) == [1704067200000000, None]
    assert settled(["7", word]).table["t"].to_pylist() == [7, None]


def test_integers_in_text_are_integers() -> None:
    result = settled(["12", "+7", "-3", "x", "9223372036854775808"])
    assert result.table["t"].to_pylist() == [12, 7, -3]
    assert result.table.schema.field("t").type == pa.int64()
    assert result.unparsable["t"].to_pylist() == ["x", "9223372036854775808"]


def test_a_zone_makes_naive_times_instants() -> None:
    result = settled(["2013-07-01 12:00", "2013-07-01T12:00Z"], zone="America/New_York")
    assert micros(result) == [
        us(datetime(2013, 7, 1, 16, tzinfo=UTC)),
        us(datetime(2013, 7, 1, 12, tzinfo=UTC)),
    ]


@pytest.mark.parametrize("naive", ["text", "timestamp"])
def test_clock_changes_take_the_earliest_for_t_min_and_the_latest_for_t_max(naive: str) -> None:
    texts = ["2013-11-03 01:30:00", "2013-03-10 02:30:00", "2013-06-01 00:00:00"]
    column = pa.array(texts) if naive == "text" else pa.array(texts).cast(pa.timestamp("us"))
    found = ParsingCounts()
    result = parse_times(pa.table({"a": column, "b": column}), ("a", "b"), ClockRules("America/New_York"), found, "f")
    early, late = result.table["a"].to_pylist(), result.table["b"].to_pylist()
    assert early[0] == datetime(2013, 11, 3, 1, 30, tzinfo=NEW_YORK, fold=0).astimezone(UTC)
    assert late[0] == datetime(2013, 11, 3, 1, 30, tzinfo=NEW_YORK, fold=1).astimezone(UTC)
    assert late[0] - early[0] == timedelta(hours=1)
    gap = datetime(2013, 3, 10, 7, tzinfo=UTC)  # 02:00 is followed by 03:00
    assert (early[1], late[1]) == (gap - timedelta(microseconds=1), gap)
    assert early[2] == late[2]
    notes = found.notes("left", "America/New_York")
    assert len(notes) == 2
    assert notes[0].startswith("2 times in column 'a' of left are ambiguous or skipped")


def test_naive_times_without_a_zone_are_utc_and_noted() -> None:
    found = ParsingCounts()
    result = parse_times(pa.table({"t": pa.array([1, None], pa.timestamp("ms"))}), ("t",), ClockRules(), found, "f")
    assert micros(result) == [1000, None]
    assert found.notes("right", None) == [
        "1 time in column 't' of right has no zone: read as UTC (--time-zone says otherwise)"
    ]


def test_dates_are_midnight() -> None:
    assert micros(settled(pa.array([1, None], pa.date32()), zone="Asia/Tokyo")) == [15 * 3_600_000_000, None]


@pytest.mark.parametrize(("unit", "scale"), [("s", 1), ("ms", 10**3), ("ns", 10**9)])
def test_integers_of_another_unit_are_refused_until_the_unit_is_given(unit: str, scale: int) -> None:
    values = [1_700_000_000 * scale, None, 1_700_000_060 * scale]
    with pytest.raises(InputError, match=f"give --time-unit {unit} ") as caught:
        settled(values)
    assert caught.value.code == "WA-1002"
    assert micros(settled(values, unit=unit)) == [1_700_000_000_000_000, None, 1_700_000_060_000_000]
    assert settled(values, unit="us").table["t"].to_pylist() == values


@pytest.mark.parametrize(
    "values", [[0, 1000], [-5, 4_000_000_000], [1_700_000_000_000_000], [], [1_000, 1_700_000_000]]
)
def test_integers_that_may_be_microseconds_are_left_alone(values: list[int]) -> None:
    assert settled(pa.array(values, pa.int64())).table["t"].to_pylist() == values


def test_decimal_fractions_are_refused() -> None:
    with pytest.raises(InputError, match=r"decimal fractions, e\.g\. '2\.5'") as caught:
        settled(["2.5", "1.5e3", "3"])
    assert caught.value.code == "WA-1002"


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(QueryError, match="'Mars/Olympus' is not known") as caught:
        ClockRules("Mars/Olympus")
    assert caught.value.code == "WA-2006"


@pytest.mark.parametrize(
    ("type_", "far", "words"),
    [
        (pa.date32(), 2**31 - 1, "+5881580-07-11"),
        (pa.date64(), 2**63 - 1, "+292278994-08-17T07:12:55.807"),
        (pa.timestamp("us"), None, None),
    ],
)
def test_dates_outside_the_calendar_are_lost_with_their_text(type_: pa.DataType, far: int, words: str) -> None:
    numbers = pa.array([86_400_000 if type_ == pa.date64() else 1, far], pa.int32() if type_.bit_width == 32 else None)
    result = settled(numbers.view(type_))
    assert result.table.num_rows == 1 + (far is None)
    assert result.unparsable["t"].to_pylist() == ([] if far is None else [words])
    assert result.outside.tolist() == ([] if far is None else [True])
