"""`WindowExtent` after any sequence of arrivals: its invariants, and in both schemes the extent computed from
scratch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from whenabouts.conformance import coalescing_oracle as scratch
from whenabouts.conformance import multiset
from whenabouts.core import Code, InputError, QueryError, SingleBucketWarning
from whenabouts.core.coalescing.equivalence import BOUNDED, KINDS, Equivalence, parse_equivalence
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.local import coalesce, temporal_aggregate, temporal_join
from whenabouts.core.window_extent.extent import WindowExtent

SCHEMA = pa.schema({"g": pa.string(), "t": pa.int64(), "v": pa.float64(), "s": pa.string()})
Row = dict[str, Any]


def near(previous: pa.Table, current: pa.Table) -> pa.ChunkedArray:
    """A user's predicate."""
    a, b = (table["v"].fill_null(0.0) for table in (previous, current))
    return pc.less_equal(pc.abs(pc.subtract(b, a)), 1.0)


def near_row(previous: Any, current: Any) -> bool:
    """The same for the oracle."""
    return bool(abs((previous["v"] or 0) - (current["v"] or 0)) <= 1)


WINDOWS: list[dict[str, Any]] = [
    {"window": "9us"},
    {"window": "30us", "closed": "right"},
    {"rows": 1},
    {"rows": 7},
    {"rows": 4, "per_group": True, "group": "g"},
    {},
]
EQUIVALENCES: list[Equivalence | Callable[[Any, Any], Any]] = [
    *(Equivalence(kind, 1.0 if kind in BOUNDED else None) for kind in KINDS), near,
]  # fmt: skip

rows = st.lists(
    st.tuples(
        st.integers(-12, 12),
        st.sampled_from("ab"),
        st.sampled_from([0.0, -0.0, 1.0, 2.0, 4.0, float("nan"), None]),
        st.sampled_from(["on", "off", None]),
    ),
    max_size=6,
)


class Arrivals(RuleBasedStateMachine):
    """Tuples in order, out of order, too late, repeated and in conflict; time that advances without tuples."""

    @initialize(window=st.sampled_from(WINDOWS), equivalence=st.sampled_from(EQUIVALENCES), grouped=st.booleans())
    def begin(self, window: dict[str, Any], equivalence: Any, grouped: bool) -> None:
        """One extent in each scheme."""
        by_text = equivalence == "equal"
        self.group = ["g"] if grouped or "group" in window else []
        self.values = ["s", "v"] if by_text else ["v"]
        self.columns = [name for name in SCHEMA.names if name in (*self.group, "t", *self.values)]
        options = {"equivalence": equivalence, "values": self.values, **window, "group": self.group}
        self.extents = [WindowExtent(SCHEMA, time="t", **options, scheme=scheme) for scheme in ("eager", "lazy")]
        how = parse_equivalence(equivalence)
        self.goes_on = near_row if how.predicate else scratch.all_equivalent(how.kind, how.bound, self.values)
        self.seen: list[Row] = []
        self.now, self.rows_in = 0, 0

    @rule(rows=rows)
    def arrive(self, rows: list[tuple[int, str, float | None, str | None]]) -> None:
        """Rows around the latest one."""
        self._update([{"g": g, "t": self.now + ahead, "v": v, "s": s} for ahead, g, v, s in rows])

    @rule(n=st.integers(1, 20), group=st.sampled_from("ab"), v=st.sampled_from([0.0, 1.0]))
    def go_on(self, n: int, group: str, v: float) -> None:
        """A run in order."""
        self._update([{"g": group, "t": self.now + i, "v": v, "s": "on"} for i in range(1, n + 1)])

    @precondition(lambda self: self.seen)
    @rule(data=st.data())
    def again(self, data: st.DataObject) -> None:
        """A repeated row, unchanged and changed."""
        old = data.draw(st.sampled_from(self.seen))
        self._update(
            [{"g": "a", "s": None, **old}, {"g": "a", "s": "off", **old, "v": data.draw(st.sampled_from([None, 1.0]))}]
        )

    @rule(ahead=st.integers(0, 15))
    def advance(self, ahead: int) -> None:
        """Time advances without rows."""
        self.now += ahead
        for extent in self.extents:
            extent.advance(self.now)

    def _update(self, rows: list[Row]) -> None:
        table = pa.Table.from_pylist(rows, SCHEMA)
        taken = []
        for extent in self.extents:
            update = extent.update(table)
            rejected = [(bad.code, row) for bad in update.rejected for row in bad.rows.to_pylist()]
            assert update.taken + update.replayed + len(rejected) == len(rows)
            taken.append((update.taken, update.replayed, sorted(map(repr, rejected))))
        assert taken[0][:2] == taken[1][:2]
        self.seen += [{name: row[name] for name in self.columns} for row in rows]
        self.now = max([self.now, *(row["t"] for row in rows)])

    @invariant()
    def same_as_from_scratch(self) -> None:
        """Every invariant of the structure, and the coalesced extent."""
        if not hasattr(self, "extents"):
            return
        readings = scratch.settle(self.seen, "t", self.group).readings
        window, latest = self.extents[0]._window, self.extents[0].latest_us
        extent: list[scratch.Reading] = list(readings)
        if window.width_us is not None:
            extent = scratch.extent_by_time(readings, latest, window.width_us, closed=window.closed)
        elif window.rows is not None:
            extent = scratch.extent_by_rows(readings, latest, window.rows, per_group=window.per_group)
        runs = scratch.coalesced(extent, self.goes_on)
        names = [*self.group, *self.values]
        expected = multiset.counted((*(run.rows[0][n] for n in names), run.start, run.end, run.n) for run in runs)
        for held in self.extents:
            held._check()
            multiset.assert_same(multiset.rows(held.scan()), expected, "the extent")
            held._check()
            assert (len(held), held.stored) == (len(extent), len(runs) if held is self.extents[0] else len(extent))


Arrivals.TestCase.settings = settings(max_examples=40, stateful_step_count=12, deadline=None)
TestArrivals = Arrivals.TestCase


def many(n: int, cp: float, seed: int = 5) -> pa.Table:
    """Tuples of three groups at every microsecond, in a random order."""
    random = np.random.default_rng(seed)
    at, value = np.arange(n), np.cumsum(random.random(n) >= cp)
    order = random.permutation(n)
    group = pa.array(np.array(["a", "b", "c"])[at % 3])
    return pa.table({"g": group, "t": at, "v": value.astype(float), "s": ["x"] * n}, SCHEMA).take(pa.array(order))


@pytest.mark.parametrize("scheme", ["eager", "lazy"])
def test_thousands_of_tuples_in_no_order_split_and_free_chunks(scheme: str) -> None:
    table = many(9_000, 0.9)
    extent = WindowExtent(SCHEMA, time="t", group="g", values="v", window="5ms", scheme=scheme)
    whole = WindowExtent(SCHEMA, time="t", group="g", values="v", window="5ms", scheme=scheme)
    for start in range(0, 9_000, 700):
        extent.update(table.slice(start, 700))
        extent._check()
    whole.update(table.sort_by("t"))
    multiset.assert_same(multiset.rows(extent.scan()), multiset.rows(whole.scan()), "the extent")
    assert len(extent) == len(whole) == 5_001
    extent.advance(10**6)
    extent._check()
    assert (len(extent), extent.value_rows, extent.scan().num_rows) == (0, 0, 0)


def test_eager_stores_runs_and_compares_once_lazy_stores_tuples_and_compares_at_each_scan() -> None:
    table = many(6_000, 0.95).sort_by("t")
    eager, lazy = (
        WindowExtent(SCHEMA, time="t", group="g", values="v", rows=3_000, scheme=scheme) for scheme in ("eager", "lazy")
    )
    for extent in (eager, lazy):
        for start in range(0, 6_000, 1_000):
            extent.update(table.slice(start, 1_000))
            extent.scan()
    runs = eager.scan().num_rows
    assert eager.stored == eager.value_rows == runs < 600
    assert lazy.stored == lazy.value_rows == len(lazy) == len(eager) == 3_000
    assert eager.metrics["compared"] <= 6_000 < 14_000 < lazy.metrics["compared"]


def test_an_equal_run_keeps_one_row_of_values_and_other_equivalences_all() -> None:
    table = pa.table({"g": ["a"] * 3, "t": [1, 2, 3], "v": [0.0, 1.0, 2.0], "s": ["x"] * 3}, SCHEMA)
    near_by = WindowExtent(SCHEMA, time="t", values="v", window="1us", equivalence="absolute_tolerance:1")
    near_by.update(table)
    assert near_by.scan().to_pylist() == [{"v": 1.0, "valid_from": 2, "valid_to": 3, "n": 2}]  # 0 has gone, 1 is known
    assert (near_by.stored, near_by.value_rows) == (1, 2)


VALUES: list[tuple[pa.DataType, tuple[Any, Any]]] = [
    (pa.int8(), (-3, 4)),
    (pa.uint64(), (0, 2**64 - 1)),
    (pa.float16(), (np.float16(0.5), np.float16(2))),
    (pa.float32(), (0.1, float("nan"))),
    (pa.bool_(), (True, False)),
    (pa.string(), ("on", "")),
    (pa.binary(), (b"on", b"")),
    (pa.timestamp("ns", "Europe/Berlin"), (1_000, 2_000)),
    (pa.duration("s"), (1, 2)),
    (pa.date32(), (1, 2)),
    (pa.time64("ns"), (1, 2)),
    (pa.decimal128(9, 2), (Decimal("1.50"), Decimal("-2.00"))),
    (pa.list_(pa.int32()), ([1, 2], [])),
    (pa.struct({"a": pa.int32(), "b": pa.string()}), ({"a": 1, "b": "x"}, {"a": None, "b": "x"})),
    (pa.dictionary(pa.int32(), pa.string()), ("x", "y")),
]


@pytest.mark.parametrize(("type_", "pair"), VALUES, ids=[str(type_) for type_, _ in VALUES])
def test_values_and_groups_of_any_type_come_out_as_they_went_in(type_: pa.DataType, pair: tuple[Any, Any]) -> None:
    one, other = pair
    values = pa.array([one, one, other, None, None, one, other], type_)
    t = pa.array([1, 2, 3, 4, 5, 6, 7], pa.timestamp("ms", "UTC"))
    table = pa.table({"t": t, "v": values, "g": pa.array([0, 1, 0, 0, 0, 0, 0], pa.date32())})
    expected = coalesce(table, time="t", group="g", values="v")
    for scheme in ("eager", "lazy"):
        extent = WindowExtent(table.schema, time="t", group="g", values="v", scheme=scheme)
        extent.update(table.take([6, 2, 4, 0]))
        extent.update(table.take([1, 3, 5]))
        extent._check()
        found = extent.scan()
        assert found.schema == expected.schema
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))


def test_what_is_rejected_and_why() -> None:
    extent = WindowExtent(SCHEMA, time="t", group="g", values="v", window="10us")
    table = pa.table(
        {"g": ["a", None, "a", "a"], "t": [50, 51, None, 50], "v": [2.0, 0.0, 0.0, 3.0], "s": ["x"] * 4}, SCHEMA
    )
    told = {bad.code: bad.rows.to_pylist() for bad in extent.update(table).rejected}
    assert set(told) == {Code.NULL_TIME, Code.NULL_GROUP, Code.DUPLICATE_TIMESTAMP}
    assert told[Code.DUPLICATE_TIMESTAMP][0]["v"] == 3.0
    later = extent.update(pa.table({"g": ["a"] * 3, "t": [39, 50, 50], "v": [1.0, 1.0, 2.0], "s": ["y"] * 3}, SCHEMA))
    assert [(bad.code, bad.rows.to_pylist()[0]["v"]) for bad in later.rejected] == [
        (Code.DUPLICATE_TIMESTAMP, 2.0), (Code.LATE, 1.0), (Code.DUPLICATE_TIMESTAMP, 2.0),
    ]  # fmt: skip
    assert (later.taken, later.replayed, extent.scan().column("v").to_pylist()) == (0, 0, [1.0])


def test_groups_that_fall_silent_are_forgotten() -> None:
    extent = WindowExtent(SCHEMA, time="t", group="g", values="v", window="10us")
    for start in range(0, 3_000, 50):
        at = list(range(start, start + 50))
        extent.update(pa.table({"g": list(map(str, at)), "t": at, "v": [0.0] * 50, "s": ["x"] * 50}, SCHEMA))
    assert len(extent) <= 100
    assert len(extent._groups) <= 100
    assert len(extent._lists.lists) <= 300


def test_a_stream_of_windows_of_rows_of_all_groups_is_warned_of() -> None:
    query = Coalesce(time="t", group="g", values="v", rows=3)
    with pytest.warns(SingleBucketWarning, match="WA-2081"):
        query.operator([SCHEMA], streaming=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        query.operator([SCHEMA], streaming=False)
        replace(query, per_group=True).operator([SCHEMA], streaming=True)
        replace(query, group=()).operator([SCHEMA], streaming=True)


def test_bad_queries_are_refused() -> None:
    with pytest.raises(QueryError, match="WA-2021"):
        WindowExtent(SCHEMA, time="t", values="v", window="0us")
    with pytest.raises(InputError, match="WA-1023"):
        WindowExtent(SCHEMA, time="t", values="s", rows=3, equivalence="increasing")
    with pytest.raises(InputError, match="WA-1001"):
        WindowExtent(SCHEMA, time="t", values="w")


def test_rows_without_the_columns_or_types_are_refused() -> None:
    extent = WindowExtent(pa.schema({"t": pa.int64(), "v": pa.int64()}), time="t", values="v", window="4us")
    with pytest.raises(InputError, match=r"WA-1001: the window extent's input has no column 't'.*it has v"):
        extent.update(pa.table({"v": [1]}))
    with pytest.raises(InputError, match=r"WA-1002: .*'a'.*it was made for t int64, v int64"):
        extent.update(pa.table({"t": ["a"], "v": [1]}))
    assert extent.update(pa.table({"t": [1], "v": pa.array([1], pa.int32()), "spare": [1]})).taken == 1
    with pytest.raises(QueryError, match="WA-2006: schema is 5"):
        WindowExtent(5, time="t", values="v")  # type: ignore[arg-type]


@pytest.mark.parametrize("scheme", ["eager", "lazy"])
def test_groups_that_are_equal_are_one_group_whatever_came_first_and_together(scheme: str) -> None:
    """0.0 and -0.0, and NaNs of other bits: the result does not depend on how rows are divided into calls, or on their
    order."""
    other_nan = np.uint64(0x7FF8000000000001).view(np.float64)
    groups = [-0.0, 0.0, 0.0, -0.0, np.nan, other_nan]
    rows = pa.table({"t": [1, 1, 2, 3, 1, 1], "g": groups, "v": [5, 5, 5, 6, 7, 7]})
    told = set()
    for order in (range(6), reversed(range(6))):
        ordered = rows.take(pa.array(list(order)))
        for size in (6, 3, 2, 1):
            extent = WindowExtent(rows.schema, time="t", group="g", values="v", window="1s", scheme=scheme)
            done = [extent.update(ordered.slice(start, size)) for start in range(0, 6, size)]
            counts = (
                sum(one.taken for one in done),
                sum(one.replayed for one in done),
                sum(map(len, (u.rejected for u in done))),
            )
            runs = extent.scan()
            bits = runs["g"].to_numpy().view(np.int64).tolist()
            told.add(
                (counts, tuple(sorted(zip(bits, *(runs[n].to_pylist() for n in runs.column_names[1:]), strict=True))))
            )
    assert len(told) == 1, told
    assert next(iter(told))[0] == (4, 2, 0)


@pytest.mark.filterwarnings("ignore::whenabouts.core.errors.DigitsCutWarning")
def test_the_end_of_a_window_may_lie_after_the_last_nanosecond() -> None:
    """Rows end in 2262; the slide at which they are evaluated is a little later."""
    last = 9_223_372_036_854_775_807
    rows = pa.table({"t": pa.array([last - 10**6, last - 1_000], pa.timestamp("ns", "UTC")), "g": [1, 1], "v": [1, 1]})
    slide = 3_600_000_000
    end_us = -(-(last // 1_000 - 1) // slide) * slide
    how: dict[str, Any] = {"time": "t", "group": "g", "window": "1h", "slide": "1h"}
    for found in (
        coalesce(rows, values="v", **how),
        temporal_aggregate(rows, values="v", aggregates={"n": "count"}, **how),
        temporal_join(rows, rows, on="g", values="v", **how),
    ):
        assert found.schema.field("window_end").type == pa.timestamp("us", "UTC")
        assert found["window_end"].cast(pa.int64()).to_pylist() == [end_us]


@pytest.mark.filterwarnings("ignore::whenabouts.core.errors.DigitsCutWarning")
def test_the_first_nanosecond_does_not_become_the_last() -> None:
    """`pd.Timestamp.min`, a common sentinel, lies within a microsecond that begins before nanoseconds do."""
    first, later = -(2**63) + 1, 1_577_836_800_000_000_000
    rows = pa.table({"t": pa.array([first, later], pa.timestamp("ns")), "v": [1, 2], "g": [1, 1]})
    found = coalesce(rows, time="t", values="v", valid_last=True)
    shown = {name: found[name].cast(pa.int64()).to_pylist() for name in ("valid_from", "valid_to", "valid_last")}
    assert shown == {"valid_from": [first, later], "valid_to": [later, later], "valid_last": [first, later]}
    joined = temporal_join(rows, rows, time="t", group="g", on="g", values="v", rows=5)
    assert min(joined["valid_from"].drop_null().cast(pa.int64()).to_pylist()) == first
    extent = WindowExtent(rows.schema, time="t", values="v", window="10s")
    extent.update(rows.slice(0, 1))
    assert extent.scan()["valid_from"].cast(pa.int64()).to_pylist() == [first]
