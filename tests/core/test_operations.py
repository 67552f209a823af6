"""Operations are declared once: their signatures, their types, and which engine runs them."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import subprocess
import sys
import textwrap
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import whenabouts
import whenabouts as wa
from infra.toy_operation import NUMBERED, TABLE, MyOperations
from whenabouts.core import InputError, JsonPayload, Point, QueryError, local, operations, within
from whenabouts.core.hosting.engine import HOMES
from whenabouts.core.hosting.host_options import HostOptions, HostSettings
from whenabouts.core.hosting.operation_names import OPERATION_NAMES
from whenabouts.core.operations import Operations
from whenabouts.core.wrappers.state_limit import StateBound, StateLimit

T = pa.table({"t": [1, 5, 9], "k": [1, 2, 1], "v": [1, 1, 2]})
TWICE = pa.concat_tables([T, T])
JOIN: dict[str, Any] = {"left_time": Point("t"), "right_time": Point("t"), "condition": within(1, confidence=1)}
RUNS: dict[str, Any] = {"time": "t", "values": "v", "group": "k"}
CALLS: dict[str, Callable[..., pa.Table]] = {
    "asof_join": lambda frame, **o: operations.asof_join(
        frame, frame, left_time=Point("t"), right_time=Point("t"), on="k", **o
    ),
    "join_aggregate": lambda frame, **o: operations.join_aggregate(
        frame, frame, **JOIN, aggregates={"n": "count", "nobody": "p_none"}, **o
    ),
    "timing_join": lambda frame, **o: operations.timing_join(frame, frame, **JOIN, **o),
    "window_join": lambda frame, **o: operations.window_join(
        {"a": frame, "b": frame}, time=Point("t"), windows={("a", "b"): 1}, **o
    ),
    "coalesce": lambda frame, **o: operations.coalesce(frame, **RUNS, **o),
    "temporal_aggregate": lambda frame, **o: operations.temporal_aggregate(
        frame, **RUNS, window=20, aggregates={"n": "count"}, **o
    ),
    "temporal_join": lambda frame, **o: operations.temporal_join(frame, frame, **RUNS, window=20, **o),
    "watch_clock": lambda frame, **o: operations.watch_clock(frame, reading="v", against="t", group="k", **o),
}
NAMES = [name for name in operations.__all__ if name != "rejects"]
ROOT = Path(__file__).parents[2]


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def test_every_operation_is_tried_here() -> None:
    declared = {name for name, each in vars(Operations).items() if inspect.isfunction(each) and name[0] != "_"}
    assert declared - {"run", "call", "rejects"} == set(NAMES) == set(CALLS)
    assert set(operations.__all__) == {*NAMES, "rejects"} == set(OPERATION_NAMES)
    assert set(OPERATION_NAMES) <= set(whenabouts.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_the_local_functions_are_the_declared_ones(name: str) -> None:
    assert getattr(local, name).__func__ is getattr(operations, name).__func__


@pytest.mark.parametrize("name", NAMES)
def test_a_signature_shows_every_option_with_its_default(name: str) -> None:
    shown = inspect.signature(getattr(operations, name)).parameters
    for field in dataclasses.fields(HostSettings):
        assert shown[field.name].default == field.default
    assert "self" not in shown
    assert not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in shown.values())
    assert "dedupe" not in shown
    assert inspect.getdoc(getattr(operations, name))


def test_functions_take_just_the_fields_of_the_host_settings() -> None:
    assert set(HostOptions.__annotations__) - {"bound", "dedupe"} == {
        field.name for field in dataclasses.fields(HostSettings)
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_operation_takes_every_host_option(name: str) -> None:
    call = CALLS[name]
    plain = rows(call(T))
    assert plain or name == "watch_clock", "three rows show no step"
    assert rows(call(T, buckets=3, threads=2, state_limit=StateLimit(5), max_latency="1 s")) == plain
    assert rows(call(TWICE, deduplicate_by="v")) == plain
    payload = JsonPayload({"t": "int64", "k": "int64", "v": "int64"})
    messages = pa.table({"value": [pa.scalar(str(row).replace("'", '"')).as_py().encode() for row in T.to_pylist()]})
    assert rows(call(messages, payloads=payload)) == plain


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("option", "value"), [("watermarks", "source"), ("name", "mine")])
def test_what_an_engine_lacks_is_refused_and_why(name: str, option: str, value: str) -> None:
    with pytest.raises(QueryError, match=rf"WA-2007: the local engine does not support {option} \(hint: "):
        CALLS[name](T, **{option: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"buckets": 0}, "WA-2006: buckets is 0"),
        ({"buckets": 10**30}, r"WA-2006: buckets is 10+ \(hint: give a whole number, from 1 to 1,048,576"),
        ({"threads": 0}, "WA-2006: threads is 0"),
        ({"watermarks": "mine"}, "WA-2006: watermarks is 'mine'"),
        ({"state_limit": 5}, "WA-2006: state_limit is 5"),
        ({"name": ""}, "WA-2006: name is ''"),
        ({"max_latency": "soon"}, "WA-2002"),
        ({"deduplicate_by": {"middle": "k"}}, "WA-2101"),
        ({"payloads": "json"}, "WA-2171"),
    ],
)
def test_host_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(QueryError, match=message):
        CALLS["window_join"](T, **options)


def test_an_unknown_option_is_refused_as_python_does() -> None:
    with pytest.raises(TypeError, match=r"^coalesce\(\) got an unexpected keyword argument 'colour'$"):
        CALLS["coalesce"](T, colour="red")
    with pytest.raises(
        TypeError, match=r"^asof_join\(\) got an unexpected keyword argument 'by'; did you mean 'on'\?$"
    ):
        wa.asof_join(T, T, left_time=wa.Point("t"), right_time=wa.Point("t"), by="k")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^coalesce\(\) got an .* 'valeus'; did you mean 'values'\?$"):
        wa.coalesce(T, time="t", valeus="v")  # type: ignore[call-arg]


def test_an_option_that_is_missing_is_named_as_python_does() -> None:
    with pytest.raises(TypeError, match=r"^timing_join\(\) missing a required keyword argument: 'condition'$"):
        wa.timing_join(T, T, left_time=wa.Point("t"), right_time=wa.Point("t"))  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"dedupe": "v"}, {"deduplicate_by": "v"}),
        ({"bound": StateLimit(5)}, {"state_limit": StateLimit(5)}),
        ({"bound": None}, {}),
    ],
)
def test_an_old_name_is_taken_with_a_warning(old: dict[str, Any], new: dict[str, Any]) -> None:
    with pytest.warns(DeprecationWarning, match=f"{next(iter(old))}= is deprecated: use ") as told:
        found = CALLS["timing_join"](TWICE, **old)
    assert {Path(each.filename) for each in told} == {Path(__file__)}
    assert rows(found) == rows(CALLS["timing_join"](TWICE, **new))


def test_old_watermarks_are_taken_with_a_warning() -> None:
    with (
        pytest.warns(DeprecationWarning, match='watermarks="inputs" is deprecated: use watermarks="source"'),
        pytest.raises(QueryError, match="WA-2007: the local engine does not support watermarks"),
    ):
        CALLS["coalesce"](T, watermarks="inputs")


def test_frames_are_taken_under_their_old_names_with_a_warning() -> None:
    for old in ("table", "stream"):
        with pytest.warns(DeprecationWarning, match=f"{old}= is deprecated: use frame=") as told:
            assert rows(operations.coalesce(**{old: T}, **RUNS)) == rows(CALLS["coalesce"](T))
        assert {Path(each.filename) for each in told} == {Path(__file__)}
    for old in ("tables", "streams"):
        with pytest.warns(DeprecationWarning, match=f"{old}= is deprecated: use frames="):
            local.window_join(**{old: {"a": T, "b": T}}, time=Point("t"), windows={("a", "b"): 1})  # type: ignore[call-arg]


def test_an_option_under_both_names_is_refused() -> None:
    with (
        pytest.warns(DeprecationWarning, match="dedupe= is deprecated: use deduplicate_by="),
        pytest.raises(QueryError, match="deprecated name of deduplicate_by="),
    ):
        CALLS["coalesce"](T, dedupe="v", deduplicate_by="k")


def test_the_old_class_of_limits_is_one() -> None:
    with pytest.warns(DeprecationWarning, match=r"StateBound.* is called StateLimit"):
        old = StateBound(3, when_full="shed")
    assert isinstance(old, StateLimit)
    assert (old.rows, old.on_full, old.when_full) == (3, "shed", "shed")
    with pytest.warns(DeprecationWarning, match="bound= is deprecated: use state_limit="):
        assert local.run_stream(_numbers(), [[T]], bound=old).output.num_rows == 3


def _numbers() -> Any:
    from infra.toy_operation import Numbered

    return Numbered(time="t", key="k")


def test_a_frame_says_its_engine() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pairs = operations.timing_join(T.append_column("x", pa.nulls(3)), T, **JOIN)
    assert pairs.num_rows == 3
    assert operations.rejects(pairs).num_rows == 0
    assert Operations().run(_numbers(), [T], buckets=2).num_rows == 3


@pytest.mark.parametrize(
    "wrong",
    [None, 4, "x", b"x", [], {}, object(), int, pd.Series([1])],
    ids=lambda wrong: type(wrong).__name__,
)
def test_what_is_no_frame_is_refused(wrong: Any) -> None:
    for call in CALLS.values():
        with pytest.raises(InputError, match=r"WA-1062: the \w+ input is .*give a dataframe of pyarrow, pandas"):
            call(wrong)
    with pytest.raises(InputError, match="WA-1062"):
        operations.rejects(wrong)
    with pytest.raises((InputError, QueryError), match=r"WA-(1062|2006)"):
        Operations().run(_numbers(), wrong)
    if not isinstance(wrong, dict):
        with pytest.raises(QueryError, match="WA-2006: the mapping of inputs"):
            operations.window_join(wrong, time=Point("t"), windows={("a", "b"): 1})


def test_frames_of_two_engines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither engine is imported: the class tells the origin of a frame."""
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.dataframe"})()
    home: Any = types.ModuleType("made_up")
    home.ENGINE = dataclasses.replace(local.ENGINE, name="Spark", frames=(type(frame),), run=lambda *given: given)
    monkeypatch.setitem(sys.modules, "made_up", home)
    monkeypatch.setitem(HOMES, "pyspark", "made_up")
    assert operations.coalesce(frame, **RUNS)[1] == [frame]
    with pytest.raises(
        InputError, match="WA-1062: the left input belongs to the local engine, the right input belongs to Spark"
    ):
        operations.timing_join(T, frame, **JOIN)


def test_a_call_on_tables_imports_no_engine() -> None:
    script = (
        "import sys, pyarrow as pa; from whenabouts.core import operations;"
        "operations.coalesce(pa.table({'t': [1], 'v': [1]}), time='t', values='v');"
        "print([m for m in ('pyspark', 'pyflink', 'whenabouts.spark_plugin', 'whenabouts.flink_plugin')"
        " if m in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


@pytest.mark.parametrize("name", NAMES)
def test_functions_travel_to_workers_by_name(name: str) -> None:
    """State about results in this process is not sent."""
    function = getattr(local, name)
    before = len(pickle.dumps(function))
    kept = [local.coalesce(T, **RUNS) for _ in range(5)]
    assert len(pickle.dumps(function)) == before < 200
    assert rows(pickle.loads(pickle.dumps(local.coalesce))(T, **RUNS)) == rows(kept[0])
    assert pickle.loads(pickle.dumps(getattr(operations, name))).__func__ is function.__func__


def test_an_operation_of_ones_own_runs_on_tables() -> None:
    """As on the engines: tests/spark/test_operations.py, tests/flink/test_operations.py."""
    for mine in (MyOperations(local.ENGINE), MyOperations()):
        found = mine.numbered(TABLE, time="t", key="k", buckets=3)
        assert {tuple(row.values()) for row in found.to_pylist()} == NUMBERED
    assert list(inspect.signature(mine.numbered).parameters)[:4] == ["frame", "time", "key", "first"]


@pytest.mark.slow
def test_types_are_checked(tmp_path: Path) -> None:
    """mypy --strict knows every option, and that a frame of a kind gives one of that kind."""
    good = """
        from pyspark.sql import DataFrame
        import whenabouts.flink_plugin as on_flink
        import whenabouts.spark_plugin as on_spark
        from whenabouts.core import Point, operations, within
        from whenabouts.core.coalescing.query import Coalesce
        from whenabouts.core.wrappers.state_limit import StateLimit
        class Frame: ...
        def use(frame: Frame) -> Frame:
            t = Point("t")
            operations.timing_join(frame, frame, left_time=t, right_time=t, condition=within(1, confidence=1),
                                   deduplicate_by="id", state_limit=StateLimit(5), max_latency="1 s", dedupe="id")
            operations.window_join({"a": frame}, time=t, windows={("a", "b"): 1}, joint=True, max_latency="1 s")
            operations.temporal_aggregate(frame, time="t", values="v", window="1 h", aggregates={"n": "max"})
            operations.temporal_join(frame, frame, time="t", values="v", rows=5, relation="overlaps")
            reveal_type(operations.rejects(frame))
            return operations.coalesce(frame, time="t", values="v", buckets=4, name="mine")
        def use_spark(frame: DataFrame) -> DataFrame:
            return on_spark.coalesce(frame, time="t", values="v", buckets=4)
        def use_flink(stream: on_flink.Blocks) -> on_flink.Blocks:
            return on_flink.coalesce(on_flink.run(Coalesce(time="t", values="v"), [stream]), time="t", values="v")
    """
    bad = """
        import whenabouts.spark_plugin as on_spark
        from whenabouts.core import Point, operations, within
        def use(frame: str) -> int:
            t = Point("t")
            operations.coalesce(frame, time="t", values="v", colour=1)
            operations.coalesce(frame, time="t")
            operations.coalesce(frame, time="t", values="v", buckets="4")
            operations.coalesce(frame, time="t", values="v", state_limit=4)
            operations.timing_join(frame, left_time=t, right_time=t, condition=within(1, confidence=1))
            on_spark.coalesce(frame, time="t", values="v", colour=1)
            return operations.coalesce(frame, time="t", values="v")
    """
    for name, text in (("good", good), ("bad", bad)):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    command = [sys.executable, "-m", "mypy", *config, str(tmp_path / "good.py"), str(tmp_path / "bad.py")]
    told = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    found = [line for line in told.stdout.splitlines() if "good.py" in line or "bad.py" in line]
    expected = [
        (6, "colour"), (7, 'Missing named argument "values"'), (8, '"buckets"'), (9, '"state_limit"'),
        (10, "No overload variant"), (11, "colour"), (12, 'expected "int"'),
    ]  # fmt: skip
    errors = [line for line in found if "error:" in line]
    for error, (line, what) in zip(errors, expected, strict=True):
        assert f"bad.py:{line}:" in error, error
        assert what in error, error
    assert [line for line in found if "Revealed type" in line and "good.Frame" in line]


def test_warnings_name_the_line_of_the_call() -> None:
    """Of times in seconds, of digits that are cut, of a slide over the window: not a line in here."""
    table = pa.table({"t": [1_700_000_000], "v": [1], "ns": pa.array([1], pa.timestamp("ns"))})
    near: dict[str, Any] = {"condition": within(1, confidence=1)}

    def seconds(**more: Any) -> Any:
        return wa.timing_join(table, table, left_time=Point("t"), right_time=Point("t"), **near, **more)

    def digits(**more: Any) -> Any:
        return wa.timing_join(table, table, left_time=Point("ns"), right_time=Point("ns"), **near, **more)

    def slide(**more: Any) -> Any:
        return wa.coalesce(table, time="ns", values="v", window=1, slide=2, **more)

    for call in (
        seconds, digits, slide, lambda: seconds(batches=True).read_all(), lambda: seconds(pairs="ranges"),
        lambda: wa.Coalesce(time="t", values="v", window=1, slide=2),
    ):  # fmt: skip
        with pytest.warns(UserWarning, match="WA-") as told:
            call()
        assert {Path(each.filename) for each in told} == {Path(__file__)}
