"""Every type, its extreme values and null, through every writer of results and of rejects; with and without pandas."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import Result

from whenabouts.cli.outputs import check_columns, write_table
from whenabouts.cli.result_table import print_first_rows
from whenabouts.core.arrays.plain_types import plain_table, plain_type
from whenabouts.core.arrays.value_texts import json_texts, texts
from whenabouts.core.errors import InputError, QueryError
from whenabouts.core.hosting.file_runs import OutcomeBatches
from whenabouts.core.runtime.time_columns import microseconds

Cli = Callable[..., Result]

LEAST, MOST = -(2**63), 2**63 - 1


def ticks(type_: pa.DataType, *values: int | None) -> pa.Array:
    return pa.array(values, pa.int32() if type_.bit_width == 32 else pa.int64()).view(type_)


def times(type_: pa.DataType) -> pa.Array:
    """The least, the greatest, one a little past the year 9999, null, and one of today."""
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[type_.unit]
    past = min(253_402_300_800 * per_second + 1, MOST)
    return ticks(type_, LEAST, MOST, past, None, 1_700_000_000 * per_second)


FAR_NS = times(pa.timestamp("ns"))
GRID: dict[str, pa.Array] = {
    "null": pa.nulls(2),
    "bool": pa.array([True, False, None]),
    **{
        f"{sign}int{bits}": pa.array(
            [0, None, 2 ** (bits - (not sign)) - 1, 0 if sign else -(2 ** (bits - 1))],
            getattr(pa, f"{sign}int{bits}")(),
        )
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    **{
        str(type_): pa.array([0.5, None, float("nan"), float("inf"), -0.0]).cast(type_)
        for type_ in (pa.float32(), pa.float64())
    },
    "float16": pa.array([0x3800, None, 0x7E00, 0x7C00], pa.uint16()).view(pa.float16()),
    **{f"timestamp {unit}": times(pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")},
    **{f"timestamp {unit} zoned": times(pa.timestamp(unit, "Asia/Tokyo")) for unit in ("s", "ms", "us", "ns")},
    **{f"duration {unit}": ticks(pa.duration(unit), LEAST, MOST, 1, None) for unit in ("s", "ms", "us", "ns")},
    "date32": ticks(pa.date32(), -(2**31), 2**31 - 1, 2_932_897, None, 19_000),
    "date64": ticks(pa.date64(), LEAST, MOST, 86_400_001, None, 86_400_000),
    **{f"time32 {unit}": ticks(pa.time32(unit), -(2**31), 2**31 - 1, 86_399, None) for unit in ("s", "ms")},
    **{f"time64 {unit}": ticks(pa.time64(unit), LEAST, MOST, 1, None) for unit in ("us", "ns")},
    "decimal128": pa.array([Decimal("1.10"), None, Decimal("9" * 36 + ".99")], pa.decimal128(38, 2)),
    "decimal256": pa.array([Decimal("1.10"), None, Decimal("9" * 74 + ".99")], pa.decimal256(76, 2)),
    "string": pa.array(["", None, 'a,"b"\n\x1b[31m', "é"]),
    "large_string": pa.array(["", None, "a"], pa.large_string()),
    "string_view": pa.array(["", None, "a text that is longer than a view"], pa.string_view()),
    "no UTF-8": pa.array([b"\xff\xfe", b"a"]).view(pa.string()),
    "binary": pa.array([b"", None, b"\xff\x00"]),
    "large_binary": pa.array([b"", None, b"\xff\x00"], pa.large_binary()),
    "fixed_size_binary": pa.array([b"\xff\x00", None], pa.binary(2)),
    "binary_view": pa.array([b"", None, b"\xff" * 20], pa.binary_view()),
    "dictionary": pa.array(["a", None]).dictionary_encode(),
    "run ends": pc.run_end_encode(pa.array([1, 1, None])),
    "interval": pa.array([pa.MonthDayNano([1, -2, 3]), None]),
    "list": pa.ListArray.from_arrays(pa.array([0, 5, None, 5], pa.int32()), FAR_NS),
    "large_list": pa.LargeListArray.from_arrays(pa.array([0, 5, None, 5]), times(pa.timestamp("s"))),
    "fixed_size_list": pa.FixedSizeListArray.from_arrays(pa.array([1, 2]), 1),
    "list_view": pa.ListViewArray.from_arrays(
        pa.array([1, 0], pa.int32()), pa.array([2, 3], pa.int32()), pa.array([7, 8, 9])
    ),
    "struct": pa.StructArray.from_arrays(
        [FAR_NS, ticks(pa.duration("s"), LEAST, MOST, 1, None, 0)], ["at", "took"],
        mask=pa.array([False, False, True, False, False]),
    ),
    "empty struct": pa.array([{}, None], pa.struct([])),
    "map": pa.MapArray.from_arrays(
        pa.array([0, 4, None, 4], pa.int32()), FAR_NS.drop_null(), pa.array([1, 2, None, 4])
    ),
    "dense union": pa.UnionArray.from_dense(
        pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), [FAR_NS, pa.array(["x"])]
    ),
    "sparse union": pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["x", "y"])]),
}  # fmt: skip


@pytest.mark.parametrize("kind", GRID)
def test_json_lines_hold_every_value(tmp_path: Path, kind: str) -> None:
    column = GRID[kind]
    write_table(pa.table({"v": column}), str(tmp_path / "f.jsonl"))
    lines = [json.loads(line, parse_float=Decimal) for line in (tmp_path / "f.jsonl").read_text().splitlines()]
    assert len(lines) == len(column)
    for start in range(len(column)):
        assert json_texts(column.slice(start, 1)) == json_texts(column)[start : start + 1]
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        assert [line["v"] for line in lines] == column.to_pylist()


@pytest.mark.parametrize("kind", GRID)
def test_csv_holds_every_value_or_says_so_before_the_run(tmp_path: Path, kind: str) -> None:
    column = GRID[kind]
    if pa.types.is_nested(plain_type(column.type)):
        with pytest.raises(QueryError, match=r"WA-2006.*column 'v' is .* CSV has no nested columns"):
            check_columns(pa.schema({"v": plain_type(column.type)}), "f.csv", "--output")
        return
    table = plain_table(pa.table({"v": column, "end": ["end"] * len(column)}))  # as results are
    check_columns(table.schema, "f.csv", "--output")
    write_table(table, str(tmp_path / "f.csv"))
    written = (tmp_path / "f.csv").read_bytes().decode(errors="replace")
    assert "out of range" not in written
    assert written.count('"end"\n') == len(column) + 1


NO_PARQUET = {"interval", "empty struct", "dense union", "sparse union"}
CHANGED_BY_PARQUET = {"timestamp s", "timestamp s zoned", "time32 s", "date64", "large_list"}
"""Seconds are milliseconds there, and dates whole days: values that these cannot hold would change."""


@pytest.mark.parametrize("kind", GRID)
def test_parquet_holds_every_value_or_says_so(tmp_path: Path, kind: str) -> None:
    table = plain_table(pa.table({"v": GRID[kind]}))
    if kind in NO_PARQUET:
        with pytest.raises(QueryError, match=r"WA-2006.*column 'v' is .* Parquet does not support"):
            check_columns(table.schema, "f.parquet", "--output")
        return
    check_columns(table.schema, "f.parquet", "--output")
    if kind in CHANGED_BY_PARQUET:
        with pytest.raises(InputError, match="WA-1067: column 'v' is"):
            write_table(table, str(tmp_path / "f.parquet"))
        assert list(tmp_path.iterdir()) == []
        return
    write_table(table, str(tmp_path / "f.parquet"))
    back = pq.read_table(tmp_path / "f.parquet")["v"].combine_chunks()
    same = back if pa.types.is_nested(back.type) else back.cast(plain_type(GRID[kind].type))
    assert texts(same) == texts(GRID[kind])


@pytest.mark.parametrize("kind", [kind for kind, column in GRID.items() if not pa.types.is_union(column.type)])
def test_a_row_of_any_payload_is_one_reject_and_one_row(cli: Cli, tmp_path: Path, kind: str) -> None:
    """Its time is outside the calendar: nanoseconds that were stored as microseconds."""
    column = GRID[kind]
    at = [1_700_000_000_000_000_000, *[1_700_000_000_000_000] * (len(column) - 1)]
    rows = pa.table({"t": pa.array(at, pa.timestamp("us", "UTC")), "v": column})
    try:
        pq.write_table(rows, tmp_path / "l.parquet")
        pq.read_table(tmp_path / "l.parquet")
    except (pa.ArrowException, NotImplementedError):
        return  # no Parquet file holds it
    for target in ("jsonl", "parquet", "csv"):
        done = cli(
            "join l.parquet l.parquet --left-time t --right-time t --within 1s --confidence 1 --how left_semi "
            f"-o out.{target} --rejects bad.{target}"
        )
        if target == "csv" and pa.types.is_nested(plain_type(column.type)):
            assert done.exit_code == 2
            continue
        assert done.exit_code == 0, done.stderr
        assert "rejected: 2 x WA-1007" in done.stderr
    assert len((tmp_path / "bad.jsonl").read_text().splitlines()) == 2
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == len(column) - 1
    strict = cli(
        "join l.parquet l.parquet --left-time t --right-time t --within 1s --confidence 1 --how left_semi --strict"
    )
    assert (strict.exit_code, "+55840-11-08T22:13:20.000000Z" in strict.stderr) == (1, True), strict.stderr


@pytest.mark.parametrize("kind", GRID)
def test_the_terminal_shows_every_value(capsys: pytest.CaptureFixture[str], kind: str) -> None:
    table = pa.table({"v": GRID[kind]})
    print_first_rows(OutcomeBatches(table.schema, iter(table.to_batches()), iter([]), Counter()))
    assert f"{table.num_rows} of {table.num_rows} rows" in capsys.readouterr().out


BAD_TIMES = {
    "date32": (ticks(pa.date32(), 2**31 - 1, 19_000), "", "+5881580-07-11"),
    "seconds": (pa.array([MOST, 5]), "--time-unit s", str(MOST)),
    "milliseconds": (pa.array([LEAST, 5]), "--time-unit ms", str(LEAST)),
    "uint64": (pa.array([2**64 - 1, 5], pa.uint64()), "--time-unit ns", str(2**64 - 1)),
    "int64": (pa.array([MOST, 5]), "", MOST),
    "timestamp": (ticks(pa.timestamp("us"), MOST, 5), "--time-zone Europe/Berlin", "+294247-01-10T03:00:54.775807Z"),
    "text": (pa.array([str(MOST), "5"]), "--time-unit s", str(MOST)),
}


@pytest.mark.parametrize("kind", BAD_TIMES)
def test_a_time_outside_the_calendar_is_one_reject_as_it_was_written(cli: Cli, tmp_path: Path, kind: str) -> None:
    column, options, written = BAD_TIMES[kind]
    pq.write_table(pa.table({"t": column}), tmp_path / "l.parquet")
    done = cli(f"coalesce l.parquet --time t --values v {options} -o out.jsonl --rejects bad.jsonl")
    assert done.exit_code == 3  # there is no such column
    pq.write_table(pa.table({"t": column, "v": [1, 2]}), tmp_path / "l.parquet")
    for target in ("parquet", "csv", "jsonl"):
        done = cli(f"coalesce l.parquet --time t --values v {options} -o out.{target} --rejects bad.{target}")
        assert done.exit_code == 0, done.stderr
        assert "rejected: 1 x WA-1007" in done.stderr
    (line,) = (tmp_path / "bad.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert (found["code"], found["v"]) == ("WA-1007", 1)
    assert found["t"] == written or kind == "timestamp"  # the zone moves it by its offset


def test_what_spark_has_no_type_for_is_cut_as_the_core_cuts_times_or_told() -> None:
    """Spark has microseconds: columns other than times, and keys, would change silently."""
    for_spark = pytest.importorskip("whenabouts.spark_plugin.parquet_types").for_spark
    table = pa.table({"t": ticks(pa.timestamp("ns", "UTC"), -1, 1_999, None), "v": [1, 2, 3]})
    found = for_spark(table, {"t"})
    cut = microseconds(table["t"].combine_chunks()).us.tolist()[:2]
    assert found["t"].cast(pa.int64()).to_pylist() == [*cut, None] == [-1, 1, None]
    with pytest.raises(InputError, match=r"WA-1067: column 't' is timestamp\[ns, tz=UTC\], and Spark"):
        for_spark(table)
    with pytest.raises(InputError, match=r"WA-1067: column 'at' is timestamp\[s\], and Spark"):
        for_spark(pa.table({"at": ticks(pa.timestamp("s"), 2**62)}), {"at"})
    assert for_spark(pa.table({"at": ticks(pa.timestamp("ns"), 2_000)})).schema.types == [pa.timestamp("us")]


CHANGED_BY_SPARK = {
    "timestamp s", "timestamp s zoned", "timestamp ms", "timestamp ms zoned", "duration s", "duration ms",
    "duration ns", "date64", "time64 us", "list", "large_list", "struct", "map",
}  # fmt: skip
"""Values that its types do not hold are refused."""

NOT_IN_SPARK = {"interval", "decimal256", "dense union", "sparse union"}


@pytest.mark.parametrize("kind", [kind for kind in GRID if not kind.startswith("timestamp ns")])
def test_spark_takes_a_type_with_all_values_or_says_so(kind: str) -> None:
    """Before a run, if it has no such type."""
    arrow_types = pytest.importorskip("whenabouts.spark_plugin.arrow_types")
    struct_type = pytest.importorskip("pyspark.sql.types").StructType
    table = pa.table({"v": GRID[kind]})
    schema = arrow_types.in_spark_types(table.schema)
    if kind in NOT_IN_SPARK:
        with pytest.raises(InputError, match=r"WA-1002: column 'v' is .*Spark has no such type"):
            arrow_types.spark_fields(schema)
        return
    target = arrow_types.worker_schema(struct_type(arrow_types.spark_fields(schema)))
    changed = 0
    for row in plain_table(table).to_batches(max_chunksize=1):
        try:
            found = arrow_types.conform(row, target)["v"]
        except InputError:
            changed += 1
            continue
        assert pa.types.is_null(row["v"].type) or texts(found.cast(row["v"].type)) == texts(row["v"])
    assert (changed > 0) == (kind in CHANGED_BY_SPARK)


@pytest.mark.parametrize("unit", ["s", "ns"])
@pytest.mark.parametrize("nest", ["list", "large list", "fixed list", "struct", "map", "struct of lists"])
def test_nested_times_that_spark_would_change_are_told(unit: str, nest: str) -> None:
    """They were truncated when files were staged for Spark."""
    arrow_types = pytest.importorskip("whenabouts.spark_plugin.arrow_types")
    for_spark = pytest.importorskip("whenabouts.spark_plugin.parquet_types").for_spark

    def nested(kind: pa.DataType) -> tuple[pa.DataType, Any]:
        return {
            "list": (pa.list_(kind), lambda t: [t]),
            "large list": (pa.large_list(kind), lambda t: [t]),
            "fixed list": (pa.list_(kind, 1), lambda t: [t]),
            "struct": (pa.struct({"a": pa.int8(), "t": kind}), lambda t: {"a": 1, "t": t}),
            "map": (pa.map_(pa.string(), kind), lambda t: [("x", t)]),
            "struct of lists": (pa.struct({"t": pa.list_(kind)}), lambda t: {"t": [t]}),
        }[nest]

    type_, make = nested(pa.timestamp(unit))
    change, keep = (2**62, 5) if unit == "s" else (2_001, 2_000)
    bad, good = (pa.table({"v": pa.array([make(n), None], type_)}) for n in (change, keep))
    with pytest.raises(InputError, match=r"WA-1067: column 'v' is .*, and Spark"):
        for_spark(bad, {"v"})
    found = for_spark(good)
    micros, _ = nested(pa.timestamp("us"))
    assert found.schema.types == [micros]
    assert found["v"].to_pylist() == [make(good_time(unit, keep)), None]
    with pytest.raises(InputError, match=r"WA-1067: column 'v' is .*, and Spark"):
        arrow_types.conform(bad.to_batches()[0], found.schema)
    assert arrow_types.conform(good.to_batches()[0], found.schema).to_pylist() == found.to_pylist()


def good_time(unit: str, ticks: int) -> dt.datetime:
    """A naive timestamp of so many units."""
    return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=ticks * 1_000_000 if unit == "s" else ticks // 1000)


def test_times_on_their_way_into_spark_are_rounded_down_and_never_wrap() -> None:
    arrow_types = pytest.importorskip("whenabouts.spark_plugin.arrow_types")
    micros = pa.schema({"t": pa.timestamp("us")})
    fine = pa.record_batch({"t": pa.array([-1, 1_999], pa.timestamp("ns"))})
    assert arrow_types.conform(fine, micros)["t"].cast(pa.int64()).to_pylist() == [-1, 1]
    repeated = [1_729_989_000_000_001_999, 1_729_992_600_000_001_999]  # half past two in Berlin, before and after
    zoned = pa.record_batch({"t": pa.array(repeated, pa.timestamp("ns", "Europe/Berlin"))})
    found = arrow_types.conform(zoned, pa.schema({"t": pa.timestamp("us", "UTC")}))
    assert found["t"].cast(pa.int64()).to_pylist() == [ns // 1000 for ns in repeated]
    with pytest.raises(InputError, match="WA-1067: column 't' is"):
        arrow_types.conform(pa.record_batch({"t": pa.array([2**62], pa.timestamp("s"))}), micros)


@pytest.mark.slow
def test_no_pandas_is_needed(tmp_path: Path) -> None:
    """Nanoseconds used to go through pandas: without it the run failed."""
    rows = {
        "t": pa.array([1, 2, 10**18], pa.timestamp("ns")),
        "k": [1, 2, 3],
        "took": ticks(pa.duration("ns"), 1, 2, None),
    }
    nested = pa.StructArray.from_arrays([rows["t"]], ["at"])
    pq.write_table(pa.table({**rows, "in": nested}), tmp_path / "l.parquet")
    pq.write_table(pa.table({**rows, "t": ticks(pa.timestamp("us"), 1, MOST, 10**15)}), tmp_path / "r.parquet")
    (tmp_path / "c.csv").write_text("t,k,at\n2024-01-01T00:00:00.000000001,1,2024-01-01T00:00:00.000000001\n,2,\n")
    code = """
import sys
class NoPandas:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            raise ImportError("pandas is not here")
sys.meta_path.insert(0, NoPandas())
from whenabouts.cli import main
main(sys.argv[1:], standalone_mode=False)
"""
    join = "join l.parquet r.parquet --left-time t --right-time t --within 1s --confidence 1"
    coalesce = "coalesce c.csv --time t --group k --values at"
    for command in (
        *(f"{join} -o out.{kind} --rejects bad.{kind}" for kind in ("parquet", "jsonl")),
        f"{join} --how right_semi --strict",
        f"{join} --on k --how full_outer",
        f"{join} --on t --why 0,0",
        f"{coalesce} -o out.csv --rejects bad.csv",
        f"{coalesce} --range 1h --slide 30m --stream --lateness 1h",
    ):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        words = [sys.executable, "-c", code, *command.split()]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
        expected = 2 if "right_semi" in command else 0
        assert done.returncode == expected or "--strict" in command, done.stderr
        assert "pandas" not in done.stderr
