"""Dataframes of other libraries give the answer of Arrow tables, in their own kind, their columns as they were."""

from __future__ import annotations

import datetime as dt
import weakref
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import whenabouts as wa
from whenabouts.core.errors import Code, InputError

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")
nw = pytest.importorskip("narwhals")
pl_testing = pytest.importorskip("polars.testing")

LEFT = pa.table({
    "t": pa.array([0, 10, 20, 30, None], pa.timestamp("us")),
    "k": ["a", "a", "b", None, "a"],
    "n": [2**60 + 1, None, 3, 4, 5],
    "room": ["hall", "hall", "hall", "gate", "gate"],
})  # fmt: skip
RIGHT = pa.table({
    "t": pa.array([1, 12, 21, 90], pa.timestamp("us")),
    "k": ["a", "a", "b", "a"],
    "m": [2**60 + 3, 2, 3, 4],
})  # fmt: skip
JOIN: dict[str, Any] = {
    "left_time": wa.Point("t"), "right_time": wa.Point("t"), "on": "k", "condition": wa.within("2us", confidence=1),
}  # fmt: skip


class OnlyAStream:
    """An object of which nothing is known but Arrow's C interface."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


KINDS: dict[str, tuple[Callable[[pa.Table], Any], type]] = {
    "Table": (lambda table: table, pa.Table),
    "RecordBatch": (lambda table: pa.RecordBatch.from_pylist(table.to_pylist(), table.schema), pa.RecordBatch),
    "RecordBatchReader": (lambda table: table.to_reader(max_chunksize=2), pa.RecordBatchReader),
    "Dataset": (ds.dataset, ds.Dataset),
    "pandas": (lambda table: table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get), pd.DataFrame),
    "pandas with Arrow": (lambda table: table.to_pandas(types_mapper=pd.ArrowDtype), pd.DataFrame),
    "Polars": (pl.from_arrow, pl.DataFrame),
    "lazy Polars": (lambda table: pl.from_arrow(table).lazy(), pl.LazyFrame),
    "DuckDB": (duckdb.from_arrow, duckdb.DuckDBPyRelation),
    "Narwhals": (lambda table: nw.from_native(pl.from_arrow(table)), nw.DataFrame),
    "lazy Narwhals": (lambda table: nw.from_native(pl.from_arrow(table).lazy()), nw.LazyFrame),
    "a stream": (OnlyAStream, pa.Table),
}
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "timing_join": lambda left, right: wa.timing_join(left, right, **JOIN),
    "left_outer": lambda left, right: wa.timing_join(left, right, **JOIN, how="left_outer"),
    "left_anti": lambda left, right: wa.timing_join(left, right, **JOIN, how="left_anti"),
    "window_join": lambda left, right: wa.window_join(
        {"l": left, "r": right}, on="k", time=wa.Point("t"), windows={("l", "r"): "5us"}
    ),
    "coalesce": lambda left, _: wa.coalesce(left, time="t", group="room", values="k"),
    "temporal_aggregate": lambda left, _: wa.temporal_aggregate(
        left, time="t", group="room", values="k", window="50us", at=40, aggregates={"n": "count"}
    ),
    "temporal_join": lambda left, _: wa.temporal_join(left, left, time="t", group="room", values="k", window="50us"),
    "run": lambda left, right: wa.run(wa.TimingJoin(**JOIN), [left, right]),
}


def _rows(frame: Any) -> list[str]:
    """Rows as text, whatever library they are in, in no order."""
    if isinstance(frame, nw.DataFrame | nw.LazyFrame):
        frame = nw.to_native(frame)
    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    if isinstance(frame, pd.DataFrame):
        frame = pa.Table.from_pandas(frame, preserve_index=False)
    if isinstance(frame, ds.Dataset):
        frame = frame.to_table()
    elif isinstance(frame, duckdb.DuckDBPyRelation):
        frame = frame.to_arrow_table()
    elif isinstance(frame, pa.RecordBatch):
        frame = pa.Table.from_batches([frame])
    elif not isinstance(frame, pa.Table):
        frame = pa.RecordBatchReader.from_stream(frame).read_all()
    for i, field in enumerate(frame.schema):
        if pa.types.is_timestamp(field.type):  # DuckDB gives names of its own to UTC
            frame = frame.set_column(i, field.name, frame.column(i).cast(pa.int64()))
    return [str(frame.column_names), *sorted(str(row) for row in frame.to_pylist())]


@pytest.mark.filterwarnings("ignore::whenabouts.RejectedRowsWarning")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_answer_of_tables_in_its_own_kind(kind: str, call: str) -> None:
    make, class_ = KINDS[kind]
    expected = CALLS[call](LEFT, RIGHT)
    found = CALLS[call](make(LEFT), make(RIGHT))
    assert isinstance(found, class_)
    rejects = wa.rejects(found)
    assert isinstance(rejects, class_)
    assert _rows(found) == _rows(expected)
    assert _rows(rejects) == _rows(wa.rejects(expected))


@pytest.mark.parametrize("kind", KINDS)
def test_frames_without_rows_and_with_one(kind: str) -> None:
    make = KINDS[kind][0]
    for rows in (0, 1):
        left, right = LEFT.slice(0, rows), RIGHT.slice(0, rows)
        found = wa.timing_join(make(left), make(right), **JOIN)
        assert _rows(found) == _rows(wa.timing_join(left, right, **JOIN))


def _pandas_columns() -> Any:
    moments = ["2024-01-01T00:00:00.000001", None, "2024-07-01"]
    return pd.DataFrame({
        "t": pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-03"]),
        "int": [1, 2, 3], "small": pd.array([1, 2, 3], dtype="int8"), "large": pd.array([2**63, 1, 2], dtype="uint64"),
        "float": [0.5, None, 2.0], "float32": pd.array([0.5, 1.0, 2.0], dtype="float32"), "bool": [True, False, True],
        "Int64": pd.array([2**60 + 1, None, 3], dtype="Int64"),
        "boolean": pd.array([True, None, False], dtype="boolean"),
        "Float64": pd.array([0.5, None, 1.0], dtype="Float64"), "string": pd.array(["a", None, ""], dtype="string"),
        "object": ["a", None, ""], "bytes": [b"a", None, b""], "decimal": [Decimal("1.10"), None, Decimal("2.00")],
        "date": [dt.date(2024, 1, 1), None, dt.date(1, 1, 1)], "list": [[1], None, []],
        "category": pd.Categorical(["b", None, "a"], categories=["c", "b", "a"], ordered=True),
        "ns": pd.to_datetime(moments, format="ISO8601"),
        "s": pd.to_datetime(moments, format="ISO8601").astype("datetime64[s]"),
        "zone": pd.to_datetime(moments, format="ISO8601").tz_localize("Europe/Rome"),
        "timedelta": pd.to_timedelta([1, None, 3], unit="h"),
        "period": pd.PeriodIndex(["2024-01", None, "2024-03"], freq="M"),
        "interval": pd.interval_range(0, 3, closed="left"), "arrow": pd.array([1, None, 3], dtype="int32[pyarrow]"),
        "arrow time": pd.array([1, None, 3], dtype=pd.ArrowDtype(pa.timestamp("ms", "UTC"))),
        "arrow text": pd.array(["a", None, ""], dtype=pd.ArrowDtype(pa.string())),
    })  # fmt: skip


@pytest.mark.parametrize("column", list(_pandas_columns().columns))
def test_columns_of_pandas_come_back_as_they_were(column: str) -> None:
    frame = _pandas_columns()
    moments = pd.DataFrame({"at": frame["t"]})
    found = wa.timing_join(
        frame, moments, left_time=wa.Point("t"), right_time=wa.Point("at"), condition=wa.within(0, confidence=1)
    )
    found, wanted = found.sort_values("t", ignore_index=True)[column], frame[column]
    assert found.dtype == wanted.dtype
    assert found.map(str).to_list() == wanted.map(str).to_list()


@pytest.mark.parametrize("column", list(_pandas_columns().columns.drop("t")))
def test_columns_of_a_missing_partner_keep_what_pandas_can_keep(column: str) -> None:
    """Whole numbers and booleans become nullable, for floats lose digits; everything else keeps its dtype."""
    frame = _pandas_columns()
    alone = pd.DataFrame({"at": pd.to_datetime(["2024-01-01", "1999-01-01"])})
    found = wa.timing_join(
        alone, frame, left_time=wa.Point("at"), right_time=wa.Point("t"), condition=wa.within(0, confidence=1),
        how="left_outer",
    )  # fmt: skip
    found = found.sort_values("at", ignore_index=True, ascending=False)
    nullable = {"int": "Int64", "small": "Int8", "large": "UInt64", "bool": "boolean"}
    nullable["interval"] = "interval[float64, left]"
    assert found[column].dtype == nullable.get(column, frame[column].dtype)
    assert found[column][:1].astype(frame[column].dtype).map(str)[0] == str(frame[column][0])
    assert found[column].isna()[1]


def test_named_levels_of_an_index_are_columns_and_others_are_not() -> None:
    frame = LEFT.to_pandas().dropna(subset=["t"]).set_index("t")
    pairs = wa.timing_join(frame, RIGHT.to_pandas(), **JOIN)
    assert pairs.columns[0] == "t_left"
    assert list(pairs.index) == [0, 1, 2]
    several = frame.set_index(pd.MultiIndex.from_arrays([frame.index, range(4)], names=["t", None]))
    assert list(wa.timing_join(several, RIGHT.to_pandas(), **JOIN).columns) == list(pairs.columns)
    filtered = RIGHT.to_pandas().query("m > 2")
    assert "index" not in wa.timing_join(frame, filtered, **JOIN).columns


def test_columns_of_polars_come_back_as_they_were() -> None:
    frame = pl.DataFrame({
        "t": [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2)],
        "enum": pl.Series(["b", None], dtype=pl.Enum(["c", "b"])),
        "category": pl.Series(["b", None], dtype=pl.Categorical),
        "text": ["ä", None], "bytes": [b"x", None], "list": [[1], None],
        "array": pl.Series([[1, 2], None], dtype=pl.Array(pl.Int8, 2)), "struct": [{"a": 1}, None],
        "ns": pl.Series([1, None], dtype=pl.Datetime("ns", "Europe/Rome")),
        "u8": pl.Series([1, None], dtype=pl.UInt8),
        "duration": [dt.timedelta(1), None], "time": [dt.time(1), None], "date": [dt.date(2024, 1, 1), None],
        "decimal": [Decimal("1.10"), None], "null": [None, None], "bool": [True, None],
    })  # fmt: skip
    point = wa.Point("t")
    pairs = wa.timing_join(
        frame, frame.select(at="t"), left_time=point, right_time=wa.Point("at"), condition=wa.within(0, confidence=1)
    )
    pl_testing.assert_frame_equal(pairs.sort("t").select(frame.columns), frame)


def test_relations_of_duckdb_stay_on_their_connection() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE visits AS SELECT TIMESTAMP '2024-01-01' AS t, 'a' AS k, 7::HUGEINT AS n")
    visits = connection.table("visits")
    pairs = wa.timing_join(visits, visits, **JOIN)
    connection.register("pairs", pairs.to_arrow_table())
    joined = pairs.set_alias("pairs").join(visits.set_alias("visits"), "pairs.k = visits.k")
    assert len(joined.fetchall()) == 1


def test_types_of_duckdb_come_back_as_they_were() -> None:
    connection = duckdb.connect()
    rows = connection.sql("""
        SELECT 1::BIGINT AS t, 'a'::ENUM('b', 'a') AS e, uuid() AS u, 5::HUGEINT AS h, '101'::BIT AS b, NULL AS n,
        ['b'] AS l, 2 AS "q""x", 'it''s'::ENUM('it''s', 'a') AS i""")
    pairs = wa.timing_join(
        rows, rows.select("t AS other"), left_time=wa.Point("t"), right_time=wa.Point("other"),
        condition=wa.within(0, confidence=1),
    )  # fmt: skip
    assert list(map(str, pairs.types))[:9] == list(map(str, rows.types))
    assert pairs.project('e, h, b, l, "q""x", i').fetchall() == [("a", 5, "101", ["b"], 2, "it's")]


def test_no_table_of_duckdb_takes_the_place_of_a_result() -> None:
    connection = duckdb.connect()
    for name in ("result", "table", "rows"):
        connection.sql(f'CREATE TABLE "{name}" AS SELECT 42 AS surprise')
    visits = connection.sql("SELECT TIMESTAMP '2024-01-01' AS t, 'a' AS k, NULL::TIMESTAMP AS spare")
    pairs = wa.timing_join(visits, visits, **JOIN)
    assert pairs.columns == ["t_left", "k", "spare_left", "t_right", "spare_right", "probability"]
    connection.sql("SET python_enable_replacements = false")
    with pytest.raises(InputError) as refused:
        wa.timing_join(visits, visits, **JOIN)
    _fails(refused, Code.UNREADABLE_FRAME, "python_enable_replacements")


def test_periods_are_neither_times_nor_equal_to_those_of_another_length() -> None:
    days = pd.DataFrame({"k": pd.PeriodIndex(["1971-10-11"], freq="D"), "t": [1]})
    months = pd.DataFrame({"k": pd.PeriodIndex(["2024-01"], freq="M"), "t": [1]})
    assert days.k.astype("int64")[0] == months.k.astype("int64")[0]
    point = wa.Point("t")
    exact: dict[str, Any] = {"left_time": point, "right_time": point, "condition": wa.within(0, confidence=1)}
    assert wa.timing_join(days, months, on="k", **exact).empty
    assert wa.timing_join(days, days, on="k", **exact).k.dtype == "period[D]"
    with pytest.raises(InputError) as refused:
        wa.timing_join(days, months, **exact | {"left_time": wa.Point("k")})
    _fails(refused, Code.WRONG_TYPE, "time column 'k' of the left input is")


@pytest.mark.parametrize("unit", ["D", "W", "M", "3M", "Q-MAR", "Y", "2h", "min", "ms", "ns"])
def test_periods_come_back_as_they_were(unit: str) -> None:
    given = pd.DataFrame({"k": pd.period_range("2024-05-01 10:00", periods=3, freq=unit), "t": [1, 2, 3]})
    given.loc[1, "k"] = pd.NaT
    point = wa.Point("t")
    pairs = wa.timing_join(
        given, given[["t"]], left_time=point, right_time=point, condition=wa.within(0, confidence=1)
    ).sort_values("t_left")
    assert pairs.k.dtype == given.k.dtype
    assert pairs.k.tolist() == given.k.tolist()


def test_objects_of_polars_are_refused() -> None:
    frame = pl.DataFrame({"t": [1], "o": [object()]})
    with pytest.raises(InputError) as refused:
        wa.timing_join(frame, frame, **JOIN)
    _fails(refused, Code.UNREADABLE_FRAME, "left", "column 'o' holds objects of Python")


def test_a_frame_given_twice_is_read_once() -> None:
    reader = RIGHT.to_reader()
    assert wa.timing_join(reader, reader, **JOIN).read_all().num_rows == 4


def test_results_hold_no_input() -> None:
    left, right = LEFT.to_pandas().dropna(subset=["t"]), RIGHT.to_pandas()
    gone = [weakref.ref(left), weakref.ref(right)]
    pairs = wa.timing_join(left, right, **JOIN)
    del left, right
    assert len(pairs) == 3
    assert [there() for there in gone] == [None, None]


def _fails(error: pytest.ExceptionInfo[InputError], code: Code, *words: str) -> None:
    assert error.value.code == code
    assert not [word for word in words if word not in str(error.value)], str(error.value)


def test_frames_of_several_libraries_are_refused() -> None:
    kinds = {kind: make(RIGHT) for kind, (make, _) in KINDS.items() if kind in ("Table", "pandas", "Polars", "DuckDB")}
    for kind, right in kinds.items():
        for other, left in kinds.items():
            if kind != other:
                with pytest.raises(InputError) as refused:
                    wa.timing_join(left, right, **JOIN)
                _fails(refused, Code.MIXED_FRAMES, "left", "right", other.removesuffix("Table").lower())


def test_eager_and_lazy_frames_of_a_library_go_together() -> None:
    pairs = wa.timing_join(pl.from_arrow(RIGHT).lazy(), pl.from_arrow(RIGHT), **JOIN)
    assert isinstance(pairs, pl.LazyFrame)


@pytest.mark.parametrize("column", [pa.chunked_array([[1]]), pl.Series([1]), pd.Series([1]), iter([LEFT]), LEFT.schema])
def test_what_is_no_frame_is_refused(column: Any) -> None:
    for call in (CALLS["timing_join"], CALLS["coalesce"], CALLS["window_join"]):
        with pytest.raises(InputError) as refused:
            call(column, column)
        _fails(refused, Code.NOT_AN_INPUT, "left" if call is CALLS["timing_join"] else "", "dataframe")


def test_frames_whose_rows_cannot_be_read_are_refused() -> None:
    lazy = pl.LazyFrame({"t": [1]}).select("no such column")
    with pytest.raises(InputError) as refused:
        wa.timing_join(pl.from_arrow(LEFT).lazy(), lazy, **JOIN)
    _fails(refused, Code.UNREADABLE_FRAME, "right", "no such column", "compute it before")
    for frame, words in (
        (pd.DataFrame({"t": [1, "x"]}), "column t"),
        (pd.DataFrame({0: [1]}), "column name 0"),
        (pd.DataFrame({"t": [1]}, index=pd.Index([1], name="t")), "level of the index"),
    ):
        with pytest.raises(InputError) as refused:
            wa.timing_join(frame, frame, **JOIN)
        _fails(refused, Code.UNREADABLE_FRAME, "left", words)


def test_frames_without_columns_are_refused() -> None:
    for frame in (pd.DataFrame(), pl.DataFrame(), pa.table({})):
        with pytest.raises(InputError) as refused:
            wa.timing_join(frame, frame, **JOIN)
        _fails(refused, Code.MISSING_COLUMN, "no columns")


def test_questions_take_frames_too() -> None:
    query = wa.TimingJoin(**JOIN)
    answer = wa.why_not(RIGHT.to_pandas().iloc[:1], pl.from_arrow(RIGHT).head(1), query=query)
    assert answer.matched
    expected = wa.chance_matches(RIGHT, RIGHT, query=query)
    assert wa.chance_matches(RIGHT.to_pandas(), RIGHT.to_pandas(), query=query) == expected


OF_PANDAS: dict[str, Callable[[Any, Any], Any]] = {
    "asof_join": lambda left, right: wa.asof_join(left, right, left_time=wa.Point("t"), right_time=wa.Point("t")),
    "timing_join": lambda left, right: wa.timing_join(
        left, right, left_time=wa.Point("t"), right_time=wa.Point("t"), condition=wa.within("1 s", confidence=1)
    ),
    "coalesce": lambda left, _: wa.coalesce(left, time="t", values="x"),
}


@pytest.mark.parametrize("name", OF_PANDAS)
def test_a_frame_of_pandas_has_memory_of_its_own(name: str) -> None:
    """It can be changed, and neither it nor the input changes with the other."""
    seconds = pd.date_range("2024-05-01", periods=4, freq="s")
    zone, small = seconds.tz_localize("UTC"), pd.array(range(4), "int8")
    left = pd.DataFrame(
        {"t": seconds, "zone": zone, "n": range(4), "x": [0.5, 1.5] * 2, "small": small, "s": list("abab")}
    )
    left = left.assign(whole=pd.array(range(4), "Int64"), kind=pd.Categorical(["a", "b"] * 2))
    right = pd.DataFrame({"t": seconds, "m": range(4)})
    before = left.copy(deep=True)
    found = OF_PANDAS[name](left, right)
    for column in range(found.shape[1]):
        found.iloc[0, column] = found.iloc[1, column]
    pd.testing.assert_frame_equal(left, before)
    found = OF_PANDAS[name](left, right)
    wanted = found.copy(deep=True)
    left.loc[:, ["n", "x", "small"]] = 7
    pd.testing.assert_frame_equal(found, wanted)
