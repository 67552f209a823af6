"""The forecast compared with measured state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infra.operators import OperatorDriver
from whenabouts.core import Interval, Lateness, Point, QueryError, between
from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.clocks.watching.query import WatchClock
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.costs.choices import Workload
from whenabouts.core.hosting.host import BlockPacker, BucketInput, Hosting
from whenabouts.core.join_aggregate.query import JoinAggregate
from whenabouts.core.runtime.protocol import FlushMode
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.wrappers.select_project import SelectProject
from whenabouts.planner.state_forecast import forecast_state

SECOND = 1_000_000


@pytest.mark.parametrize("every_s", [2, 10, 60])
def test_state_is_within_a_fifth_of_its_forecast(every_s: int) -> None:
    times = Interval("a", "b", max_uncertainty="500 ms")
    query = TimingJoin(
        left_time=times, right_time=times, condition=between("-1 s", "9 s", confidence=0.9), on="k",
        lateness=Lateness("1 s", "3 s"),
    )  # fmt: skip
    schema = pa.schema({"a": pa.timestamp("us"), "b": pa.timestamp("us"), "k": pa.int32(), "name": pa.string()})
    rates, text = [400, 150], {"name": 6.0}
    driver, rng = OperatorDriver(query, schema), np.random.default_rng(1)
    measured: list[dict[str, int]] = []
    steps = 12 + 40 // every_s
    for step in range(steps):
        batches = []
        for rate in rates:
            b = np.sort(rng.integers(step * every_s * SECOND, (step + 1) * every_s * SECOND, rate * every_s))
            a = b - rng.integers(0, SECOND // 2, len(b))
            columns = [a.astype("datetime64[us]"), b.astype("datetime64[us]"), np.arange(len(b)) % 50]
            raw = pa.record_batch([*map(pa.array, columns), pa.array(["abcdef"] * len(b))], names=schema.names)
            batches.append(raw.cast(schema))
        watermark_us = step * every_s * SECOND - 3 * SECOND  # one for both: the later side's
        arrived = dict(zip(query.inputs, batches, strict=True))
        measured.append(driver.feed(arrived, watermark_us, FlushMode.FLUSH).gauges)
    forecast = forecast_state(query, [schema, schema], rates, every=f"{every_s} s", text=text)
    for name in query.inputs:
        rows = np.mean([held[f"state_rows_{name}"] for held in measured[steps // 2 :]])
        size = np.mean([held[f"state_bytes_{name}"] for held in measured[steps // 2 :]])
        assert forecast[name].rows == pytest.approx(rows, rel=0.2)
        assert forecast[name].bytes == pytest.approx(size, rel=0.2)
        raw_bytes = rows * (8 + 8 + 4 + 4 + 6)
        assert size < 1.3 * raw_bytes


@pytest.mark.parametrize("width", ["auto", "3 s"])
def test_copies_in_time_slots_are_forecast(width: str) -> None:
    query = TimingJoin(
        left_time=Point("t"), right_time=Point("t"), condition=between("-1 s", "2 s", confidence=1), time_slots=width,
        lateness=Lateness("1 s", "1 s"),
    )  # fmt: skip
    schema, rate, every_s, rng = pa.schema({"t": pa.int64()}), 100, 60, np.random.default_rng(1)
    hosting = Hosting(query, (schema, schema), 8, streaming=True)
    packers = [BlockPacker(hosting, input) for input in (0, 1)]
    operator, stores, held = hosting.operator(), [DictStore() for _ in range(8)], [0] * 8
    for step in range(4):
        times = [np.sort(rng.integers(step * every_s * SECOND, (step + 1) * every_s * SECOND, 6_000)) for _ in "lr"]
        packed = [
            row
            for packer, t in zip(packers, times, strict=True)
            for row in packer.split([packer.read(pa.record_batch([pa.array(t)], schema=schema))[0]])
        ]
        for bucket, store in enumerate(stores):
            arrived = BucketInput()
            arrived.take(operator, ((row.kind, row.rows, row.blob) for row in packed if row.bucket == bucket))
            watermark_us = step * every_s * SECOND - SECOND
            held[bucket] = hosting.step(operator, store, arrived, watermark_us, FlushMode.FLUSH).gauges[
                "state_rows_right"
            ]
    forecast = forecast_state(query, [schema, schema], [rate, rate], every=f"{every_s} s")["right"].rows
    assert forecast > 1.9 * rate * every_s  # two copies of nearly all
    assert sum(held) == pytest.approx(forecast, rel=0.2)


@pytest.mark.parametrize("kind", ["backward", "forward", "coalesce"])
def test_state_of_other_queries_is_within_a_fifth_of_its_forecast(kind: str) -> None:
    schema = pa.schema({"t": pa.int64(), "k": pa.int64(), "v": pa.int64()})
    late = "2 s"
    query: Any
    if kind == "coalesce":
        query = Coalesce(time="t", group="k", values="v", window="60 s", slide="10 s", lateness=late, scheme="lazy")
    else:
        windows = {("a", "b"): "10 s", ("b", "c"): ("0 s", "20 s")}
        query = WindowJoin(
            times=dict.fromkeys("abc", Point("t")), windows=windows, on="k", lateness=late, strategy=kind
        )
    rates, every_s, rng = [200, 100, 50][: len(query.inputs)], 4, np.random.default_rng(1)
    driver = OperatorDriver(query, schema)
    sizes, steps = [], 60
    for step in range(steps):
        batches = []
        for rate in rates:
            t = np.sort(rng.integers(step * every_s * SECOND, (step + 1) * every_s * SECOND, rate * every_s))
            k, v = rng.integers(0, 1000, len(t)), rng.integers(0, 9, len(t))
            batches.append(pa.record_batch([pa.array(t), pa.array(k), pa.array(v)], schema=schema))
        arrived = dict(zip(query.inputs, batches, strict=True))
        driver.feed(arrived, step * every_s * SECOND - 2 * SECOND, FlushMode.FLUSH)
        sizes.append(driver.store.bytes_held)
    forecast = forecast_state(query, [schema] * len(rates), rates, every=f"{every_s} s")
    told = sum(each.bytes for each in forecast.values())
    assert told == pytest.approx(np.mean(sizes[steps // 2 :]), rel=0.2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "lengths_s", "keys"),
    [
        ({}, (0.0, 0.0), 2000),
        ({}, (0.0, 10.0), 2000),
        ({"tolerance": "5 s"}, (0.5, 1.0), 2000),
        ({"direction": "forward", "tolerance": "60 s"}, (0.0, 0.0), 300),
        ({"direction": "nearest", "tolerance": "5 s"}, (1.0, 1.0), 300),
    ],
    ids=["backward", "backward intervals", "backward tolerance", "forward", "nearest"],
)
def test_as_of_joins_hold_the_forecast_rows(options: dict[str, Any], lengths_s: tuple[float, float], keys: int) -> None:
    """Recent rows, and for each key the last right row with those that overlap it."""
    rates, every_s, steps, rng = [200, 400], 4, 40, np.random.default_rng(1)
    specs = [Interval("a", "b", max_uncertainty=int(length * SECOND)) for length in lengths_s]
    query = AsofJoin(left_time=specs[0], right_time=specs[1], on="k", confidence=0.9, lateness="2 s", **options)
    schema = pa.schema({"a": pa.int64(), "b": pa.int64(), "k": pa.int64()})
    driver, held = OperatorDriver(query, schema), []
    for step in range(steps):
        batches = []
        for rate, length in zip(rates, lengths_s, strict=True):
            b = np.sort(rng.integers(step * every_s * SECOND, (step + 1) * every_s * SECOND, rate * every_s))
            a = b - rng.integers(0, int(length * SECOND) + 1, len(b))
            batches.append(pa.record_batch([a, b, rng.integers(0, keys, len(b))], schema=schema))
        arrived = dict(zip(query.inputs, batches, strict=True))
        gauges = driver.feed(arrived, step * every_s * SECOND - 2 * SECOND, FlushMode.FLUSH).gauges
        held.append([gauges[f"state_rows_{name}"] for name in query.inputs])
    found = forecast_state(query, [schema, schema], rates, every=f"{every_s} s", keys=keys)
    for name, rows in zip(query.inputs, np.mean(held[steps // 2 :], axis=0), strict=True):
        assert found[name].rows == pytest.approx(rows, rel=0.15)
    carried = query.held(1, Workload(rates=dict(zip(query.inputs, rates, strict=True)), keys=keys)).rows
    assert forecast_state(SelectProject(query=query), [schema, schema], rates, every=f"{every_s} s", keys=keys) == found
    if not options:  # every key has one, and those that overlap it
        assert carried == keys * (1 + rates[1] / keys * lengths_s[1] / 2)
        assert carried > 0.3 * found["right"].rows, "the keys' rows hardly count"


@pytest.mark.parametrize(
    ("window", "left_rate", "function"),
    [
        (("-20 s", "0 s"), 50, "p_none"),
        (("0 s", "20 s"), 50, "expected_count"),
        (("-5 s", "30 s"), 0.05, "p_none"),
        (("-5 s", "60 s"), 0.05, "expected_count"),
    ],
    ids=["before", "after", "few left rows", "folded"],
)
def test_join_aggregates_hold_the_forecast_rows(window: tuple[str, str], left_rate: float, function: str) -> None:
    """Left rows until no partner can come, and right rows for the left row that has waited longest, or until folded."""
    rates, every_s, steps, rng = [left_rate, 100], 4, 400 if left_rate < 1 else 40, np.random.default_rng(1)
    times = Point("t"), Interval("t", "u", max_uncertainty="1 s")
    query = JoinAggregate(
        left_time=times[0], right_time=times[1], condition=window, aggregates={"n": function}, lateness="2 s"
    )
    schema = pa.schema({"t": pa.int64(), "u": pa.int64()})
    driver, held = OperatorDriver(query, schema), []
    for step in range(steps):
        batches = []
        for rate in rates:
            t = np.sort(
                rng.integers(step * every_s * SECOND, (step + 1) * every_s * SECOND, rng.poisson(rate * every_s))
            )
            batches.append(pa.record_batch([t - SECOND // 2, t], schema=schema))
        arrived = dict(zip(query.inputs, batches, strict=True))
        gauges = driver.feed(arrived, step * every_s * SECOND - 2 * SECOND, FlushMode.FLUSH).gauges
        held.append([gauges[f"state_rows_{name}"] for name in query.inputs])
    found = forecast_state(query, [schema, schema], rates, every=f"{every_s} s")
    for name, rows in zip(query.inputs, np.mean(held[steps // 2 :], axis=0), strict=True):
        assert found[name].rows == pytest.approx(rows, rel=0.2)


def test_rates_are_given_in_order_or_by_input() -> None:
    time = Point("t")
    query = TimingJoin(left_time=time, right_time=time, condition=between("0 s", "8 s", confidence=1), lateness="2 s")
    schemas = [pa.schema({"t": pa.timestamp("us")})] * 2
    in_order = forecast_state(query, schemas, [100, 10], every="8 s")
    assert forecast_state(query, schemas, {"right": 10, "left": 100}, every="8 s") == in_order
    for wrong in ([100], [100, 10, 1], {"left": 100}, {"left": 100, "middle": 10}):
        with pytest.raises(QueryError, match=r"WA-2006: rates is .* left, right"):
            forecast_state(query, schemas, wrong, every="8 s")  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="WA-2072: the rate of right is 0"):
        forecast_state(query, schemas, [100, 0], every="8 s")


def test_a_query_without_a_forecast_is_refused() -> None:
    schema = pa.schema({"t": pa.timestamp("us")})
    with pytest.raises(QueryError, match="WA-2006: query is WatchClock"):
        forecast_state(WatchClock(reading="t", against="t"), [schema], [1], every="8 s")
