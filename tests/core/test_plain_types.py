"""Columns in the layouts of other libraries pass through queries unchanged in value."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from whenabouts.core import Lateness, Point, within
from whenabouts.core.arrays.plain_types import plain, plain_type
from whenabouts.core.local import coalesce, rejects, run, run_stream, timing_join, window_join
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_extent.extent import WindowExtent

LONG = "a text that lies outside its view"


def list_views(large: bool = False) -> pa.Array:
    """Lists that overlap and lie in any order; pyarrow 16 crashes where it casts such a column."""
    width = pa.int64() if large else pa.int32()
    kind = pa.LargeListViewArray if large else pa.ListViewArray
    offsets, sizes = pa.array([1, 0, 2], width), pa.array([2, 3, 0], width)
    return kind.from_arrays(offsets, sizes, pa.array([7, 8, 9]), mask=pa.array([False, False, True]))


TEXTS = pa.array(["b", LONG, None], pa.string_view())
LAYOUTS = {
    "string_view": (TEXTS, ["b", LONG, None]),
    "binary_view": (pa.array([b"b", b"\xff" * 20, None], pa.binary_view()), [b"b", b"\xff" * 20, None]),
    "dictionary": (pa.array(["b", "a", None]).dictionary_encode(), ["b", "a", None]),
    "dictionary with a null in it": (
        pa.DictionaryArray.from_arrays(pa.array([1, 0, 1]), pa.array([LONG, None])), [None, LONG, None],
    ),
    "dictionary of views": (
        pa.DictionaryArray.from_arrays(pa.array([1, 0, None]), pa.array(["a", LONG], pa.string_view())),
        [LONG, "a", None],
    ),
    "run ends": (pc.run_end_encode(pa.array([5, 5, None])), [5, 5, None]),
    "run ends of views": (
        pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([LONG, None], pa.string_view())),
        [LONG, LONG, None],
    ),
    "list_view": (list_views(), [[8, 9], [7, 8, 9], None]),
    "large_list_view": (list_views(large=True), [[8, 9], [7, 8, 9], None]),
    "struct": (
        pa.StructArray.from_arrays([TEXTS, list_views()], ["s", "l"], mask=pa.array([False, True, False])),
        [{"s": "b", "l": [8, 9]}, None, {"s": None, "l": None}],
    ),
    "list": (
        pa.ListArray.from_arrays(pa.array([0, None, 2, 3], pa.int32()), TEXTS), [["b", LONG], None, [None]],
    ),
    "fixed_size_list": (
        pa.FixedSizeListArray.from_arrays(pa.array(list("abcdef")).dictionary_encode(), 2),
        [["a", "b"], ["c", "d"], ["e", "f"]],
    ),
    "map": (
        pa.MapArray.from_arrays(
            pa.array([0, None, 1, 2], pa.int32()), pa.array(["k", "l"]).dictionary_encode(), pa.array([1, None])
        ),
        [[("k", 1)], None, [("l", None)]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_are_those_of_the_layout_wherever_it_is_cut(layout: str) -> None:
    column, values = LAYOUTS[layout]
    for start in range(len(values) + 1):
        for size in range(len(values) + 1 - start):
            found = plain(column.slice(start, size))
            found.validate(full=True)
            assert (found.type, found.to_pylist()) == (plain_type(column.type), values[start : start + size])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_payload_of_any_layout_comes_out_and_is_rejected_as_its_values(layout: str) -> None:
    column, values = LAYOUTS[layout]
    rows = pa.table({"t": [1, None, 3], "v": column})
    with pytest.warns(UserWarning, match="WA-1003"):
        pairs = timing_join(
            rows, pa.table({"t": [1, 3]}), left_time=Point("t"), right_time=Point("t"),
            condition=within("0s", confidence=1), suffixes=("", "_right"),
        )  # fmt: skip
    assert pairs.schema.field("v").type == plain_type(column.type)
    assert sorted(zip(pairs["t"].to_pylist(), pairs["v"].to_pylist(), strict=True), key=str) == [
        (1, values[0]),
        (3, values[2]),
    ]
    assert rejects(pairs)["v"].to_pylist() == [values[1]]


@pytest.mark.parametrize("layout", ["string_view", "binary_view", "dictionary", "dictionary of views", "run ends"])
def test_a_key_of_any_layout_meets_its_values(layout: str) -> None:
    column, values = LAYOUTS[layout]
    rows = pa.table({"t": [1, 1, 1], "k": column})
    other = pa.table({"t": [1, 1, 1], "k": pa.array(values)})
    known = [value for value in values if value is not None]
    same = sum(one == two for one in known for two in known)
    for left, right in ((rows, other), (other, rows), (rows, rows)):
        pairs = timing_join(
            left, right, left_time=Point("t"), right_time=Point("t"), condition=within(0, confidence=1), on="k"
        )
        assert pairs.num_rows == same
        combinations = window_join({"a": left, "b": right}, time=Point("t"), windows={("a", "b"): 0}, on="k")
        assert combinations.num_rows == same
    with pytest.warns(UserWarning, match="WA-1021"):
        groups = coalesce(rows.append_column("v", column), time="t", group="k", values="v")
    assert sorted(groups["k"].to_pylist()) == sorted(set(known))


def test_dictionaries_that_differ_from_batch_to_batch_and_side_to_side() -> None:
    def batches(*words: str) -> pa.Table:
        chunks = [pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([word])) for word in words]
        return pa.table({"t": [1] * len(words), "k": pa.chunked_array(chunks)})

    query = TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within(0, confidence=1), on="k")
    left, right = batches("a", "b", "c"), batches("c", "b", "d")
    assert sorted(run(query, [left, right]).output["k"].to_pylist()) == ["b", "c"]
    files = [[table.slice(place, 1) for place in range(3)] for table in (left, right)]
    streamed = run_stream(replace(query, lateness=Lateness("1s", "1s")), files, buckets=3)
    assert sorted(streamed.output["k"].to_pylist()) == ["b", "c"]


def test_nested_values_with_times_that_python_has_none_of_are_kept() -> None:
    far = pa.array([2**62, 1]).view(pa.timestamp("ns"))
    past = pa.array([2**62, 1]).view(pa.timestamp("s"))
    rows = pa.table({"t": [1, 2], "v": pa.StructArray.from_arrays([far, past], ["ns", "s"])})
    extent = WindowExtent(rows.schema, time="t", values="v", window="1s")
    extent.update(rows)
    assert extent.scan()["v"].combine_chunks().equals(rows["v"].combine_chunks())


@pytest.mark.parametrize("encode", [pc.dictionary_encode, pc.run_end_encode])
def test_a_time_in_another_layout_is_a_time(encode: object) -> None:
    times = pa.array([1, 2], pa.timestamp("us", "UTC"))
    rows = pa.table({"t": encode(times), "v": [0, 1]})  # type: ignore[operator]
    found = coalesce(rows, time="t", values="v", window="1s")
    assert found.schema.field("valid_from").type == times.type
    assert found["valid_from"].to_pylist() == times.to_pylist()
