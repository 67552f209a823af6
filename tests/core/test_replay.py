"""A replay gives every row once, in an order that depends only on files and settings, within the promised time
bounds."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.core import InputError, Interval, Lateness, Point, QueryError, within
from whenabouts.core.local import run_stream
from whenabouts.core.sources.pushdown import Predicate, keep
from whenabouts.core.sources.replay import Replay, ReplayOrder
from whenabouts.core.sources.replay_options import replay_of
from whenabouts.core.timing_join.query import TimingJoin

HOUR = 3_600_000_000


def events(n: int, seed: int = 0) -> pa.Table:
    draw = np.random.default_rng(seed)
    at = pa.array(draw.integers(0, HOUR, n), pa.timestamp("us", "UTC"))
    return pa.table({"t": at, "id": pa.array(range(n)), "kind": pa.array(draw.choice(["fast", "slow"], n))})


def written(folder: Path, table: pa.Table, suffix: str, files: int = 1) -> Path:
    folder.mkdir(exist_ok=True)
    size = -(-table.num_rows // files)
    for number in range(files):
        part, path = table.slice(number * size, size), folder / f"{number}{suffix}"
        if suffix == ".parquet":
            pq.write_table(part, path, row_group_size=7)
        elif suffix == ".csv":
            pa.csv.write_csv(part, path)
        else:
            path.write_text(
                "".join(json.dumps(row, default=lambda t: t.isoformat()) + "\n" for row in part.to_pylist())
            )
    return folder


def stream(arrivals: ReplayOrder, *, step: int = 10, slice_rows: int = 4) -> list[pa.Table]:
    """The whole stream in steps of `step` rows; slices go over the wire as they do in an engine."""
    steps = []
    for start in range(0, len(arrivals.at_us), step):
        slices = arrivals.slices(start, min(start + step, len(arrivals.at_us)), rows=slice_rows)
        steps.append(pa.concat_tables([pickle.loads(pickle.dumps(each)).read() for each in slices]))
    return steps


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_every_format_replays_in_order_of_time(tmp_path: Path, suffix: str) -> None:
    table = events(50)
    folder = written(tmp_path / "in", table, suffix, files=3)
    files = Replay(path=str(folder), time=Point("t")).open()
    assert files.schema.names == table.schema.names
    assert files.schema.field("t").type == pa.timestamp("us", "UTC")
    told = pa.concat_tables(stream(files.arrivals()))
    assert told.to_pylist() == table.take(np.argsort(table["t"].to_numpy(), kind="stable")).to_pylist()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 99), st.integers(0, 600), st.integers(1, 40), st.integers(1, 9))
def test_disorder_is_seeded_and_never_larger_than_said(
    tmp_path_factory: pytest.TempPathFactory, seed: int, seconds: int, step: int, slice_rows: int
) -> None:
    folder = written(tmp_path_factory.mktemp("replay") / "in", events(60), ".parquet", files=2)
    replay = Replay(path=str(folder), time=Point("t"), disorder=f"{seconds} s", seed=seed)
    arrivals = replay.open().arrivals()
    told = pa.concat_tables(stream(arrivals, step=step, slice_rows=slice_rows))
    assert sorted(told["id"].to_pylist()) == list(range(60))
    at = told["t"].cast(pa.int64()).to_numpy()
    assert (np.maximum.accumulate(at) - at).max() <= seconds * 1_000_000
    again = replay.open().arrivals()
    assert pa.concat_tables(stream(again)).equals(told.combine_chunks())
    assert again.fingerprint == arrivals.fingerprint


def test_delays_are_uniform_over_the_whole_disorder_and_differ_by_seed(tmp_path: Path) -> None:
    n, most = 4_000, 1_000_000
    same = pa.table({"t": pa.array(np.zeros(n, np.int64), pa.timestamp("us", "UTC"))})
    folder = written(tmp_path / "in", same, ".csv")
    delays = [Replay(path=str(folder), time=Point("t"), disorder=most, seed=s).open().arrivals().at_us for s in (1, 2)]
    for drawn in delays:
        steps = np.arange(1, n + 1) / n
        assert np.abs(np.sort(drawn) / most - steps).max() < 2 / np.sqrt(n)  # Kolmogorov: 1.95 has a chance of 1e-3
    assert (delays[0] != delays[1]).any()


def test_rows_of_a_disorder_inside_the_lateness_are_never_late(tmp_path: Path) -> None:
    """The promise that users rely on: lateness = disorder, then the stream gives what the batch gives."""
    folder = written(tmp_path / "in", events(400, seed=3), ".parquet", files=2)
    replay = Replay(path=str(folder), time=Point("t"), disorder="10 minutes", seed=5)
    steps = stream(replay.open().arrivals(), step=20)
    query = TimingJoin(
        left_time=Point("t"), right_time=Point("t"), on="kind", condition=within("1 minute", confidence=1),
        lateness=Lateness("10 minutes", "10 minutes"),
    )  # fmt: skip
    told = run_stream(query, [steps, steps])
    assert told.rejects.num_rows == 0
    short = run_stream(TimingJoin(**vars(query) | {"lateness": Lateness("1 minute", "1 minute")}), [steps, steps])
    assert short.rejects.num_rows > 0


MODELS: list[tuple[dict[str, str], tuple[int, int]]] = [
    ({"granularity": "1 minute"}, (0, 60_000_000)),
    ({"granularity": "1 minute", "rounding": "nearest"}, (-30_000_000, 30_000_000)),
    ({"polling": "30 s"}, (-30_000_000, 0)),
    ({"latency": '{"0": "100 ms", "1": "5 s"}'}, (-5_000_000, -100_000)),
    ({"latency": '["1 s", "3 s"]', "longest": "5 s"}, (-5_000_000, -1_000_000)),
    ({"clock": '{"offset": "1 s"}'}, (-1_000_000, 1_000_000)),
    ({"clock": '{"offset": "1 s", "jitter": "1 s"}'}, (-2_000_000, 2_000_000)),
    ({"templates": '{"x": [[0, 5, 0.5], [5, 20, 0.5]]}'}, (-20, 0)),
]


@pytest.mark.parametrize(("options", "ends"), MODELS)
def test_a_clock_model_adds_the_bounds_of_each_time(
    tmp_path: Path, options: dict[str, str], ends: tuple[int, int]
) -> None:
    table = events(20)
    folder = written(tmp_path / "in", table, ".parquet")
    told = pa.concat_tables(stream(replay_of({"path": str(folder), "TIME": "t"} | options).open().arrivals()))
    at = told["t"].cast(pa.int64()).to_numpy()
    assert (told["t_min"].cast(pa.int64()).to_numpy() - at == ends[0]).all()
    assert (told["t_max"].cast(pa.int64()).to_numpy() - at == ends[1]).all()
    assert sorted(told["id"].to_pylist()) == list(range(20))


def test_templates_are_named_by_a_column_and_rows_of_none_have_no_bounds(tmp_path: Path) -> None:
    folder = written(tmp_path / "in", events(30), ".csv")
    templates = tmp_path / "templates.json"
    templates.write_text('{"fast": [[0, 10, 1]]}')
    options = {"path": str(folder), "time": "t", "templates": str(templates), "template": "kind", "bounds": "a,b"}
    told = pa.concat_tables(stream(replay_of(options).open().arrivals())).to_pylist()
    assert len(told) == 30
    assert {row["kind"] for row in told if row["a"] is None} == {"slow"}
    assert {(row["b"] - row["a"]).microseconds for row in told if row["kind"] == "fast"} == {10}


def test_times_that_cannot_be_read_are_null_and_arrive_with_the_row_before(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,id\nsoon,0\n1970-01-01 00:00:09,1\nnever,2\n1970-01-01 00:00:03,3\n,4\n")
    told = stream(replay_of({"path": str(tmp_path / "a.csv"), "time": "t"}).open().arrivals())[0]
    assert told["id"].to_pylist() == [3, 4, 0, 1, 2]
    assert [t is None for t in told["t"].to_pylist()] == [False, True, True, False, True]


def test_files_without_rows_do_not_tell_types(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,id\n")
    (tmp_path / "b.csv").write_text("t,id\n5,1\n")
    told = stream(replay_of({"path": str(tmp_path), "time": "t"}).open().arrivals())[0]
    assert told.to_pylist() == [{"t": 5, "id": 1}]


def test_the_fingerprint_tells_other_files_and_another_order(tmp_path: Path) -> None:
    folder = written(tmp_path / "in", events(20), ".parquet")
    base = {"path": str(folder), "time": "t"}
    prints = {replay_of(base | more).open().arrivals().fingerprint for more in ({}, {"disorder": "1 s"}, {"seed": "1"})}
    pq.write_table(events(21), folder / "1.parquet")
    prints.add(replay_of(base).open().arrivals().fingerprint)
    assert len(prints) == 4


def test_the_pace_follows_the_wall_clock(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([0, 10, 20, 20, 90], pa.timestamp("s", "UTC"))})
    base = {"path": str(written(tmp_path / "in", table, ".parquet")), "time": "t"}
    rate = replay_of(base | {"rowsPerSecond": "0.5"}).open().arrivals()
    assert [rate.due(start, s) for start, s in ((0, 0), (0, 3.9), (2, 2), (0, 1e9))] == [0, 1, 3, 5]
    speed = replay_of(base | {"speed": "10"}).open().arrivals()
    assert [speed.due(start, s) for start, s in ((0, 0), (0, 1), (0, 2), (4, 6.9), (4, 7), (5, 0))] == [
        1,
        2,
        4,
        4,
        5,
        5,
    ]
    assert replay_of(base).open().arrivals().due(2, 0) == 5


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["==", "<", "<=", ">", ">=", "in", "null", "there"]), st.integers(-1, 41))
def test_predicates_drop_no_row_that_satisfies_them(
    tmp_path_factory: pytest.TempPathFactory, op: str, value: int
) -> None:
    folder = tmp_path_factory.mktemp("filter") / "in"
    table = pa.table({"t": pa.array([*range(40), None], pa.int64())})
    files = Replay(path=str(written(folder, table, ".parquet", files=2)), time=Point("t")).open()
    predicate = Predicate("t", op, [value] if op == "in" else value)
    read = list(files.matching([predicate]))
    told = [t for number in read for t in keep(files.table(number), [predicate])["t"].to_pylist()]
    compare: dict[str, Any] = {
        "==": lambda t: t == value, "<": lambda t: t < value, "<=": lambda t: t <= value, ">": lambda t: t > value,
        ">=": lambda t: t >= value, "in": lambda t: t == value,
    }  # fmt: skip
    if op in compare:
        assert told == [t for t in range(40) if compare[op](t)]
    else:
        assert told == ([None] if op == "null" else [*range(40)])
    if op == "==":
        assert len(read) <= 2 < len(files.chunks) == 6  # one more: Arrow keeps groups that hold a null


TEN = datetime(2024, 5, 1, 10, tzinfo=UTC)
TEN_NS = 1_714_557_600_000_000_000


@pytest.mark.parametrize(
    ("held", "op", "value"),
    [
        (pa.array([TEN], pa.timestamp("ms", "UTC")), "<", TEN + timedelta(microseconds=500)),
        *[(pa.array([TEN_NS + 500], pa.timestamp("ns", "UTC")), op, TEN) for op in ("==", "<=", "in")],
        (pa.array([TEN_NS // 10**9], pa.timestamp("s", "UTC")), "<", TEN + timedelta(microseconds=1)),
        (pa.array([7], pa.uint8()), "<", 300),
        (pa.array([7], pa.uint8()), ">", -1),
        (pa.array(["a"]).dictionary_encode(), "in", "a"),
        (pa.nulls(1), "null", None),
        (pa.nulls(1), "==", "a"),
        (pa.array([[1]]), "==", [1]),
        (pa.array([0.5]), "<", float("nan")),
    ],
)  # fmt: skip
def test_filters_on_values_that_engines_see_otherwise_are_left_to_them(
    tmp_path: Path, held: pa.Array, op: str, value: Any
) -> None:
    """Rows that a source drops never reach the engine, which applies the filters again."""
    pq.write_table(pa.table({"t": [1], "v": held}), tmp_path / "one.parquet")
    files = Replay(path=str(tmp_path / "one.parquet"), time=Point("t")).open()
    predicate = Predicate("v", op, [value] if op == "in" else value)
    (number,) = files.matching([predicate])
    assert keep(files.table(number), [predicate]).num_rows == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"rowPerSecond": "1"}, "option 'rowpersecond' is not known"),
        ({"time": ""}, "'time' is missing"),
        ({"rowsPerSecond": "0"}, "rowsPerSecond is 0"),
        ({"rowsPerSecond": "x"}, "rowsPerSecond is 'x'"),
        ({"rowsPerSecond": "1", "speed": "1"}, "both given"),
        ({"granularity": "1 s", "polling": "1 s"}, "granularity and polling are given"),
        ({"time": "t,id", "polling": "1 s"}, "time is 't,id'"),
        ({"latency": "5"}, "latency is '5'"),
        ({"clock": "{"}, "clock is not JSON"),
        ({"clock": '{"ofset": "1 s"}'}, "no 'ofset'"),
        ({"bounds": "a"}, "bounds is 'a'"),
        ({"bounds": "t,id", "polling": "1 s"}, "already have a column 'id'"),
        ({"disorder": "-1 s"}, "disorder"),
        ({"path": ""}, "'path' is missing"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: dict[str, str], told: str) -> None:
    base = {"path": str(written(tmp_path / "in", events(3), ".csv")), "time": "t"}
    with pytest.raises(QueryError, match=told):
        replay_of(base | options).open()


def test_a_parquet_file_without_row_groups_is_a_stream_without_rows(tmp_path: Path) -> None:
    pq.ParquetWriter(tmp_path / "none.parquet", events(0).schema).close()
    arrivals = Replay(path=str(tmp_path / "none.parquet"), time=Point("t")).open().arrivals()
    assert (len(arrivals.at_us), arrivals.slices(0, 0)) == (0, [])


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR?")
    for path in ("bad.parquet", "none.csv"):
        with pytest.raises(InputError, match=r"WA-1008.*" + path):
            Replay(path=str(tmp_path / path), time=Interval("a", "b")).open()
