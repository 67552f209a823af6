"""Key equality: equal keys have equal codes and the same bucket."""

import math
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.core import Point, QueryError, within
from whenabouts.core.errors import InputError
from whenabouts.core.local import asof_join, coalesce, timing_join, window_join
from whenabouts.core.runtime.keys import NULL_KEY, Keys
from whenabouts.core.window_extent.extent import WindowExtent

NAN2 = float(np.uint64(0x7FF8000000000001).view(np.float64))


def same(x: object, y: object) -> bool:
    if x is None or y is None:
        return False
    return x == y or (isinstance(x, float) and isinstance(y, float) and math.isnan(x) and math.isnan(y))


def codes_of(left: pa.Array, right: pa.Array) -> tuple[list[int], list[int]]:
    tables = [pa.record_batch({"k": left}), pa.record_batch({"k": right})]
    keys = Keys(("k",), [t.schema for t in tables], ("left", "right"))
    buckets = [keys.buckets(table, 7) for table in tables]
    first, second = keys.codes(tables)
    for i, x in enumerate(left.to_pylist()):
        for j, y in enumerate(right.to_pylist()):
            assert (first[i] == second[j] and first[i] != NULL_KEY) == same(x, y), (x, y)
            if same(x, y):
                assert buckets[0][i] == buckets[1][j]
    return first.tolist(), second.tolist()


VALUES = {
    "int64": (pa.int64(), st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3))),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "double": (pa.float64(), st.one_of(st.floats(), st.sampled_from([0.0, -0.0, math.nan, NAN2]))),
    "text": (pa.string(), st.text(max_size=3)),
    "bytes": (pa.binary(), st.binary(max_size=3)),
    "bool": (pa.bool_(), st.booleans()),
    "decimal": (pa.decimal128(5, 2), st.sampled_from([Decimal("1.00"), Decimal("1.10"), Decimal("-1.00")])),
}


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_rows_are_chosen_by_the_keys_of_others(kind: str, data: st.DataObject) -> None:
    """No row is left out that has the key of another one; with two key columns, each of them is looked at."""
    type_, values = VALUES[kind]
    column = st.lists(values, min_size=1, max_size=8)
    drawn = [pa.array(data.draw(column), type_) for _ in range(3)]
    one, other, more = (
        pa.record_batch({"k": each, "j": pa.nulls(len(each), pa.int64()).fill_null(1)}) for each in drawn
    )
    for names in (("k",), ("k", "j")):
        keys = Keys(names, [one.schema, other.schema], ("left", "right"))
        chosen = keys.among(0, [other, more], 1)(one).tolist()
        wanted = [*other.column("k").to_pylist(), *more.column("k").to_pylist()]
        for value, is_chosen in zip(one.column("k").to_pylist(), chosen, strict=True):
            assert is_chosen or not any(same(value, each) for each in wanted)


def test_few_rows_are_chosen_for_few_keys() -> None:
    """Integers, times and text; instants that no common type holds are all kept."""
    number = np.arange(100_000)
    for made in (pa.array, lambda n: pa.array(n).cast(pa.timestamp("s")), lambda n: pa.array(n).cast(pa.string())):
        rows, few = (pa.record_batch({"k": made(n)}) for n in (number, number[::1_000]))
        chosen = Keys(("k",), [rows.schema] * 2, ("left", "right")).among(0, [few], 1)(rows)
        assert chosen[::1_000].all()
        assert chosen.sum() < 0.1 * len(number)
    far, near = (
        pa.record_batch({"k": pa.array([10**12], pa.timestamp("s"))}),
        pa.record_batch({"k": pa.array([5], pa.timestamp("ns"))}),
    )
    assert Keys(("k",), [far.schema, near.schema], ("left", "right")).among(0, [near], 1)(far).tolist() == [True]


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_equal_values_meet(kind: str, data: st.DataObject) -> None:
    type_, values = VALUES[kind]
    column = st.lists(st.one_of(st.none(), values), max_size=8)
    codes_of(pa.array(data.draw(column), type_), pa.array(data.draw(column), type_))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([1, 2, None], pa.int32()), pa.array([2, 1, 7], pa.int64())),
        (pa.array([1.5, 2.0], pa.float32()), pa.array([2.0, 1.5, -0.0], pa.float64())),
        (pa.array(["a", "b"]).dictionary_encode(), pa.array(["b", "c"], pa.large_string())),
        (pa.array([1, 2], pa.timestamp("s")), pa.array([1_000_000, 5], pa.timestamp("us"))),
    ],
)
def test_types_of_one_family_meet(left: pa.Array, right: pa.Array) -> None:
    tables = [pa.record_batch({"k": left}), pa.record_batch({"k": right})]
    keys = Keys(("k",), [t.schema for t in tables], ("left", "right"))
    first, second = keys.codes(tables)
    assert set(first) & set(second) - {NULL_KEY}
    assert set(keys.buckets(tables[0], 1000)) & set(keys.buckets(tables[1], 1000))


def ticks(type_: pa.DataType, *values: int | None) -> pa.Array:
    return pa.array(values, pa.int32() if type_.bit_width == 32 else pa.int64()).view(type_)


PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
NUMBERS = [0, 1, 2, -1, 999, 1_000, 1_001, -1_000, 10**6, 10**9, 86_400_000, 2**31 - 1, 2**62, 2**63 - 1, -(2**63)]
UNITS = {
    "timestamp": [pa.timestamp(unit) for unit in PER_SECOND],
    "instant": [pa.timestamp(unit, zone) for unit, zone in zip(PER_SECOND, ["UTC", "Asia/Tokyo"] * 2, strict=True)],
    "duration": [pa.duration(unit) for unit in PER_SECOND],
    "time": [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")],
}
PAIRS = [(one, other) for types in UNITS.values() for one in types for other in types]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=[f"{one} {other}" for one, other in PAIRS])
def test_times_of_any_units_are_equal_exactly_where_they_are_the_same_time(
    one: pa.DataType, other: pa.DataType
) -> None:
    """Neither truncated nanoseconds nor an overflow of seconds makes two keys equal."""
    columns, times = [], []
    for type_ in (one, other):
        fitting = [n for n in NUMBERS if type_.bit_width == 64 or -(2**31) <= n < 2**31]
        columns.append(ticks(type_, *fitting, None))
        times.append([n * (10**9 // PER_SECOND[type_.unit]) for n in fitting])
    tables = [pa.record_batch({"k": column}) for column in columns]
    keys = Keys(("k",), [table.schema for table in tables], ("left", "right"))
    first, second = (codes.tolist() for codes in keys.codes(tables))
    assert (first.pop(), second.pop()) == (NULL_KEY, NULL_KEY)
    buckets = [keys.buckets(table, 97).tolist() for table in tables]
    for i, x in enumerate(times[0]):
        for j, y in enumerate(times[1]):
            assert (first[i] == second[j]) == (x == y), (x, y)
            assert x != y or buckets[0][i] == buckets[1][j]


def test_numbers_and_decimals_of_other_types_meet_exactly() -> None:
    for left, right in [
        (pa.array([5, -1, 2**63 - 1]), pa.array([5, 2**64 - 1, 2**63 - 1], pa.uint64())),
        (pa.array([Decimal("1.10"), Decimal("1.11")]), pa.array([Decimal("1.100"), Decimal("1.101")])),
        (pa.array([Decimal("1.10")], pa.decimal128(38, 2)), pa.array([Decimal("1.1")], pa.decimal128(38, 30))),
        (pa.array([1.5, 2.0], pa.float32()), pa.array([2.0, 1.5])),
        (ticks(pa.date32(), 1, 2**31 - 1), ticks(pa.date64(), 86_400_000, 86_400_001)),
    ]:
        codes_of_plain(left, right)
    with pytest.raises(QueryError, match="WA-2008"):  # 68 digits before the point and 30 after it
        codes_of(pa.array([1], pa.decimal256(76, 8)), pa.array([1], pa.decimal128(38, 30)))
    with pytest.raises(QueryError, match="WA-2008"):  # 2**53 + 1 is a float's 2**53
        codes_of(pa.array([1]), pa.array([1.0]))


def codes_of_plain(left: pa.Array, right: pa.Array) -> None:
    """As `codes_of`, for values that may lie outside the calendar."""
    tables = [pa.record_batch({"k": column}) for column in (left, right)]
    keys = Keys(("k",), [table.schema for table in tables], ("left", "right"))
    buckets = [keys.buckets(table, 97) for table in tables]
    first, second = keys.codes(tables)
    per_day = 86_400_000
    values = [
        (column.cast(pa.int32()).cast(pa.int64()).to_numpy() * per_day).tolist()
        if pa.types.is_date32(column.type)
        else column.cast(pa.int64()).to_pylist()
        if pa.types.is_date64(column.type)
        else column.to_pylist()
        for column in (left, right)
    ]
    for i, x in enumerate(values[0]):
        for j, y in enumerate(values[1]):
            assert (first[i] == second[j]) == (x == y), (x, y)
            assert x != y or buckets[0][i] == buckets[1][j]


def test_groups_that_a_cut_or_a_wrap_would_merge_stay_apart() -> None:
    """`coalesce`, by groups of every unit, and `window_join` and `timing_join` by such keys."""
    for type_, values in (
        (pa.timestamp("ns"), (1, 2)),
        (pa.timestamp("s"), (2**62, 2**61)),
        (pa.duration("ns"), (1, 2)),
    ):
        rows = pa.table({"t": [1, 1], "v": [0, 0], "k": ticks(type_, *values)})
        assert coalesce(rows, time="t", group="k", values="v").num_rows == 2
        extent = WindowExtent(rows.schema, time="t", group="k", values="v", window="1s")
        extent.update(rows)
        assert extent.scan().num_rows == 2
        left, right = rows.select(["t", "k"]), rows.slice(1).select(["t", "k"])
        pairs = timing_join(
            left, right, left_time=Point("t"), right_time=Point("t"), condition=within("1s", confidence=1), on="k"
        )
        assert pairs.column("k").cast(pa.int64()).to_pylist() == [values[1]]
        combinations = window_join({"a": left, "b": right}, time=Point("t"), windows={("a", "b"): "1s"}, on="k")
        assert combinations.num_rows == 1


def test_a_key_that_the_shared_type_cannot_hold_is_told() -> None:
    """A right row without partner fills the key column, whose type is common to both inputs."""
    left, right = (
        pa.table({"t": [1], "k": ticks(pa.timestamp(unit), value)}) for unit, value in (("ns", 1), ("s", 2**40))
    )
    how: dict[str, Any] = {"left_time": Point("t"), "right_time": Point("t"), "on": "k"}
    condition = within("1s", confidence=1)
    assert timing_join(left, right, **how, condition=condition).num_rows == 0
    with pytest.raises(QueryError, match="WA-2008: key 'k' is timestamp"):
        timing_join(left, right, **how, condition=condition, how="full_outer")


BUCKETS = {
    "int32": (pa.array([1, 2, None, -7], pa.int32()), [970, 854, 0, 752]),
    "int64": (pa.array([1, 2, None, -7, 10**12]), [970, 854, 0, 752, 645]),
    "uint64": (pa.array([1, 2, None, 2**64 - 1], pa.uint64()), [920, 30, 0, 978]),
    "float32": (pa.array([1.5, -0.0, None], pa.float32()), [424, 535, 0]),
    "float64": (pa.array([1.5, -0.0, math.nan, None]), [424, 535, 820, 0]),
    "string": (pa.array(["a", "é", None, ""]), [593, 535, 0, 535]),
    "large_string": (pa.array(["a", "é", None, ""], pa.large_string()), [593, 535, 0, 535]),
    "binary": (pa.array([b"a", b"\xff", None]), [593, 62, 0]),
    "fixed": (pa.array([b"a", None], pa.binary(1)), [593, 0]),
    "bool": (pa.array([True, False, None]), [320, 608, 0]),
    "date32": (ticks(pa.date32(), 1, 20_000, None), [286, 965, 0]),
    "date64": (ticks(pa.date64(), 86_400_000, None), [286, 0]),
    "decimal": (pa.array([Decimal("1.10"), None, Decimal("-3.00")], pa.decimal128(5, 2)), [433, 0, 668]),
    "s": (ticks(pa.timestamp("s"), 1, -1, None, 2**62), [17, 190, 0, 535]),
    "ms": (ticks(pa.timestamp("ms", "UTC"), 1, -1, None), [888, 645, 0]),
    "us": (ticks(pa.timestamp("us", "Europe/Paris"), 1, -1, None), [970, 210, 0]),
    "ns": (ticks(pa.timestamp("ns"), 1, -1, 1999, -1999, 10**18, None), [535, 535, 970, 210, 376, 0]),
}


@pytest.mark.parametrize("kind", BUCKETS)
def test_a_key_keeps_its_bucket_from_release_to_release(kind: str) -> None:
    """State is stored by bucket: a restart with another assignment would lose pairs."""
    column, buckets = BUCKETS[kind]
    table = pa.record_batch({"k": column})
    assert Keys(("k",), [table.schema], ("events",)).buckets(table, 1000).tolist() == buckets


@given(
    st.lists(st.tuples(st.sampled_from([None, 0, 1, 10**12]), st.sampled_from([None, "a", "b"])), max_size=12),
    st.lists(st.tuples(st.sampled_from([None, 0, 1, 10**12]), st.sampled_from([None, "a", "b"])), max_size=12),
)
def test_two_columns(left: list[tuple[int | None, str | None]], right: list[tuple[int | None, str | None]]) -> None:
    schema = pa.schema({"i": pa.int64(), "s": pa.string()})
    tables = [
        pa.record_batch(
            [pa.array([r[0] for r in rows], pa.int64()), pa.array([r[1] for r in rows], pa.string())],
            schema=schema,
        )
        for rows in (left, right)
    ]
    first, second = Keys(("i", "s"), [schema, schema], ("left", "right")).codes(tables)
    for i, x in enumerate(left):
        assert (first[i] == NULL_KEY) == (None in x)
        for j, y in enumerate(right):
            assert (first[i] == second[j] and first[i] != NULL_KEY) == (x == y and None not in x)


def test_codes_stay_small() -> None:
    wide = pa.record_batch({"k": np.random.default_rng(0).integers(-(2**62), 2**62, 1000)})
    keys = Keys(("k",), [wide.schema], ("events",))
    assert keys.codes([wide])[0].max() < 4000


def test_small_codes_of_a_range_that_32_bits_do_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    sides = [pa.table({"k": pa.array(values)}) for values in ([9, 0, 7, 9], [7, 8, 0, 5])]
    monkeypatch.setattr("whenabouts.core.runtime.keys.MOST_ROWS", 9)  # instead of 2^31 - 1
    codes = Keys(("k",), [side.schema for side in sides], ("left", "right")).small_codes(sides)
    assert [each.tolist() for each in codes] == [[4, 0, 2, 4], [2, 3, 0, 1]]
    monkeypatch.setattr("whenabouts.core.runtime.keys.MOST_ROWS", 4)
    with pytest.raises(QueryError, match="WA-2201: one step needs 5 keys together"):
        Keys(("k",), [side.schema for side in sides], ("left", "right")).small_codes(sides)


POINTS: Any = {"left_time": Point("t"), "right_time": Point("t")}


@pytest.mark.parametrize(
    "call",
    [
        lambda rows: timing_join(rows, rows[:1], condition=within(1, confidence=1), **POINTS),
        lambda rows: asof_join(rows[:1], rows, **POINTS),
        lambda rows: window_join({"a": rows, "b": rows}, time=Point("t"), windows={("a", "b"): 1}),
        lambda rows: coalesce(rows, time=Point("t"), group="k", values="v", window=10),
    ],
    ids=["timing", "asof", "window", "coalesce"],
)
def test_more_rows_than_32_bits_number(call: Callable[[pa.Table], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whenabouts.core.arrays.record_batches.MOST_ROWS", 3)  # instead of 2^31 - 1
    with pytest.raises(QueryError, match="WA-2201: one step needs 4 rows together"):
        call(pa.table({"t": range(4), "k": [0] * 4, "v": [0.5] * 4}))


def test_buckets_use_all_labels_and_do_not_depend_on_the_process() -> None:
    table = pa.record_batch({"k": [f"key{i}" for i in range(1000)], "n": list(range(1000))})
    keys = Keys(("k", "n"), [table.schema], ("events",))
    buckets = keys.buckets(table, 8)
    assert np.bincount(buckets, minlength=8).min() > 80
    script = (
        "import pyarrow as pa; from whenabouts.core.runtime.keys import Keys;"
        "t = pa.record_batch({'k': [f'key{i}' for i in range(1000)], 'n': list(range(1000))});"
        "print(Keys(('k', 'n'), [t.schema], ('e',)).buckets(t, 8).tolist())"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == str(buckets.tolist())


def test_null_keys_go_to_bucket_zero() -> None:
    table = pa.record_batch({"k": pa.array([None, 3], pa.int64())})
    assert Keys(("k",), [table.schema], ("events",)).buckets(table, 16)[0] == 0


def test_refusals() -> None:
    ints, text = pa.schema({"k": pa.int64()}), pa.schema({"k": pa.string()})
    with pytest.raises(QueryError, match=r"WA-2008: key 'k' is int64 and string"):
        Keys(("k",), [ints, text], ("left", "right"))
    with pytest.raises(InputError, match=r"WA-1001: the right input has no key column 'k'"):
        Keys(("k",), [ints, pa.schema({"j": pa.int64()})], ("left", "right"))
    nested = pa.schema({"k": pa.list_(pa.int64())})
    with pytest.raises(QueryError, match=r"WA-2008.*no equality"):
        Keys(("k",), [nested], ("events",))


def test_no_key_is_one_key() -> None:
    table = pa.record_batch({"x": [1, 2]})
    keys = Keys((), [table.schema], ("events",))
    assert keys.codes([table])[0].tolist() == [0, 0]
    assert keys.buckets(table, 8).tolist() == [0, 0]


def test_equal_texts_of_several_chunks_have_equal_codes() -> None:
    tables = [pa.table({"k": pa.chunked_array([["b", None, "a"], ["c", "a"]])}), pa.table({"k": ["a", "d", None, "c"]})]
    keys = Keys(("k",), [table.schema for table in tables], ("left", "right"))
    of_first, of_second = keys.codes(tables)
    names = ["b", None, "a", "c", "a", "a", "d", None, "c"]
    codes = [*of_first.tolist(), *of_second.tolist()]
    assert [name is None for name in names] == [code == NULL_KEY for code in codes]
    assert len({*zip(names, codes, strict=True)}) == len({*names}) == len({*codes})
