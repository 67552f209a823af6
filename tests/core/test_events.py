"""Where rows enter: units, faults, accounting."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.core import Code, Histogram, InputError, Interval, Point, WhenaboutsError
from whenabouts.core.arrays.record_batches import copy_of
from whenabouts.core.expressions.tree import Expression, column
from whenabouts.core.runtime.blocks import T_MAX, T_MIN, TEMPLATE, times
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.runtime.protocol import Reader, Rejected
from whenabouts.core.runtime.rejects import reject_rows, rejects_schema
from whenabouts.core.runtime.time_columns import FIRST_US, LAST_US
from whenabouts.core.state.segment_codec import decode, encode
from whenabouts.core.wrappers.select_project import DerivingReader, wider


def read(batch: pa.RecordBatch, spec: Point | Interval) -> tuple[pa.RecordBatch, dict[str, list[dict[str, object]]]]:
    block, rejected = EventReader(0, "left", batch.schema, spec).read(batch)
    assert block.num_rows + sum(r.rows.num_rows for r in rejected) == batch.num_rows
    return block, {str(r.code): r.rows.to_pylist() for r in rejected}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_timestamps_of_any_unit_are_utc_microseconds(unit: str, zone: str | None) -> None:
    second = 1_500_000_000
    array = pa.array([second, -1], pa.timestamp("s", zone)).cast(pa.timestamp(unit, zone))
    block, _ = read(pa.record_batch({"t": array}), Point("t"))
    assert times(block)[0].tolist() == [second * 1_000_000, -1_000_000]


def test_parts_of_a_microsecond_are_cut_downwards() -> None:
    block, _ = read(pa.record_batch({"t": pa.array([1_999, -1], pa.timestamp("ns"))}), Point("t"))
    assert times(block)[0].tolist() == [1, -1]


def test_each_fault_has_its_code_and_keeps_the_row() -> None:
    batch = pa.record_batch(
        {
            "a": pa.array([0, None, 5, 0, 0, FIRST_US - 1, 3], pa.int64()),
            "b": pa.array([10, 10, 4, 101, 1, FIRST_US, 13], pa.int64()),
            "row": list("abcdefg"),
        }
    )
    block, rejected = read(batch, Interval("a", "b", max_uncertainty=100, min_uncertainty=2))
    assert block.column("row").to_pylist() == ["a", "g"]
    assert {code: [row["row"] for row in rows] for code, rows in rejected.items()} == {
        "WA-1003": ["b"],
        "WA-1004": ["c"],
        "WA-1005": ["d"],
        "WA-1006": ["e"],
        "WA-1007": ["f"],
    }
    assert rejected["WA-1004"] == [{"a": 5, "b": 4, "row": "c"}]


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_times_beyond_the_calendar_do_not_wrap(unit: str) -> None:
    batch = pa.record_batch({"t": pa.array([2**62, -(2**62), 0], pa.timestamp(unit))})
    block, rejected = EventReader(0, "left", batch.schema, Point("t")).read(batch)
    assert block.num_rows == 1
    assert [(str(r.code), r.rows.num_rows) for r in rejected] == [("WA-1007", 2)]


def test_an_all_null_column_rejects_every_row() -> None:
    block, rejected = read(pa.record_batch({"t": pa.nulls(2)}), Point("t"))
    assert (block.num_rows, list(rejected)) == (0, ["WA-1003"])


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        (pa.schema({"x": pa.int64()}), "WA-1001"),
        (pa.schema({"t": pa.float64()}), "WA-1002"),
        (pa.schema({"t": pa.string()}), "WA-1002"),
        (pa.schema({"t": pa.int32()}), "WA-1002"),
        (pa.schema({"t": pa.date32()}), "WA-1002"),
        (pa.schema({"t": pa.int64(), "_wa_t_min": pa.int64()}), "WA-1011"),
        (pa.schema([("t", pa.int64()), ("t", pa.int64())]), "WA-2009"),
    ],
)
def test_what_no_row_can_mend(schema: pa.Schema, code: str) -> None:
    with pytest.raises(WhenaboutsError, match=code):
        EventReader(0, "left", schema, Point("t"))


def test_dictionary_columns_are_decoded() -> None:
    batch = pa.record_batch({"t": [1, 2], "d": pa.array(["x", "y"]).dictionary_encode()})
    block, _ = read(batch, Point("t"))
    assert block.schema.field("d").type == pa.string()
    assert block.column("d").to_pylist() == ["x", "y"]


@given(st.lists(st.tuples(st.integers(FIRST_US, LAST_US), st.integers(0, 10**9))))
def test_good_rows_pass_unchanged(rows: list[tuple[int, int]]) -> None:
    starts = [t for t, length in rows if t + length <= LAST_US]
    ends = [t + length for t, length in rows if t + length <= LAST_US]
    batch = pa.record_batch({"a": pa.array(starts, pa.int64()), "b": pa.array(ends, pa.int64())})
    block, rejected = read(batch, Interval("a", "b", max_uncertainty=10**9))
    assert not rejected
    assert (block.column(T_MIN).to_pylist(), block.column(T_MAX).to_pylist()) == (starts, ends)


def test_calendar_ends() -> None:
    assert datetime(1, 1, 1, tzinfo=UTC).timestamp() * 1_000_000 == FIRST_US
    assert datetime.fromtimestamp((LAST_US - 999_999) / 1_000_000, UTC) == datetime(
        9999, 12, 31, 23, 59, 59, tzinfo=UTC
    )


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ({"t": [1]}, "WA-1001: later rows of the left input have no column 'v' .*it has t"),
        ({"t": [1], "v": ["x"]}, "WA-1002: column 'v' of later rows of the left input is string, before it was int64"),
        ({"t": [1], "v": [[1]]}, "WA-1002: column 'v' of later rows of the left input is list"),
    ],
)
@pytest.mark.parametrize("computed", [(), (("w", column("v")),)], ids=["read", "computed"])
def test_rows_of_another_schema_are_an_error_with_a_code(
    rows: dict[str, list[object]], error: str, computed: tuple[tuple[str, Expression], ...]
) -> None:
    own = pa.schema({"t": pa.int64(), "v": pa.int64()})
    reader: Reader = EventReader(0, "left", wider(own, computed), Point("t"))
    if computed:
        reader = DerivingReader(reader, len(own), computed)
    narrow = pa.record_batch({"more": ["x"], "v": pa.array([7], pa.int8()), "t": [3]})
    assert reader.raw(reader.read(narrow).block).to_pylist() == [{"t": 3, "v": 7}]
    with pytest.raises(InputError, match=error):
        reader.read(pa.record_batch(rows))


def test_rejects_share_columns_of_one_type_and_number_others() -> None:
    left = pa.schema({"t": pa.int64(), "v": pa.int64()})
    right = pa.schema({"t": pa.int64(), "v": pa.string(), "w": pa.int64(), "code": pa.int64()})
    schema = rejects_schema([left, right])
    assert schema.names == ["input", "code", "reason", "t", "v", "v_1", "w", "code_1"]
    reader = EventReader(1, "right", right, Point("t"))
    _, (rejected,) = reader.read(pa.record_batch([[None], ["x"], [7], [8]], schema=right))
    assert reject_rows(rejected, [left, right], ("left", "right")).to_pylist() == [
        {
            "input": "right",
            "code": "WA-1003",
            "reason": "a time is null",
            "t": None,
            "v": None,
            "v_1": "x",
            "w": 7,
            "code_1": 8,
        }
    ]


def test_rejects_keep_all_columns_whatever_their_names() -> None:
    left = pa.schema(
        {"t": pa.int64(), "input": pa.string(), "input_0": pa.string(), "x": pa.int64(), "x_1": pa.int64()}
    )
    right = pa.schema({"t": pa.int64(), "x": pa.string(), "x_1": pa.string()})
    rows = [["a", "b", 1, 2], ["7", "8"]]
    found = []
    for input, (schema, values) in enumerate(zip((left, right), rows, strict=True)):
        rejected = Rejected(input, Code.NULL_TIME, pa.record_batch([[None], *([v] for v in values)], schema=schema))
        table = reject_rows(rejected, [left, right], ("left", "right"))
        assert table.schema == rejects_schema([left, right])
        assert len(set(table.schema.names)) == len(table.schema.names)
        found += table.drop_columns(["input", "code", "reason", "t"]).to_pylist()
    assert [[value for value in row.values() if value is not None] for row in found] == rows


@pytest.mark.parametrize(
    "kinds",
    [
        pa.array(["a", "7", "nine", None, "a"]),
        pa.array(["a", "7", "nine", None, "a"], pa.large_string()),
        pa.array(["a", "7", "nine", None, "a"]).dictionary_encode(),
    ],
)
def test_templates_are_numbered_and_unknown_ones_rejected(kinds: pa.Array) -> None:
    templates = {"7": [(0, 10, 1)], "a": [(0, 20, 0.5), (20, 40, 0.5)], "zero": [(0, 5, 0), (5, 30, 1), (30, 40, 0)]}
    time = Histogram("t", "kind", templates)
    rows = pa.record_batch({"t": pa.array([100, 200, 300, 400, None], pa.int64()), "kind": kinds})
    block, rejected = EventReader(0, "left", rows.schema, time).read(rows)
    assert block.column(TEMPLATE).to_pylist() == [1, 0]
    assert (block.column(T_MIN).to_pylist(), block.column(T_MAX).to_pylist()) == ([60, 190], [100, 200])
    assert [(r.code, r.rows.column("t").to_pylist()) for r in rejected] == [
        (Code.NULL_TIME, [None]),
        (Code.UNKNOWN_TEMPLATE, [300, 400]),
    ]


@pytest.mark.parametrize("type_", [pa.int8(), pa.int32(), pa.int64(), pa.uint16(), pa.uint64()])
def test_integers_name_templates(type_: pa.DataType) -> None:
    time = Histogram("t", "kind", {"x": [(0, 1, 1)], "7": [(0, 10, 1)], "07": [(0, 2, 1)], "0": [(0, 3, 1)]})
    rows = pa.record_batch({"t": pa.array([1, 2, 3, 4], pa.int64()), "kind": pa.array([0, 7, 8, None], type_)})
    block, rejected = EventReader(0, "left", rows.schema, time).read(rows)
    assert block.column(TEMPLATE).to_pylist() == [3, 1]
    assert [r.rows.num_rows for r in rejected] == [2]


def test_zero_end_buckets_are_trimmed_but_the_anchor_stays() -> None:
    time = Histogram("t", templates={"one": [(0, 5, 0), (5, 30, 1), (30, 40, 0)]})
    rows = pa.record_batch({"t": pa.array([100], pa.int64())})
    block, _ = EventReader(0, "left", rows.schema, time).read(rows)
    assert block.to_pylist() == [{T_MIN: 65, T_MAX: 100, TEMPLATE: 0, "t": 100}]


def test_a_template_column_must_be_there_and_name_things() -> None:
    time = Histogram("t", "kind", {"a": [(0, 10, 1)]})
    for schema, code in (
        (pa.schema({"t": pa.int64()}), Code.MISSING_COLUMN),
        (pa.schema({"t": pa.int64(), "kind": pa.float64()}), Code.WRONG_TYPE),
    ):
        with pytest.raises(InputError) as told:
            EventReader(0, "left", schema, time)
        assert told.value.code == code


def test_metadata_of_a_users_column_marks_no_copies() -> None:
    """Blocks mark columns that repeat the times, which state does not store; input may have kept such a mark."""
    marked = copy_of(pa.field("v", pa.int64()), "t")
    rows = pa.RecordBatch.from_arrays(
        [pa.array([1, 2]), pa.array([7, 8])], schema=pa.schema([pa.field("t", pa.int64()), marked])
    )
    block, _ = EventReader(0, "left", rows.schema, Point("t")).read(rows)
    kept = decode(encode(block, block.schema), block.schema)
    assert kept.column("v").to_pylist() == [7, 8]
    assert kept.equals(block)
