"""An object of the wrong kind is refused with a code before anything runs."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from whenabouts.core import (
    AvroPayload,
    Condition,
    Histogram,
    Interval,
    JsonPayload,
    Lateness,
    Point,
    QueryError,
    Template,
    WhenaboutsError,
    chance_matches,
    from_granularity,
    learn_delay,
    local,
    profile,
    why_not,
    within,
)
from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.clocks.watching.query import WatchClock
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.costs.choices import Workload
from whenabouts.core.costs.eager_lazy_cost import Statistics
from whenabouts.core.costs.prices import Weights
from whenabouts.core.hosting.host_options import HostSettings
from whenabouts.core.hosting.worker_archive import build_worker_archive
from whenabouts.core.join_aggregate.query import JoinAggregate
from whenabouts.core.temporal_queries.aggregate_query import TemporalAggregate
from whenabouts.core.temporal_queries.join_query import TemporalJoin
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.wrappers.payload_decoding import decoded
from whenabouts.core.wrappers.state_limit import StateLimit
from whenabouts.planner import CoalescingQuery, read_plan_file
from whenabouts.planner.state_forecast import forecast_state
from whenabouts.planner.streams import Stream

SECOND = 1_000_000
T = pa.table({"t": [1, 2], "k": [1, 2], "v": [1, 2]})
WRONG: dict[str, Any] = {
    "None": None, "text": "x", "no text": "", "bytes": b"x", "a number": 4, "a negative number": -4, "a float": 4.5,
    "a huge number": 10**30,
    "nan": float("nan"), "an object": object(), "a list": [], "a mapping": {}, "a list of numbers": [4],
    "a mapping of numbers": {"a": 4}, "a mapping by number": {4: "a"}, "a path": Path("/x"), "a table": T,
    "a frame": pd.DataFrame({"t": [1]}), "a function": lambda *_: 1, "a flag": True, "a type": int,
    "a time": Point("t"), "a condition": within(1, confidence=1), "a lateness": Lateness(),
}  # fmt: skip
ROWS: dict[str, Any] = {"time": "t", "values": "v", "rows": 5, "slide": 2}
COALESCE: dict[str, Any] = {"time": "t", "group": "k", "values": "v", "window": 5, "slide": 1}
JOIN: dict[str, Any] = {
    "left_time": Point("t"),
    "right_time": Point("t"),
    "condition": within(1, confidence=1),
    "on": "k",
}
QUERY = TimingJoin(**JOIN)
CALLS: dict[str, tuple[Callable[..., Any], type, dict[str, Any]]] = {
    "timing_join": (lambda **o: local.timing_join(T, T, **o), TimingJoin, JOIN | {"deduplicate_by": "v"}),
    "window_join": (
        lambda **o: local.window_join({"a": T, "b": T}, **o), WindowJoin,
        {"time": Point("t"), "windows": {("a", "b"): 1}},
    ),
    "coalesce": (lambda **o: local.coalesce(T, **o), Coalesce, COALESCE),
    "coalesce of rows": (lambda **o: local.coalesce(T, **o), Coalesce, ROWS),
    "temporal_aggregate": (
        lambda **o: local.temporal_aggregate(T, **o), TemporalAggregate, COALESCE | {"aggregates": {"m": "max"}}
    ),
    "temporal_join": (lambda **o: local.temporal_join(T, T, **o), TemporalJoin, COALESCE),
    "watch_clock": (lambda **o: local.watch_clock(T, **o), WatchClock, {"reading": "v", "against": "t"}),
}  # fmt: skip
OPTIONS = [
    (name, option)
    for name, (_, query, base) in CALLS.items()
    for option in {**inspect.signature(query).parameters, **base}
    if option != "times"
]


def told(call: Callable[[], Any]) -> str | None:
    """The error code of a call; None if it succeeds."""
    try:
        call()
        return None
    except WhenaboutsError as found:
        error = found
    assert error.hint, f"{error} has no hint"
    assert len(str(error)) < 400, "an error shows a large object in part"
    return str(error.code)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_an_option_takes_what_belongs_there_or_tells_a_code(name: str, option: str) -> None:
    call, _, base = CALLS[name]
    assert told(lambda: call(**base)) is None
    found = {what: told(lambda wrong=wrong: call(**(base | {option: wrong}))) for what, wrong in WRONG.items()}
    assert found["an object"], "an object of no kind belongs nowhere"
    assert found["a frame"]
    assert found["a type"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_a_number_of_numpy_is_the_number(name: str, option: str) -> None:
    call, _, base = CALLS[name]
    number, numpys = (base | {option: given} for given in (3, np.int64(3)))
    assert told(lambda: call(**number)) == told(lambda: call(**numpys))
    if told(lambda: call(**number)) is None:
        assert call(**number) == call(**numpys)


def test_numbers_of_numpy_are_kept_as_those_of_python() -> None:
    three, exact = np.int32(3), {name: given for name, given in JOIN.items() if name != "condition"}
    kept = (
        TimingJoin(**JOIN, block_size=three).block_size,
        AsofJoin(**exact, max_candidates=three).max_candidates,
        JoinAggregate(**JOIN, aggregates={"n": "count"}, most_uncertain=three).most_uncertain,
        WatchClock(reading="v", against="t", every=three).every,
        StateLimit(three).rows,
        JsonPayload(pa.schema([("t", pa.int64())]), skip=three).skip,
        HostSettings(buckets=three).buckets,
        HostSettings(threads=three).threads,
        Condition(np.int64(1), three, 0.5).hi_us,
    )
    assert [(type(number), number) for number in kept] == [(int, 3)] * len(kept)
    asked, numpys = (chance_matches(T, T, query=QUERY, slides=n, seed=n, max_rows=n) for n in (3, three))
    assert asked == numpys


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"condition": "2 s"}, r"WA-2006: condition is '2 s' \(hint: give within"),
        ({"left_time": "t"}, r"WA-2006: left_time is 't' \(hint: give Point\('t'\)"),
        ({"right_time": Point}, "WA-2006: right_time is <class"),
        ({"block_size": "4"}, "WA-2006: block_size is '4'"),
        ({"probability": "no"}, "WA-2006: probability is 'no'"),
        ({"suffixes": "_l"}, "WA-2006: suffixes is '_l'"),
        ({"rates": {"left": 1, "right": "x"}}, "WA-2006: rates is"),
    ],
)
def test_the_message_says_what_belongs_there(options: dict[str, Any], message: str) -> None:
    with pytest.raises(WhenaboutsError, match=message):
        TimingJoin(**(JOIN | options))


NOT_FRAMES = [what for what in WRONG if what not in ("a table", "a frame")]


@pytest.mark.parametrize("what", NOT_FRAMES)
def test_a_function_takes_frames_only(what: str) -> None:
    wrong = WRONG[what]
    for call in (
        lambda: local.timing_join(wrong, T, **JOIN),
        lambda: local.timing_join(T, wrong, **JOIN),
        lambda: local.coalesce(wrong, **COALESCE),
        lambda: local.temporal_aggregate(wrong, **COALESCE, aggregates={"m": "max"}),
        lambda: local.temporal_join(T, wrong, **COALESCE),
        lambda: local.window_join({"a": T, "b": wrong}, time=Point("t"), windows={("a", "b"): 1}),
        lambda: local.run(QUERY, [T, wrong]),
        lambda: local.run_stream(QUERY, [[T], [wrong]]),
    ):
        assert told(call) == "WA-1062"
    assert told(lambda: local.run_stream(QUERY, [[T], wrong])) in ("WA-1062", "WA-2006")
    assert told(lambda: local.watermarks(QUERY, [[T], wrong])) in ("WA-1062", "WA-2006")
    assert told(lambda: local.run(wrong, [T, T])) == "WA-2006"
    assert told(lambda: local.rejects(wrong)) == "WA-2006"
    if what not in ("None", "a number", "a huge number"):
        assert told(lambda: local.run(QUERY, [T, T], buckets=wrong)) == "WA-2006"
    if wrong is not None:
        assert told(lambda: decoded(QUERY, wrong)) == (None if what == "a mapping" else "WA-2171")


@pytest.mark.parametrize("files", [[[], []], [[T], []], [], [[T]], [[T], [T], [T]], "xy", None, [T, T], {}])
def test_a_stream_of_no_table_is_refused(files: Any) -> None:
    assert told(lambda: local.run_stream(QUERY, files)) in ("WA-1062", "WA-2006")
    assert told(lambda: local.watermarks(QUERY, files)) in ("WA-1062", "WA-2006")


def test_what_belongs_there_is_taken() -> None:
    assert local.run_stream(QUERY, [[T.slice(0, 0)], (T,)]).output.num_rows == 0
    assert decoded(QUERY, JsonPayload({"t": "int64", "k": "int64"})).inputs == ("left", "right")


@pytest.mark.parametrize("package", ["core", "spark_plugin", "flink_plugin", "planner"])
def test_dir_lists_the_public_names(package: str) -> None:
    """Including those that are imported on first use."""
    if package == "flink_plugin":
        pytest.importorskip("pyflink")
    module = importlib.import_module(f"whenabouts.{package}")
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        assert getattr(module, name) is not None


RECORD = {"type": "record", "name": "event", "fields": [{"name": "t", "type": "long"}]}
TIMES = np.arange(200) * SECOND + np.arange(200) ** 2 % 1009
SENT = pa.table({"t": TIMES, "k": range(200), "b": ["b"] * 200})
SEEN = pa.table({"u": TIMES + np.arange(200) * 7919 % 997, "k": range(200), "b": ["b"] * 200})
CLOCK = learn_delay(SENT, SEEN, on="k", left_time="t", right_time="u", max_error=1.0)
MADE: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "Interval": (Interval, {"max_uncertainty": 5, "min_uncertainty": 1}),
    "Histogram": (Histogram, {"templates": {"a": [(0, 10, 1.0)]}}),
    "Lateness": (Lateness, {"left": 1, "idle_after": 5}),
    "StateLimit": (StateLimit, {"rows": 5, "on_full": "fail"}),
    "within": (within, {"d": 5, "confidence": 0.5}),
    "Condition": (Condition, {"lo_us": 1, "hi_us": 2, "confidence": 0.5}),
    "Template": (Template, {"buckets": [(0, 5, 1.0)]}),
    "JsonPayload": (JsonPayload, {"columns": {"t": "int64"}, "skip": 0, "keep": ()}),
    "from_granularity": (from_granularity, {"granularity": 5}),
    "chance_matches": (
        lambda **o: chance_matches(**o),
        {"left": T, "right": T, "query": QUERY, "slides": 1, "observed": 3},
    ),
    "why_not": (
        why_not,
        {
            "left_row": {"t": 1, "k": 1},
            "right_row": {"t": 1, "k": 1},
            "query": QUERY,
            "left_watermark_us": 3,
            "right_watermark_us": 3,
        },
    ),
    "learn_delay": (
        learn_delay,
        {
            "left": SENT,
            "right": SEEN,
            "on": "k",
            "left_time": "t",
            "right_time": "u",
            "kind": "b",
            "folds": 5,
            "seed": 0,
            "max_error": 1,
            "shortest": None,
            "longest": None,
            "drift": "auto",
            "outliers": "keep",
            "duplicates": "refuse",
        },
    ),
    "LearnedClock.correct": (CLOCK.correct, {"frame": SEEN, "t": "u", "name": "v"}),
    "LearnedClock.spec": (CLOCK.spec, {"side": "right", "t": "u", "accept": "uncalibrated"}),
    "LearnedClock.from_dict": (CLOCK.from_dict, {"values": CLOCK.to_dict()}),
    "Profile.with_interval": (profile(SENT, "t").with_interval, {"frame": SENT, "t_min": "x", "t_max": "y"}),
    "Profile.spec": (profile(SENT, "t", group="b").spec, {"group": "b"}),
    "Profile.lateness": (profile(SENT, "t").lateness, {"share": 0.5}),
    "AvroPayload": (
        AvroPayload,
        {"record": {"type": "record", "name": "e", "fields": [{"name": "a", "type": "long"}]}},
    ),
    "CoalescingQuery": (CoalescingQuery, {"coalesce": "a", "rows": 5, "group": "b", "eager_part": 1, "closed": "both"}),
    "Statistics": (Statistics, {"cp": 0.5, "oop": 0.5, "rate": 5, "step_rows": 5}),
    "Stream": (Stream, {"rate": 5, "keys": 5}),
    "Weights": (Weights, {"memory": 1, "update": 1, "scan": 1}),
    "Workload": (Workload, {"rates": {"a": 1}, "keys": 5, "every": 5, "parallelism": 2, "row_bytes": {"a": 1}}),
    "forecast_state": (
        forecast_state,
        {"query": QUERY, "schemas": [T.schema, T.schema], "rates": [1, 1], "every": 5, "keys": 2},
    ),
}
NAMES = {
    "Interval": {"t_min": "a", "t_max": "b"}, "Histogram": {"t_max": "t", "template": "k"},
    "from_granularity": {"t": "t"},
}  # fmt: skip


@pytest.mark.parametrize(("name", "option"), [(name, option) for name, (_, base) in MADE.items() for option in base])
def test_what_options_are_made_of_is_checked_too(name: str, option: str) -> None:
    call, base = MADE[name]
    base = base | NAMES.get(name, {})
    assert told(lambda: call(**base)) is None
    found = {what: told(lambda wrong=wrong: call(**(base | {option: wrong}))) for what, wrong in WRONG.items()}
    assert found["an object"]
    assert found["a type"]


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("call", [read_plan_file, build_worker_archive])
def test_a_function_of_files_takes_paths_that_are_there(call: Callable[..., Any], what: str) -> None:
    assert told(lambda: call(WRONG[what]))


def test_one_of_something_is_told_in_the_singular() -> None:
    query = TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within(0, confidence=1))
    with pytest.raises(QueryError, match=r"2 inputs \(left, right\), 1 was given"):
        local.run(query, [pa.table({"t": [1]})])
    with pytest.raises(QueryError, match=r"a window join of 1 stream \("):
        WindowJoin(times={"a": Point("t")}, windows={})
    told = str(profile(pa.table({"t": [1_700_000_000_000_000]}), "t"))
    assert ": 1 time over " in told
    assert "1 usable row is too few" in told
