"""Integers that are not microseconds since 1970: the likely unit of most rows is reported, with the remedy."""

from __future__ import annotations

import re
import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.core import DoubtfulTimesWarning, InputError, Interval, JsonPayload, Point, local, metrics, within
from whenabouts.core.hosting.host import BlockPacker, BucketInput, Hosting, read_counts, tagged_rows
from whenabouts.core.runtime.protocol import Step
from whenabouts.core.sources.time_parsing import ClockRules, ParsingCounts, parse_times
from whenabouts.core.times.time_units import RANGES, UnitCounts
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_extent.extent import WindowExtent
from whenabouts.core.wrappers.payload_decoding import decoded

JOIN: dict[str, Any] = {"left_time": Point("t"), "right_time": Point("t"), "condition": within(0, confidence=1)}
FINE = pa.table({"t": [1_700_000_000_000_000, 1_700_000_001_000_000]})
YEARS = [(np.datetime64(f"{year}-02-03T04:05:06") - np.datetime64(0, "s")).astype(int) for year in (1990, 2024, 2100)]
UNITS = {
    "seconds": (YEARS, "multiply them by 1,000,000"),
    "milliseconds": ([s * 1_000 for s in YEARS], "multiply them by 1,000"),
    "nanoseconds": ([s * 10**9 for s in YEARS], "divide them by 1,000"),
    "dates": ([19_900_203, 20_240_101, 21_001_231], "read them as dates first"),
}


@pytest.mark.filterwarnings("ignore::whenabouts.core.errors.RejectedRowsWarning")
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("odd", [[], [0], [-1, None], [0, -1]])
def test_most_rows_decide_and_the_mend_is_named(unit: str, odd: list[int | None]) -> None:
    """A 0 or -1 among them, which some senders write for an unknown time, does not hide the rest."""
    values, mend = UNITS[unit]
    table = pa.table({"t": pa.array([*odd, *values], pa.int64())})
    with pytest.warns(DoubtfulTimesWarning, match=re.escape(mend)) as told:
        local.timing_join(table, FINE, **JOIN)
    (text,) = (str(each.message) for each in told if each.category is DoubtfulTimesWarning)
    assert text.startswith("WA-1063: time column 't' of the left input holds integers such as ")
    assert f"{len(values)} of {len(values) + sum(each is not None for each in odd)}" in text


MIXED = [
    ([YEARS[1], 1_000 * YEARS[1] + 7], "1 of 2 look like seconds, 1 like milliseconds: "),
    ([YEARS[1]] * 20 + [1_000 * YEARS[1]] * 20, "20 of 40 look like seconds, 20 like milliseconds: "),
    ([10**6 * YEARS[1]] * 2 + [YEARS[1], 1_000 * YEARS[1], 20_240_101], "1 of 5 look like dates such as 20240131, 1 "),
]
"""Of several units, none of which most values look like; and what is said of them."""


@pytest.mark.parametrize(("values", "said"), MIXED)
def test_units_that_most_rows_look_like_together_are_named(values: list[int], said: str) -> None:
    table = pa.table({"t": values})
    with pytest.warns(DoubtfulTimesWarning, match=said + ".*write them in one unit"):
        found = local.run(TimingJoin(**JOIN), [table, FINE])
    assert found.metrics[metrics.DOUBTFUL] == sum(value < 10**15 for value in values)
    with pytest.raises(InputError, match=f"WA-1002: .* of several units: {said[:-2]}.*write them in one unit; `whenab"):
        parse_times(table, ("t",), ClockRules(), ParsingCounts(), "f")


@pytest.mark.parametrize(
    "values",
    [
        [0, 1, 2], [-1, 0], [], [1_700_000_000_000_000] * 2, [1_700_000_000, 0], [1_700_000_000, 1, 2],
        [1_700_000_000, 1_700_000_000_000, 0, 1],
        [-1_700_000_000] * 3, [631_151_999_999_999, 4_133_980_800_000_000], [19_900_100, 21_001_232],
    ],
)  # fmt: skip
def test_what_may_well_be_microseconds_is_taken_as_it_is(values: list[int]) -> None:
    table = pa.table({"t": pa.array(values, pa.int64())})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert local.run(TimingJoin(**JOIN), [table, table]).output.num_rows >= len(values)


def test_no_range_meets_another_or_the_years_in_question_in_microseconds() -> None:
    ends = [*sorted(RANGES.values()), (YEARS[0] * 10**6, YEARS[-1] * 10**6)]
    assert all(high < low for (_, high), (low, _) in pairwise(sorted(ends)))


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("s")])
def test_a_timestamp_knows_its_unit(kind: pa.DataType) -> None:
    table = pa.table({"t": pa.array([1_700_000_000], kind)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        local.timing_join(table, table, **JOIN)


def test_every_function_and_a_stream_tell_it() -> None:
    odd = pa.table({"t": YEARS, "u": [s + 1 for s in YEARS], "v": [1, 2, 3]})
    files = [[odd.slice(at, 1) for at in range(3)]] * 2
    spans = {"left_time": Interval("t", "u"), "right_time": Interval("t", "u"), "condition": within(0, confidence=0.1)}
    for call, columns in (
        (lambda: local.coalesce(odd, time="t", values="v"), 1),
        (lambda: local.temporal_join(odd, odd, time="t", values="v", window=5, slide=5), 2),
        (lambda: local.window_join({"a": odd, "b": odd}, time=Point("t"), windows={("a", "b"): 1}), 2),
        (lambda: local.timing_join(odd, odd, **spans), 4),
        (lambda: local.run_stream(TimingJoin(**JOIN), files), 2),
    ):
        with pytest.warns(DoubtfulTimesWarning) as told:
            call()
        assert len([each for each in told if each.category is DoubtfulTimesWarning]) == columns
    extent = WindowExtent(pa.schema({"t": pa.int64(), "v": pa.int64()}), time="t", values="v")
    with pytest.warns(DoubtfulTimesWarning):
        extent.update(pa.table({"t": [YEARS[1] + n for n in range(200)], "v": [1] * 200}))


@pytest.mark.filterwarnings("ignore::whenabouts.core.errors.DoubtfulTimesWarning")
def test_they_are_counted_here_and_on_the_way_to_another_process() -> None:
    odd = pa.record_batch({"t": pa.array([*YEARS, 7, None], pa.int64())})
    query = TimingJoin(**JOIN)
    assert local.run(query, [pa.Table.from_batches([odd]), FINE]).metrics[metrics.DOUBTFUL] == 3
    assert metrics.DOUBTFUL not in local.run(query, [FINE, FINE]).metrics
    hosting = Hosting(query, (odd.schema, FINE.schema), 2, streaming=False)
    packer, arrived = BlockPacker(hosting, 0), BucketInput()
    block, packed = packer.read(odd)
    packed += packer.split([block])
    arrived.take(hosting.operator(), [(row.kind, row.rows, row.blob) for row in packed])
    counts = read_counts(
        row.blob for row in tagged_rows(Step(), arrived, hosting.operator(), query.inputs) if row.tag == 2
    )
    assert counts[metrics.DOUBTFUL] == 3
    assert metrics.DOUBTFUL in metrics.shown(query.inputs)


def test_times_inside_of_payloads_are_looked_at_too() -> None:
    topic = pa.table({"value": [b'{"t": 1700000000}', b'{"t": 1700000001}', b'{"t": 0}']})
    query = decoded(TimingJoin(**JOIN), JsonPayload({"t": "int64"}))
    with pytest.warns(DoubtfulTimesWarning, match="2 of 3 look like seconds"):
        local.run(query, [topic, topic])


@pytest.mark.parametrize(
    "values", [[1_700_000_000, 1_700_000_001, 0], ["1700000000", "0", "1700000001"], [20240101] * 2]
)
def test_a_file_of_such_times_is_refused_until_the_unit_is_given(values: list[Any]) -> None:
    table = pa.table({"t": values})
    with pytest.raises(InputError, match=r"WA-1002: .*--time-unit us"):
        parse_times(table, ("t",), ClockRules(), ParsingCounts(), "f")
    assert parse_times(table, ("t",), ClockRules(unit="us"), ParsingCounts(), "f").table.num_rows == len(values)


def test_counts_go_on_over_batches() -> None:
    counts = UnitCounts()
    assert [counts.count(pa.array([1_700_000_000])), counts.count(pa.array([5, 6]))] == [1, 0]
    assert counts.likely() == {}
    assert counts.count(pa.array([1_700_000_000] * 2)) == 2
    assert counts.likely() == {"seconds": 3}
