"""Key equality: what meets, in codes and in buckets alike."""

import math
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.core import QueryError
from whenabouts.core.errors import InputError
from whenabouts.core.keys import NULL_KEY, Keys

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


def test_buckets_use_all_labels_and_do_not_depend_on_the_process() -> None:
    table = pa.record_batch({"k": [f"key{i}" for i in range(1000)], "n": list(range(1000))})
    keys = Keys(("k", "n"), [table.schema], ("events",))
    buckets = keys.buckets(table, 8)
    assert np.bincount(buckets, minlength=8).min() > 80
    script = (
        "import pyarrow as pa; from whenabouts.core.keys import Keys;"
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
