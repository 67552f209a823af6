"""The window join, step by step: timelines from the paper's descriptions, state, predicates and columns."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from infra.operators import OperatorDriver
from whenabouts.core import InputError, Interval, Point, QueryError, between, within
from whenabouts.core.errors import EmptyInputWarning
from whenabouts.core.local import run, run_stream, window_join
from whenabouts.core.runtime.protocol import NO_WATERMARK, FlushMode, Step
from whenabouts.core.window_join.query import WindowJoin

POINT = Point("t")


class Timeline(OperatorDriver):
    """Rows of one stream at a time, and the resulting combinations as the times of their members."""

    def __init__(self, names: str, windows: dict[tuple[str, str], Any], **options: Any) -> None:
        query = WindowJoin(times=dict.fromkeys(names, POINT), windows=windows, **options)
        super().__init__(query, pa.schema({"t": pa.int64()}))

    def arrive(
        self, stream: str, *t: int, watermark: int = NO_WATERMARK, demand: FlushMode = FlushMode.NOTHING
    ) -> list[str]:
        """Rows of one stream arrive; returns the times of the resulting combinations, in the order of the streams."""
        return self._told(self.feed({stream: pa.record_batch({"t": list(t)})}, watermark, demand))

    def wait(self, watermark: int) -> list[str]:
        """The watermark advances, without rows."""
        return self._told(self.feed({}, watermark))

    def _told(self, step: Step) -> list[str]:
        names = [f"t_{name}" for name in self.query.inputs]
        return sorted("-".join(str(row[name]) for name in names) for batch in step.output for row in batch.to_pylist())


UNIFORM: dict[tuple[str, str], Any] = {("a", "b"): 5, ("b", "c"): 5, ("a", "c"): 5}


def test_backward_evaluation() -> None:
    """BEW (section 3.1): a period of 2w about the new row shrinks with each member, and no stream is waited for.

    a  --1-------------8---------
    b  ------3-------7-----------      w = 5, new rows c@6, then c@12
    c  ------------6----------12-
    """
    line = Timeline("abc", UNIFORM, strategy="backward")
    assert line.arrive("a", 1, 8) == []
    assert line.arrive("b", 3, 7) == []
    assert line.arrive("c", 6) == ["1-3-6", "8-3-6", "8-7-6"]  # not 1-7: the two are 6 apart
    assert line.arrive("c", 12) == ["8-7-12"]
    assert line.last.metrics["window_tests"] == 0


def test_each_combination_comes_with_its_newest_arrival() -> None:
    """Error of the paper: "the newest tuple" must be the newest to arrive, or rows out of order match twice or
    never."""
    line = Timeline("abc", UNIFORM, strategy="backward")
    assert line.arrive("a", 10) == []
    assert line.arrive("c", 11) == []
    assert line.arrive("b", 8) == ["10-8-11"]  # the oldest of the three comes last
    assert line.arrive("a", 9) == ["9-8-11"]
    assert line.arrive("c", 6) == ["10-8-6", "9-8-6"]


def test_forward_evaluation_waits_for_slow_streams() -> None:
    """FEW (section 3.2): starting rows of all streams form a period; rows up to its end are joined without a test.

    a  --1-------------8---------
    b  ------3-------7-----------      w = 5
    c  ------------6----------12-
       [---------]                     1 + 5: the period of 1, 3, 6
           [---------]                 3 + 5: of 8, 3, 6 once 1 has been dropped; 7 and 8 are admitted
    """
    line = Timeline("abc", UNIFORM, strategy="forward")
    assert line.arrive("c", 6, 12) == []
    assert line.arrive("b", 3, 7) == []
    assert line.arrive("a", 1, 8) == []
    assert line.last.timer_us is not None
    assert line.wait(6) == []  # another row at 6 may still come
    assert line.wait(7) == ["1-3-6"]  # c@6 is the newest of them
    assert line.wait(8) == []  # b@7 may be joined with a row of a that has not come yet
    assert line.last.metrics["tuples_admitted"] == 0  # mode 1 waits for a
    assert line.wait(9) == ["8-3-6", "8-7-6"]
    assert line.last.metrics["tuples_admitted"] == 2
    assert line.last.metrics["window_tests"] == 0  # mode 2: no window is tested
    assert line.wait(100) == ["8-7-12"]
    assert line.arrive("a", 200, watermark=100) == []
    assert line.last.metrics["rows_late"] == 0


def test_mode_1_drops_what_lies_in_no_period() -> None:
    """Rows of the fast stream wait for the slow one, and only those near its rows are ever joined.

    a  1-2-3-4-5-6-----------20-21-      w = 3
    b  ----------------------20----
    """
    line = Timeline("ab", {("a", "b"): 3}, strategy="forward")
    assert line.arrive("a", 1, 2, 3, 4, 5, 6) == []
    assert line.wait(15) == []
    assert line.last.metrics["periods"] == 1
    assert line.last.metrics["tuples_dropped"] == 0  # nobody knows where b will come
    assert sum(map(len, _state(line).load(0, 0, 10_000))) == 0  # but the watermark knows: 6 + 3 < 15
    line.arrive("a", 20, 21)
    line.arrive("b", 20)
    assert line.wait(30) == ["20-20", "21-20"]
    told = line.last.metrics
    assert (told["tuples_dropped"], told["tuples_admitted"], told["tuple_tests"]) == (6, 3, 2)


def test_forward_evaluation_needs_one_window() -> None:
    """On a graph that is no uniform clique FEW is conservative, and refuses not to be by name."""
    path = {("a", "b"): 2, ("b", "c"): 5}
    with pytest.raises(QueryError, match=r"WA-2007: forward evaluation .* of a path"):
        Timeline("abc", path, strategy="forward", conservative="none")
    line = Timeline("abc", path, strategy="forward")
    line.arrive("a", 1)
    line.arrive("b", 2)
    line.arrive("c", 7, 8)
    assert line.wait(20) == ["1-2-7"]
    assert line.last.metrics["window_tests"] > 0  # the refinement of GCA
    uniform = Timeline("abc", UNIFORM, strategy="forward", conservative="none")
    assert uniform.arrive("a", 1) == []


def test_forward_state_of_older_versions_is_continued() -> None:
    """Without a sweep in it, all rows that the watermark had passed have been joined with each other."""
    line = Timeline("ab", {("a", "b"): 5}, strategy="forward")
    line.arrive("a", 1, 8)
    line.arrive("b", 3)
    assert line.wait(5) == ["1-3"]
    state = _state(line)
    state.notes = []
    state.save()
    line.arrive("b", 6)
    assert line.wait(20) == ["1-6", "8-3", "8-6"]


def test_forward_state_of_older_versions_may_lack_rows_that_only_buffers_hold() -> None:
    """Older versions kept a row for its own stream's windows; the buffers of GCA hold it for the widest of all."""
    line = Timeline("abc", {("a", "b"): 2, ("b", "c"): 7}, strategy="forward")  # b matters for 7, its buffer holds 9
    line.arrive("b", 100)
    state = _state(line)
    state.set_retention([-9, -7, -9])
    state.evict(1, 101)
    state.save()
    line.arrive("a", 300)
    line.arrive("b", 301)
    line.arrive("c", 302)
    assert line.wait(400) == ["300-301-302"]


@pytest.mark.parametrize("conservative", ["lca", "gca"])
@pytest.mark.parametrize("method", ["hash", "nested"])
def test_forward_evaluation_looks_at_the_same_on_a_stream(conservative: str, method: str) -> None:
    """What the laws count on finite input is what FEW does on a stream, though old rows are gone already there."""
    random = np.random.default_rng(8)
    tables = [pa.table({"k": random.integers(0, 3, 90), "t": np.sort(random.integers(0, 400, 90))}) for _ in "abc"]
    query = WindowJoin(
        times=dict.fromkeys("abc", POINT), windows={("a", "b"): 9, ("b", "c"): (-4, 20)}, on="k", strategy="forward",
        conservative=conservative, method=method,
    )  # fmt: skip
    counted = [
        run(query, tables).metrics,
        run_stream(query, [[table.slice(at, 30) for at in (0, 30, 60)] for table in tables]).metrics,
    ]
    names = ("periods", "periods_shrunk", "tuples_dropped", "tuples_admitted", "period_tests", "tuple_tests")
    finite, stream = ([found[name] for name in (*names, "window_tests")] for found in counted)
    assert stream == finite
    assert counted[0]["matched"] == counted[1]["matched"] > 50


def test_equal_times_come_once() -> None:
    for strategy in ("backward", "forward"):
        line = Timeline("abc", {("a", "b"): 0, ("b", "c"): 0}, strategy=strategy)
        found = [*line.arrive("c", 5, 5), *line.arrive("a", 5), *line.arrive("b", 5, 5), *line.wait(6)]
        assert found == ["5-5-5"] * 4


def test_modified_bew_passes_over_and_drops_nothing() -> None:
    """Section 5.2: a row that violates a window with one member is skipped, as it may fit another combination."""
    line = Timeline("abc", {("a", "b"): 2, ("b", "c"): 2}, strategy="backward", conservative="none")
    line.arrive("a", 0, 6)
    line.arrive("b", 4)
    assert line.arrive("c", 4) == ["6-4-4"]  # a@0 fits no b yet
    assert line.arrive("b", 2) == ["0-2-4"]


def test_a_row_is_kept_to_the_microsecond_of_its_horizon() -> None:
    """Path a -5- b -3- c: a row of a matters for 8, one of b for 5, one of c for 8."""
    for name, horizon in (("a", 8), ("b", 5), ("c", 8)):
        for watermark, found in ((100 + horizon, True), (100 + horizon + 1, False)):
            line = Timeline("abc", {("a", "b"): 5, ("b", "c"): 3}, strategy="backward")
            line.arrive(name, 100)
            line.wait(watermark)
            held = sum(map(len, _state(line).load(line.query.inputs.index(name), 0, 10_000)))
            assert held == int(found), (name, watermark)


def _state(line: Timeline) -> Any:
    from whenabouts.core.state.segmented_state import SegmentedState

    return SegmentedState(line.store, line.operator._layout, slot_us=1)


def test_a_row_that_only_looks_back_is_not_kept() -> None:
    """b comes 1 to 5 before a: a row of a has met all its partners when it comes, a row of b waits for 5."""
    line = Timeline("ab", {("a", "b"): (-5, -1)}, strategy="backward")
    line.arrive("b", 100)
    assert line.arrive("a", 103, watermark=103) == ["103-100"]
    assert sum(map(len, _state(line).load(0, 0, 10_000))) == 0
    assert sum(map(len, _state(line).load(1, 0, 10_000))) == 1


def test_state_of_one_way_of_working_is_refused_by_the_other() -> None:
    line = Timeline("ab", {("a", "b"): 5}, strategy="backward")
    line.arrive("a", 1)
    other = Timeline("ab", {("a", "b"): 5}, strategy="forward")
    other.store = line.store
    with pytest.raises(Exception, match="WA-3003"):
        other.arrive("a", 2)


def test_wider_windows_need_rows_that_are_gone() -> None:
    narrow, wide = (Timeline("ab", {("a", "b"): width}, strategy="backward") for width in (5, 50))
    narrow.arrive("a", 1_000, 9_000)
    narrow.wait(8_000)
    wide.store = narrow.store
    with pytest.raises(Exception, match="WA-3006"):
        wide.wait(8_100)


def _tables(**rows: list[int]) -> dict[str, pa.Table]:
    return {name: pa.table({"t": t, "id": list(range(len(t)))}) for name, t in rows.items()}


@pytest.mark.parametrize(("strategy", "conservative"), [("backward", "none"), ("backward", "gca"), ("forward", "gca")])
def test_predicates_see_aligned_rows(strategy: str, conservative: str) -> None:
    tables = _tables(a=[0, 1, 2], b=[1, 2, 3], c=[2, 2, 4])

    def not_same(one: Any, other: Any) -> Any:
        return pc.not_equal(one["id"], other["id"])

    windows = {("a", "b"): 2, ("b", "c"): 2}
    found = window_join(
        tables, windows=windows, time=POINT, strategy=strategy, conservative=conservative,
        predicates={("c", "a"): not_same, ("a", "b"): lambda a, b: np.asarray(a["t"]) < np.asarray(b["t"])},
    )  # fmt: skip
    every = window_join(tables, windows=windows, time=POINT).to_pylist()
    expected = [row for row in every if row["id_a"] != row["id_c"] and row["t_a"] < row["t_b"]]
    assert 0 < len(expected) < len(every)
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected))


@pytest.mark.parametrize("strategy", ["backward", "forward"])
def test_predicates_in_sql(strategy: str) -> None:
    tables = _tables(a=[0, 1, 2], b=[1, 2, 3], c=[2, 2, 4])
    windows = {("a", "b"): 2, ("b", "c"): 2}
    found = window_join(
        tables, windows=windows, time=POINT, strategy=strategy,
        predicates={("c", "a"): "c.id <> a.id AND a.id + 1 > 0", ("b", "a"): "a.t < b.t", ("a", "b"): "1 < 2"},
    )  # fmt: skip
    every = window_join(tables, windows=windows, time=POINT).to_pylist()
    expected = [row for row in every if row["id_a"] != row["id_c"] and row["t_a"] < row["t_b"]]
    assert 0 < len(expected) < len(every)
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected))
    for wrong, told in (("a.id <", "WA-2091"), ("a.idd = b.id", "WA-2092.*did you mean 'id'"), ("c.id = 1", "WA-2092"),
                        ("a.id || 'x' = 'y'", "WA-2093"), ("a.id", "WA-2093")):  # fmt: skip
        with pytest.raises(QueryError, match=told):
            window_join(tables, windows=windows, time=POINT, predicates={("a", "b"): wrong})


def test_predicates_get_what_a_table_has() -> None:
    tables = {name: pa.table({"t": [0, 5, 9], "id": [0, 1, 2], "more": ["x", "y", None]}) for name in "ab"}

    def later(a: Any, b: Any) -> Any:
        assert a.column_names == b.schema.names == ["t", "id", "more"]
        assert a.num_rows == len(b) == b.to_table().num_rows
        assert a.column("id").equals(a["id"])
        return a.to_pandas()["id"].to_numpy() < np.asarray(b.select(["id"])["id"])

    found = window_join(tables, windows={("a", "b"): 5}, time=POINT, predicates={("a", "b"): later})
    assert found.select(["id_a", "id_b"]).to_pylist() == [{"id_a": 0, "id_b": 1}, {"id_a": 1, "id_b": 2}]
    with pytest.raises(QueryError, match=r"WA-2065: .*KeyError.*hint: it is called with rows of both streams"):
        window_join(tables, windows={("a", "b"): 5}, time=POINT, predicates={("a", "b"): lambda a, b: a.column("z")})


def test_predicates_that_are_none() -> None:
    tables = _tables(a=[0, 1], b=[1, 2])
    nulls = window_join(
        tables, windows={("a", "b"): 2}, time=POINT,
        predicates={("a", "b"): lambda a, b: pc.if_else(pc.equal(a["id"], 0), None, True)},
    )  # fmt: skip
    assert set(nulls.column("id_a").to_pylist()) == {1}
    with pytest.raises(QueryError, match="WA-2065"):
        window_join(tables, windows={("a", "b"): 2}, time=POINT, predicates={("a", "b"): lambda a, b: [True]})
    with pytest.raises(QueryError, match="WA-2065"):
        window_join(tables, windows={("a", "b"): 2}, time=POINT, predicates={("a", "z"): lambda a, b: [True]})


def test_a_row_may_fill_two_places_of_a_self_join() -> None:
    table = pa.table({"t": [0, 3], "id": [1, 2]})
    twice = {"one": table, "other": table}
    assert window_join(twice, windows={("one", "other"): 2}, time=POINT).num_rows == 2
    assert window_join(twice, windows={("one", "other"): 3}, time=POINT).num_rows == 4
    apart = window_join(
        twice, windows={("one", "other"): 3}, time=POINT,
        predicates={("one", "other"): lambda one, other: pc.less(one["id"], other["id"])},
    )  # fmt: skip
    assert apart.num_rows == 1


def test_columns_and_their_names() -> None:
    a = pa.table({"k": [1], "t": [5], "x": ["u"]})
    b = pa.table({"k": pa.array([1], pa.int32()), "t": [6], "y": [1.5]})
    found = window_join({"a": a, "b": b}, on="k", windows={("b", "a"): within(3, confidence=0.5)}, time=POINT)
    assert found.column_names == ["k", "t_a", "x", "t_b", "y", "t_first", "t_last", "probability_b_a"]
    assert found.column("t_last").cast(pa.int64()).to_pylist() == [6]
    assert found.column("probability_b_a").to_pylist() == [1.0]
    with pytest.raises(QueryError, match="WA-2009"):
        window_join({"a": a.rename_columns(["k", "t", "t_first"]), "b": b}, windows={("a", "b"): 3}, time=POINT)
    with pytest.raises(InputError, match="WA-1001"):
        window_join({"a": a, "b": b}, on="z", windows={("a", "b"): 3}, time=POINT)


def test_undeclared_lengths_on_finite_input() -> None:
    tables = {name: pa.table({"lo": [0, 90, 200], "hi": [100, 110, 200]}) for name in ("a", "b", "c")}
    windows = {("a", "b"): within(30, confidence=0.3), ("b", "c"): between(-20, 20, confidence=0.3)}
    time = Interval("lo", "hi")
    algorithms = [("backward", "none"), *((s, c) for s in ("backward", "forward") for c in ("lca", "gca"))]
    found = [window_join(tables, windows=windows, time=time, strategy=s, conservative=c) for s, c in algorithms]
    assert len({str(sorted(map(str, table.to_pylist()))) for table in found}) == 1
    assert found[0].num_rows > 3


def test_one_sided_conditions_on_finite_input() -> None:
    from whenabouts.core import delay

    tables = _tables(a=[0, 10], b=[5, 20], c=[7, 30])
    windows = {("a", "b"): delay(5, confidence=1), ("b", "c"): 3}
    for strategy in ("backward", "forward"):
        found = window_join(tables, windows=windows, time=POINT, strategy=strategy).select(["t_a", "t_b", "t_c"])
        assert sorted(tuple(row.values()) for row in found.to_pylist()) == [(0, 5, 7)]


def test_an_empty_table_is_told_of() -> None:
    tables = _tables(a=[1], b=[])
    tables["b"] = tables["a"].slice(0, 0)
    with pytest.warns(EmptyInputWarning, match="WA-1031: there are no rows in b"):
        assert window_join(tables, windows={("a", "b"): 1}, time=POINT).num_rows == 0


RING: dict[tuple[str, str], Any] = {("a", "b"): 6, ("b", "c"): (-2, 9), ("c", "d"): 5, ("d", "a"): 9}
CLIQUE: dict[tuple[str, str], Any] = dict.fromkeys(itertools.combinations("abcd", 2), 6)


@pytest.mark.parametrize(
    ("windows", "strategy", "conservative"),
    [(RING, "backward", "lca"), (RING, "forward", "gca"), (CLIQUE, "backward", "none"), (CLIQUE, "forward", "none")],
)
def test_blocks_do_not_change_the_rows(
    monkeypatch: pytest.MonkeyPatch, windows: dict[tuple[str, str], Any], strategy: Any, conservative: Any
) -> None:
    from whenabouts.core.window_join import expansion as combinations

    random = np.random.default_rng(5)
    tables = {name: pa.table({"t": random.integers(0, 300, 140), "id": np.arange(140)}) for name in "abcd"}
    query = WindowJoin(
        times=dict.fromkeys("abcd", POINT), windows=windows, strategy=strategy, conservative=conservative
    )
    whole = run(query, list(tables.values()))
    monkeypatch.setattr(combinations, "CANDIDATES_AT_ONCE", 50)
    pieces = run(query, list(tables.values()))
    assert whole.output.num_rows > 1000
    assert pieces.output.sort_by([(f"id_{n}", "ascending") for n in "abcd"]) == whole.output.sort_by(
        [(f"id_{n}", "ascending") for n in "abcd"]
    )
    assert pieces.metrics == whole.metrics


def test_products_of_long_chains_do_not_overflow() -> None:
    from whenabouts.core.window_join.expansion import Expansion, StreamRows
    from whenabouts.core.window_join.join_orders import ANY, JoinOrder

    n = 1 << 16  # of four chains, 2**64 combinations: none at all in 64 bits
    rows = [StreamRows(np.arange(m), np.arange(m, dtype=np.int32), np.array([0, m]), np.empty(0, int)) for m in (1, n)]
    bounds = tuple((ANY,) * level for level in range(5))
    expansion = Expansion(
        JoinOrder((0, 1, 2, 3, 4), bounds, ((),) * 5), [rows[0], *[rows[1]] * 4], lambda *_: np.empty(0, bool), []
    )
    first = next(expansion.of_chains(np.array([[0, 1, *[0, n] * 4]], np.int32), np.array([0])))
    assert [positions[:2].tolist() for positions in first] == [[0, 0]] * 4 + [[0, 1]]


def test_a_stream_that_runs_far_ahead_changes_nothing() -> None:
    random = np.random.default_rng(6)
    files = [
        [pa.table({"t": np.sort(random.integers(0, 1000, n)) + 1000 * step}) for step in range(4)] for n in (60, 40, 50)
    ]
    files[0] = [pa.concat_tables(files[0])]  # all of a before anything of the others
    windows = {("a", "b"): 20, ("b", "c"): 30}
    queries = [
        WindowJoin(times=dict.fromkeys("abc", POINT), windows=windows, strategy=s) for s in ("backward", "forward")
    ]
    found = [run_stream(query, files) for query in queries]
    expected = run(queries[0], [pa.concat_tables(tables) for tables in files]).output
    for outcome in found:
        order = [(name, "ascending") for name in ("t_a", "t_b", "t_c")]
        assert outcome.output.sort_by(order) == expected.sort_by(order)
        assert outcome.metrics["rows_late"] == 0


def test_no_warning_where_all_is_well() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        window_join(_tables(a=[1], b=[1]), windows={("a", "b"): 1}, time=POINT)
