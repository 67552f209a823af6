"""Every column type passes a query unchanged, or is refused by name before a job exists."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyflink.common import Row, Types
from pyflink.common.typeinfo import LocalTimeTypeInfo, TypeInformation
from pyflink.table import Schema, StreamTableEnvironment, Table, TableDescriptor

from whenabouts.core import InputError, Lateness, Point, within
from whenabouts.core.runtime.changes import changes_field
from whenabouts.core.state.segment_codec import encode
from whenabouts.flink_plugin import Blocks, collect, local_environment, rows_of, table_of, timing_join
from whenabouts.flink_plugin.blocks import ReadBlob
from whenabouts.flink_plugin.kafka import topic_sink
from whenabouts.flink_plugin.mini_cluster import PROCESS, THREAD

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

JOIN: Any = {
    "on": "k",
    "left_time": Point("t"),
    "right_time": Point("t"),
    "condition": within("1 s", confidence=1),
    "lateness": Lateness(left="1 h", right="1 h"),
}
UTC = dt.UTC

CARRIED: dict[str, tuple[str, pa.DataType, Any, Any]] = {
    "char": ("CHAR(5)", pa.string(), "ab   ", "ab   "),
    "varchar": ("VARCHAR(5)", pa.string(), "ä", "ä"),
    "string": ("STRING", pa.string(), "", ""),
    "truth": ("BOOLEAN", pa.bool_(), True, True),
    "binary": ("BINARY(3)", pa.binary(), "AP8B", b"\0\xff\1"),
    "varbinary": ("VARBINARY(3)", pa.binary(), "AP8=", b"\0\xff"),
    "bytes": ("BYTES", pa.binary(), "AA==", b"\0"),
    "tiny": ("TINYINT", pa.int8(), -128, -128),
    "small": ("SMALLINT", pa.int16(), 32767, 32767),
    "whole": ("INT", pa.int32(), -1, -1),
    "big": ("BIGINT", pa.int64(), 2**60 + 1, 2**60 + 1),
    "real": ("FLOAT", pa.float32(), 0.5, 0.5),
    "double": ("DOUBLE", pa.float64(), 0.1, 0.1),
    "money": ("DECIMAL(38, 2)", pa.decimal128(38, 2), 12.25, Decimal("12.25")),
    "day": ("DATE", pa.date32(), "1900-02-03", dt.date(1900, 2, 3)),
    "clock": ("TIME", pa.time32("s"), "23:59:58", dt.time(23, 59, 58)),
    "wall0": ("TIMESTAMP(0)", pa.timestamp("us"), "2024-05-01 00:00:01", dt.datetime(2024, 5, 1, 0, 0, 1)),
    "wall3": ("TIMESTAMP(3)", pa.timestamp("us"), "2024-05-01 00:00:01.001", dt.datetime(2024, 5, 1, 0, 0, 1, 1000)),
    "wall6": ("TIMESTAMP(6)", pa.timestamp("us"), "1900-01-01 00:00:01.000001", dt.datetime(1900, 1, 1, 0, 0, 1, 1)),
    "at3": (
        "TIMESTAMP_LTZ(3)", pa.timestamp("us", "UTC"), "2024-05-01 00:00:01.001Z",
        dt.datetime(2024, 5, 1, 0, 0, 1, 1000, UTC),
    ),
    "at6": (
        "TIMESTAMP_LTZ(6)", pa.timestamp("us", "UTC"), "2024-05-01 00:00:01.000001Z",
        dt.datetime(2024, 5, 1, 0, 0, 1, 1, UTC),
    ),
}  # fmt: skip
"""What SQL calls a type, what it is in Arrow, a value in JSON and in Python."""

EDGES = (
    "0001-01-01 00:00:00.000001", "1899-12-31 23:59:59.123456", "1969-12-31 23:59:58.000001",
    "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00", "1970-01-01 00:00:00.000001", "9999-12-31 23:59:59.999999",
)  # fmt: skip
"""Timestamps in columns of every precision, which truncate finer digits."""
TIMES = {name: int(sql.rstrip(")")[-1]) for name, (sql, *_) in CARRIED.items() if sql.startswith("TIMESTAMP")}


def _at(time: str) -> dict[str, str]:
    """A timestamp in all columns of timestamps, as JSON."""
    date, _, digits = time.partition(".")
    return {
        name: f"{date}.{digits[:precision]}".rstrip(".") + ("Z" if "LTZ" in CARRIED[name][0] else "")
        for name, precision in TIMES.items()
    }


def _python(time: str) -> dt.datetime:
    """A timestamp from JSON."""
    return dt.datetime.fromisoformat(time)


def _same(written: Any, read: Any) -> bool:
    """Whether two JSON values are equal: timestamps may have more trailing zeros."""
    if isinstance(written, str) and " " in written and ":" in written:
        return read is not None and _python(read) == _python(written)
    return bool(read == written)


def test_every_flat_type_passes_from_a_table_to_a_table_and_to_arrow(tmp_path: Path) -> None:
    full = {name: value for name, (_, _, value, _) in CARRIED.items()}
    edges = [{"k": k, "t": 0, **dict.fromkeys(CARRIED), **_at(time)} for k, time in enumerate(EDGES, start=3)]
    rows = [{"k": 1, "t": 0, **full}, {"k": 2, "t": 0, **dict.fromkeys(CARRIED)}, *edges]
    (tmp_path / "in.json").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    columns = [f"`{name}` {sql}" for name, (sql, *_) in CARRIED.items()]
    tables = StreamTableEnvironment.create(local_environment(1, mode=PROCESS))
    tables.execute_sql(
        f"CREATE TEMPORARY TABLE source (k BIGINT NOT NULL, t BIGINT, {', '.join(columns)}) WITH ("
        f"'connector' = 'filesystem', 'format' = 'json', 'path' = '{(tmp_path / 'in.json').as_uri()}')"
    )
    extra = "COALESCE(`whole`, 0) AS filled, PROCTIME() AS now_"
    left, right = tables.sql_query(f"SELECT *, {extra} FROM source"), tables.sql_query("SELECT k, t FROM source")
    assert not left.get_schema().get_field_data_type("filled")._nullable
    pairs = timing_join(left, right, **JOIN)
    assert isinstance(pairs, Table)
    found = collect(pairs)
    assert {name: found.schema.field(name).type for name in CARRIED} == {n: c[1] for n, c in CARRIED.items()}
    first, second, *rest = found.sort_by("k").to_pylist()
    assert {name: first[name] for name in CARRIED} == {name: value for name, (*_, value) in CARRIED.items()}
    assert {name: second[name] for name in CARRIED} == dict.fromkeys(CARRIED)
    for row, given in zip(rest, edges, strict=True):
        assert {name: row[name] for name in TIMES} == {name: _python(given[name]) for name in TIMES}
    assert (first["filled"], second["filled"]) == (-1, 0)
    assert first["now_"].year > 2000
    descriptor = str(topic_sink(left, "broker:9092", "left", **{"sink.delivery-guarantee": "at-least-once"}))
    assert [name for name in TIMES if f"`{name}` {CARRIED[name][0]}" not in descriptor] == []
    schema = Schema.new_builder().from_resolved_schema(pairs.get_resolved_schema())
    sink = TableDescriptor.for_connector("filesystem").schema(schema.build()).format("json")
    pairs.execute_insert(sink.option("path", (tmp_path / "out").as_uri()).build()).wait()
    written = [json.loads(line) for part in (tmp_path / "out").glob("part-*") for line in part.open(encoding="utf-8")]
    for row, given in zip(sorted(written, key=lambda row: row["k"]), rows, strict=True):
        assert [(n, given[n], row[n]) for n in CARRIED if not _same(given[n], row[n])] == []


@pytest.mark.parametrize(
    ("sql", "type_"),
    [
        ("ARRAY[1, 2]", "ARRAY"),
        ("MAP['a', 1]", "MAP"),
        ("ROW(1, 'a')", "ROW"),
        ("CAST(NULL AS MULTISET<INT>)", "MULTISET"),
        ("CAST(NULL AS ARRAY<ROW<a INT>>)", "ARRAY"),
        ("INTERVAL '1' DAY", "INTERVAL"),
        ("INTERVAL '1' MONTH", "INTERVAL"),
        ("PARSE_JSON('1')", "VARIANT"),
    ],
)
def test_every_other_type_of_a_table_is_refused_by_name(sql: str, type_: str) -> None:
    tables = StreamTableEnvironment.create(local_environment(1))
    odd = tables.sql_query(f"SELECT CAST(1 AS BIGINT) AS k, CAST(0 AS BIGINT) AS t, {sql} AS odd")
    plain = tables.sql_query("SELECT CAST(1 AS BIGINT) AS k, CAST(0 AS BIGINT) AS t")
    for sides in ((odd, plain), (plain, odd)):
        with pytest.raises(InputError, match=f"WA-1002: column 'odd' is .*{type_}"):
            timing_join(*sides, **JOIN)


_TIME = LocalTimeTypeInfo.TimeType
ROWS: dict[str, tuple[TypeInformation, Any]] = {
    "string": (Types.STRING(), "ä"),
    "truth": (Types.BOOLEAN(), False),
    "tiny": (Types.BYTE(), -128),
    "small": (Types.SHORT(), 32767),
    "whole": (Types.INT(), -1),
    "big": (Types.LONG(), 2**60 + 1),
    "real": (Types.FLOAT(), 0.5),
    "double": (Types.DOUBLE(), 0.1),
    "bytes": (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\0\xff"),
    "day": (Types.SQL_DATE(), dt.date(1900, 2, 3)),
    "wall": (Types.SQL_TIMESTAMP(), dt.datetime(2024, 5, 1, 0, 0, 1, 1000)),
}


@pytest.mark.parametrize("mode", [PROCESS, THREAD])
def test_every_flat_type_passes_from_rows_to_rows(mode: str) -> None:
    env = local_environment(1, mode=mode)
    type_ = Types.ROW_NAMED(["k", "t", *ROWS], [Types.LONG(), Types.LONG(), *(kind for kind, _ in ROWS.values())])
    rows = env.from_collection([Row(1, 0, *(value for _, value in ROWS.values()))], type_)
    plain = env.from_collection([Row(1, 0)], Types.ROW_NAMED(["k", "t"], [Types.LONG(), Types.LONG()]))
    pairs = timing_join(rows, plain, **JOIN)
    # In thread mode PyFlink gives Python Java's own objects for times.
    names = [name for name in ROWS if mode == PROCESS or name not in ("day", "wall")]
    told = pairs.map(lambda row: repr([row[name] for name in names]), Types.STRING())
    with told.execute_and_collect() as found:
        assert list(found) == [repr([ROWS[name][1] for name in names])]


@pytest.mark.parametrize(
    "type_",
    [
        Types.CHAR(), Types.BIG_INT(), Types.BIG_DEC(), Types.SQL_TIME(), LocalTimeTypeInfo(_TIME.LOCAL_TIME),
        Types.PICKLED_BYTE_ARRAY(), Types.PRIMITIVE_ARRAY(Types.INT()), Types.BASIC_ARRAY(Types.STRING()),
        Types.OBJECT_ARRAY(Types.STRING()), Types.LIST(Types.INT()), Types.MAP(Types.STRING(), Types.INT()),
        Types.ROW([Types.INT()]), Types.ROW_NAMED(["a"], [Types.INT()]), Types.TUPLE([Types.INT(), Types.INT()]),
    ],
    ids=str,
)  # fmt: skip
def test_every_other_type_of_rows_is_refused_by_name(type_: TypeInformation) -> None:
    env = local_environment(1)
    odd = env.from_collection([], Types.ROW_NAMED(["k", "t", "odd"], [Types.LONG(), Types.LONG(), type_]))
    with pytest.raises(InputError, match="WA-1002: column 'odd' is ") as refused:
        timing_join(odd, odd, **JOIN)
    assert (
        ("precision and scale" in str(refused.value))
        == ("and decimals" not in str(refused.value))
        == (str(type_) == str(Types.BIG_DEC()))
    )


_INSTANT = dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)
SPREAD: dict[str, tuple[pa.DataType, Any, str, str]] = {
    "truth": (pa.bool_(), False, "false", "False"),
    "tiny": (pa.int8(), -128, "-128", "-128"),
    "small": (pa.int16(), 32767, "32767", "32767"),
    "whole": (pa.int32(), -1, "-1", "-1"),
    "big": (pa.int64(), 2**60 + 1, "1152921504606846977", "1152921504606846977"),
    "real": (pa.float32(), 0.5, "0.5", "0.5"),
    "double": (pa.float64(), float("nan"), "NaN", "nan"),
    "text": (pa.string(), "ä", "ä", "'ä'"),
    "bytes": (pa.binary(), b"\0\xff", "[0, -1]", r"b'\x00\xff'"),
    "money": (pa.decimal128(10, 2), Decimal("1.20"), "1.20", "Decimal('1.20')"),
    "tens": (pa.decimal128(5, -1), Decimal("1.2E+2"), "1.2E+2", "Decimal('1.2E+2')"),
    "wide": (pa.decimal256(45, 1), Decimal("1" * 44 + ".5"), "1" * 44 + ".5", f"Decimal('{'1' * 44}.5')"),
    "day": (pa.date32(), dt.date(1900, 2, 3), "1900-02-03", "datetime.date(1900, 2, 3)"),
    "clock": (pa.time32("s"), dt.time(23, 59, 58), "23:59:58", "datetime.time(23, 59, 58)"),
    "milli": (pa.time32("ms"), dt.time(0, 0, 0, 7000), "00:00:00.007", "datetime.time(0, 0, 0, 7000)"),
    "wall": (
        pa.timestamp("us"), dt.datetime(1900, 1, 1, 0, 0, 1, 1),
        "1900-01-01T00:00:01.000001", "datetime.datetime(1900, 1, 1, 0, 0, 1, 1)",
    ),
    "at": (pa.timestamp("us", "UTC"), _INSTANT, "1969-12-31T23:59:59.999999Z", "Instant<-1, 999999000>"),
    "zoned": (pa.timestamp("us", "Asia/Tokyo"), _INSTANT, "1969-12-31T23:59:59.999999Z", "Instant<-1, 999999000>"),
}  # fmt: skip
"""Types of blocks: a value, and how Java and Python write it in a row."""
JAVA_IN_THREADS = ("day", "clock", "milli", "wall", "at", "zoned")


@pytest.mark.parametrize("mode", [PROCESS, THREAD])
def test_every_type_of_blocks_passes_to_rows_with_nulls_and_kinds(mode: str) -> None:
    ops = changes_field("op")
    schema = pa.schema([ops, *(pa.field(name, type_) for name, (type_, *_) in SPREAD.items())])
    values = [pa.array([value, None], type_) for type_, value, *_ in SPREAD.values()]
    rows = pa.RecordBatch.from_arrays([pa.array(["insert", "delete"]), *values], schema=schema)
    data, read = encode(rows), ReadBlob(schema)
    blocks = Blocks(local_environment(1, mode=mode).from_collection([1], Types.LONG()), schema, lambda _: read(data))
    names = [name for name in SPREAD if mode == PROCESS or name not in JAVA_IN_THREADS]
    told = rows_of(blocks).map(
        lambda row: f"{row.get_row_kind()} {', '.join(repr(row[name]) for name in names)}", Types.STRING()
    )
    nulls = ", ".join(["None"] * len(names))
    with told.execute_and_collect() as found:
        assert list(found) == [f"+I {', '.join(SPREAD[name][3] for name in names)}", f"-D {nulls}"]
    in_java = rows_of(blocks)._j_data_stream.executeAndCollect()
    assert [in_java.next().toString() for _ in range(2)] == [
        f"+I[{', '.join(java for *_, java, _ in SPREAD.values())}]",
        f"-D[{', '.join(['null'] * len(SPREAD))}]",
    ]
    in_java.close()


UP = {
    "uint8": pa.uint8(), "half": pa.float16(), "large": pa.large_string(), "fixed": pa.binary(2),
    "words": pa.dictionary(pa.int8(), pa.string()), "list": pa.list_(pa.int64()), "struct": pa.struct({"a": pa.int8()}),
    "map": pa.map_(pa.string(), pa.int8()), "wide": pa.decimal256(40, 2), "micros": pa.time64("us"),
    "lapse": pa.duration("us"), "nothing": pa.null(), "milli_day": pa.date64(), "uint64": pa.uint64(),
}  # fmt: skip


@pytest.mark.parametrize("name", UP)
def test_columns_of_blocks_that_flink_has_no_type_for_are_refused_by_name(name: str) -> None:
    env = local_environment(1)
    schema = pa.schema({"k": pa.int64(), name: UP[name]})
    blocks = Blocks(env.from_collection([1], Types.LONG()), schema, ReadBlob(schema))
    if name != "wide":  # rows have decimals of any size
        with pytest.raises(InputError, match=f"WA-1002: column '{name}' is "):
            rows_of(blocks)
    with pytest.raises(InputError, match=f"WA-1002: column '{name}' is "):
        table_of(blocks, StreamTableEnvironment.create(env))


def test_a_stream_of_changes_is_refused() -> None:
    env = local_environment(1)
    tables = StreamTableEnvironment.create(env)
    plain = tables.sql_query("SELECT CAST(1 AS BIGINT) AS k, CAST(0 AS BIGINT) AS t")
    tables.create_temporary_view("plain", plain)
    counted = tables.sql_query("SELECT k, MAX(t) AS t FROM plain GROUP BY k")
    for sides in ((counted, plain), (plain, counted)):
        with pytest.raises(InputError, match=r"WA-1065: .*has updates of rows"):
            timing_join(*sides, **JOIN)
    changes = tables.to_changelog_stream(counted)
    type_ = Types.ROW_NAMED(["k", "t"], [Types.LONG(), Types.LONG()])
    rows = env.from_collection([Row(1, 0)], type_)
    with pytest.raises(InputError, match=r"WA-1065: .*has updates of rows"):
        timing_join(rows, changes, **JOIN)
    timing_join(rows, tables.to_changelog_stream(plain), **JOIN)


@pytest.mark.parametrize(
    "sql",
    [
        "CAST(TIMESTAMP '2024-05-01 00:00:00.000001' AS TIMESTAMP_LTZ(6))", "ARRAY[1]", "MAP[1, 2]", "ROW(1, 2)",
        "INTERVAL '1' SECOND", "INTERVAL '1' MONTH",
    ],
)  # fmt: skip
def test_streams_of_tables_with_other_types_are_refused_before_the_job(sql: str) -> None:
    tables = StreamTableEnvironment.create(local_environment(1))
    table = tables.sql_query(f"SELECT CAST(1 AS BIGINT) AS k, CAST(0 AS BIGINT) AS t, {sql} AS odd")
    rows = tables.to_data_stream(table)
    with pytest.raises(InputError, match="WA-1002: "):
        timing_join(rows, rows, **JOIN)
