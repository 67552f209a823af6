"""Input clocks in hosts, and repeated rows: cases that the laws for engines do not cover."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.core import EngineError, InputError, Interval, Lateness, Point, QueryError, within
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.expressions.tree import Expression, column
from whenabouts.core.hosting.host import BlockPacker, BucketInput, Hosting, Packed
from whenabouts.core.hosting.query_identity import identity_of
from whenabouts.core.local import run, run_stream, timing_join
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, FlushMode, Query, Step
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.wrappers.deduplication import deduplicated
from whenabouts.core.wrappers.select_project import SelectProject

SCHEMA = pa.schema({"t": pa.int64(), "id": pa.string()})


def join(**options: object) -> TimingJoin:
    return TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within(5, confidence=1), **options)  # type: ignore[arg-type]


def table(*times: int) -> pa.Table:
    return pa.table([list(times), [f"r{t}" for t in times]], schema=SCHEMA)


class Host:
    """A bucket on an engine whose single watermark never advances: progress arrives with the packed rows."""

    def __init__(self, query: Query, *, flushed: bool = False) -> None:
        self.hosting = Hosting(query, (SCHEMA, SCHEMA), 1, streaming=True, flushed=flushed)
        self.operator, self.store = self.hosting.operator(), DictStore()

    def packed(self, input: int, *times: int, end: bool = False) -> Iterator[Packed]:
        packer = BlockPacker(self.hosting, input)
        blocks = [packer.read(batch)[0] for batch in table(*times).to_batches()]
        yield from packer.split(blocks)
        if end:
            yield from packer.ended()

    def step(self, *packed: Iterator[Packed]) -> tuple[Step, bool]:
        arrived = BucketInput()
        for rows in packed:
            arrived.take(self.operator, ((row.kind, row.rows, row.blob) for row in rows))
        step = self.hosting.step(self.operator, self.store, arrived, NO_WATERMARK, FlushMode.FLUSH)
        return step, arrived.ended


def test_a_silent_side_does_not_hold_rows_back_that_wait_for_it() -> None:
    """The right side stops at 10. Left's block of 100 makes it idle, and the watermark 100 - 20 from the next step on.

    left   0 10   40 90   100   101
    right  0 10
    """
    query = join(how="left_anti", lateness=Lateness(idle_after=20))
    host = Host(query)
    host.step(host.packed(0, 0, 10), host.packed(1, 0, 10))
    assert not host.step(host.packed(0, 40, 90))[0].output
    assert not host.step(host.packed(0, 100))[0].output  # so far it is known only that a block began at 40
    step, _ = host.step(host.packed(0, 101))
    assert pa.Table.from_batches(step.output)["t"].to_pylist() == [40]
    late, _ = host.step(host.packed(1, 80, 81))
    assert [each.rows["t"].to_pylist() for each in late.rejected] == [[80]]
    waiting = Host(join(how="left_anti", lateness=Lateness()))
    for times in ((0, 10), (40, 90), (100,), (101,)):
        assert not waiting.step(waiting.packed(0, *times))[0].output


def test_no_side_is_idle_while_others_send_blocks_longer_than_it_may_be_behind() -> None:
    """Either side may be first with its rows for the same period, in any number of steps."""
    for first in (0, 1):
        host = Host(join(lateness=Lateness("1us", "1us", idle_after=20)))
        for block in range(0, 500, 100):
            times = range(block, block + 100, 5)
            for input in (first, 1 - first):
                rows = list(host.packed(input, *times))
                assert not any(host.step(iter([row]))[0].rejected for row in rows)


def test_a_silent_stream_of_a_window_join_does_not_keep_the_state_of_the_others() -> None:
    """Stream c is silent from second 0 on: with `idle_after`, rows of a and b are kept for 20 s, not forever."""
    seconds = [pa.table({"t": [n * 1_000_000], "k": [1]}) for n in range(100)]
    none = seconds[0].slice(0, 0)
    late = [*[none] * 98, seconds[99]]
    files = [seconds, seconds, [seconds[0], *late]]
    windows = {("a", "b"): "2 s", ("b", "c"): "2 s"}
    held = {}
    for idle_after in (None, "10 s"):
        query = WindowJoin.of(("a", "b", "c"), Point("t"), windows=windows, on="k", idle_after=idle_after)
        told = run_stream(query, files)
        assert told.output.num_rows == 12 + 12  # b within 2 s of c, a within 2 s of b, at either end of time
        held[idle_after] = told.metrics["rows_stored"] - told.metrics["rows_evicted"]
    assert held["10 s"] < 40 < 190 < held[None]


def test_inputs_that_tell_their_ends_end_the_stream_once_all_of_them_have() -> None:
    host = Host(join(how="left_outer", lateness=Lateness()), flushed=True)
    host.step(host.packed(0, 0, 10, end=True), host.packed(1, 3))
    step, ended = host.step(host.packed(1, 50))
    assert (pa.Table.from_batches(step.output)["t_left"].to_pylist() if step.output else [], ended) == ([], False)
    step, ended = host.step(host.packed(1, 51))  # an input that has ended does not hold the watermark, now 50, back
    assert (pa.Table.from_batches(step.output)["t_left"].to_pylist(), ended) == ([10], False)
    _, ended = host.step(host.packed(1, end=True))
    assert ended


def test_ends_that_are_told_do_not_reach_the_operator_as_times() -> None:
    arrived = BucketInput(latest={0: END_OF_TIME, 1: 7})
    assert arrived.latest_us == 7


def test_repeats_are_told_by_columns_times_and_key() -> None:
    rows = pa.table({"t": [1, 1, 2, 2, 1], "k": ["a", "b", "a", "a", "a"], "id": [7, 7, 7, None, 7]})
    other = pa.table({"t": [1], "k": ["a"], "id": [1]})
    query = TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within(5, confidence=1), on="k")
    outcome = run(deduplicated(query, {"left": "id"}), [rows, other])
    assert sorted(outcome.output["t_left"].to_pylist()) == [1, 2, 2]  # a null has no information
    assert (outcome.metrics["rows_replayed"], outcome.metrics["rows_processed"]) == (1, 5)
    once = timing_join(
        rows, other, left_time=Point("t"), right_time=Point("t"), condition=within(5, confidence=1), deduplicate_by="id"
    )
    assert once.num_rows == 3


@given(st.permutations(range(8)), st.sets(st.integers(1, 7)))
def test_which_repeat_stays_does_not_depend_on_their_order(order: list[int], cuts: set[int]) -> None:
    """Of those in one step the first by its columns; and the one of an earlier step, whatever these are."""
    rows = pa.table(
        {
            "t": [1, 1, 1, 1, 2, 2, 2, 2],
            "id": [7, 7, 7, 8, 7, 7, 7, None],
            "w": [5, 5, 5, 5, 5, 5, 4, 5],
            "v": [1.0, 0.0, -0.0, 3.0, None, 2.0, 2.0, 2.0],
            "x": [[1], [2], [3], [4], [5], [6], [7], [8]],
        }
    )
    mixed = rows.take(pa.array(order))
    parts = [mixed.slice(first, last - first) for first, last in itertools.pairwise([0, *sorted(cuts), 8])]
    one = pa.table({"t": [1], "id": [1], "w": [1], "v": [1.0], "x": [[0]]})
    outcome = run(deduplicated(join(), "id"), [pa.concat_tables(parts), one])
    assert sorted(x for (x,) in outcome.output["x_left"].to_pylist()) == [3, 4, 7, 8]
    none = one.slice(1)
    steps = [[rows.slice(0, 1), mixed, mixed], [one, none, none]]
    outcome = run_stream(deduplicated(join(lateness="1 s"), "id"), steps)
    assert sorted(x for (x,) in outcome.output["x_left"].to_pylist()) == [1, 4, 7, 8, 8]
    assert outcome.metrics["rows_replayed"] == 5 + 7


def test_keys_that_are_computed_tell_repeats_too() -> None:
    rows = pa.table({"received": [0, 1, 2], "t": [1, 1, 2], "v": [1, 1, 1], "id": [7, 7, 8]})
    less = ("less", Expression("subtract", (column("v"), Expression("literal", value=2))))
    query = SelectProject(query=Coalesce(time="t", group="less", values="v"), derived={"events": (less,)})
    outcome = run(deduplicated(query, "id"), [rows])
    assert (outcome.metrics["rows_replayed"], outcome.output["n"].to_pylist()) == (1, [2])
    with pytest.raises(InputError, match="WA-1001: the events input has no column '_wa_t_max'"):
        run(deduplicated(query, "_wa_t_max"), [rows])


@pytest.mark.parametrize("name", ["_row", "row", "0", "row_min"])
def test_columns_of_any_name_identify_rows(name: str) -> None:
    rows = pa.table({"t": [1, 2, 2], name: [7, 8, 8]})
    assert run(deduplicated(join(), name), [rows, rows]).output.num_rows == 4


def test_a_stream_that_looks_for_repeats_leaves_stderr_alone(capfd: pytest.CaptureFixture[str]) -> None:
    """Arrow writes a warning there where it groups stored rows as they lie."""
    files = [table(1, 2), table(2, 3), table(3)]
    outcome = run_stream(deduplicated(join(lateness=9), "id"), [files, files])
    assert outcome.metrics["rows_replayed"] == 4
    assert capfd.readouterr().err == ""


def test_coalescing_takes_rows_in_once_too() -> None:
    rows = pa.table({"t": [1, 2, 1], "v": [1, 1, 5], "id": [1, 2, 1]})
    outcome = run(deduplicated(Coalesce(time="t", values="v"), "id"), [rows])
    assert outcome.output["n"].to_pylist() == [2]
    assert outcome.metrics["rows_in"] == outcome.metrics["rows_processed"] + outcome.metrics["rows_replayed"] == 3


def test_what_identifies_rows_is_part_of_what_state_is_bound_to() -> None:
    plain, once = (identity_of(q, (SCHEMA, SCHEMA), 2) for q in (join(), deduplicated(join(), "id")))
    assert once.query == plain.query
    with pytest.raises(EngineError, match=r"WA-3032: .*dedupe was absent and is \(\('id',\), \('id',\)\)"):
        once.check(plain.to_json())
    other = TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within(5, confidence=0.5))
    identity_of(deduplicated(other, "id"), (SCHEMA, SCHEMA), 2).check(once.to_json())  # the confidence may change


def test_what_cannot_identify_rows_is_refused() -> None:
    with pytest.raises(QueryError, match=r"WA-2101: rows of 'rigth' .*left, right"):
        deduplicated(join(), {"rigth": "id"})
    with pytest.raises(QueryError, match="WA-2101"):
        deduplicated(join(), ())
    with pytest.raises(InputError, match="WA-1001: the left input has no column 'key'"):
        run(deduplicated(join(), "key"), [table(1), table(1)])
    nested = pa.table({"t": [1], "id": [[1]]})
    with pytest.raises(InputError, match="WA-1002: column 'id' of the left input is list"):
        run(deduplicated(join(), "id"), [nested, nested])
    with pytest.raises(QueryError, match="WA-2003"):
        Lateness(idle_after="-1 s")


def test_intervals_and_dictionaries_identify_rows() -> None:
    rows = pa.table({"a": [1, 1, 0], "b": [2, 2, 2], "id": pa.array(["x", "x", "x"]).dictionary_encode()})
    time = Interval("a", "b", max_uncertainty=5)
    query = TimingJoin(left_time=time, right_time=time, condition=within(5, confidence=1))
    assert run(deduplicated(query, "id"), [rows, rows]).output.num_rows == 4
