"""The host of micro-batches: a replayed step is the same step."""

from __future__ import annotations

import pyarrow as pa
import pytest

from whenabouts.conformance.simulated_spark import Group
from whenabouts.core import EngineError, Lateness, Point, within
from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.hosting.host import OUTPUT, REJECTED, BlockPacker, Hosting, Tagged
from whenabouts.core.hosting.micro_batch_host import CONTROL, LAYOUT, LAYOUT_WITH_CLOCKS, MicroBatchHost
from whenabouts.core.local import run
from whenabouts.core.state.segment_codec import decode
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.wrappers.deduplication import deduplicated
from whenabouts.core.wrappers.state_limit import SHED, StateLimit


def test_rows_that_a_shuffle_reorders_are_the_same_step() -> None:
    """A limit sheds the last rows: which ones must not depend on the shuffle, or a replay would shed others."""
    query = TimingJoin(
        left_time=Point("t"), right_time=Point("t"), condition=within(5, confidence=1), lateness=Lateness("1 s", "1 s")
    )
    schema = pa.schema({"t": pa.int64()})
    hosting = Hosting(query, (schema, schema), 1, True, StateLimit(3, SHED))
    packer = BlockPacker(hosting, 0)
    blocks = [packer.read(pa.record_batch([pa.array(times)], schema=schema))[0] for times in ([1, 2], [3, 4], [5, 6])]
    packed = [(row.kind, row.rows, row.blob) for block in blocks for row in packer.split([block])]
    given = [
        sorted(MicroBatchHost(hosting).rows(0, order, Group(), 0))
        for order in (packed, packed[::-1], [packed[1], packed[2], packed[0]])
    ]
    assert given[0] == given[1] == given[2]
    assert any(row.tag == REJECTED for row in given[0])


def test_of_repeats_in_one_step_the_one_stays_that_stays_in_process() -> None:
    """Packs are sorted by their bytes, so the order of arrival is lost."""
    query = deduplicated(
        TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within(5, confidence=1), lateness=10), "id"
    )
    schema = pa.schema({"t": pa.int64(), "id": pa.string(), "v": pa.string()})
    hosting = Hosting(query, (schema, schema), 1, True)
    parts = [(0, [(10, "a", "z"), (11, "x", "")]), (0, [(10, "a", "b")]), (0, [(10, "a", "c")]), (1, [(10, "r", "")])]
    packed, tables = [], [schema.empty_table()] * 2
    for input, rows in parts:
        packer = BlockPacker(hosting, input)
        batch = pa.record_batch([pa.array(column) for column in zip(*rows, strict=True)], schema=schema)
        packed += [(row.kind, row.rows, row.blob) for row in packer.split([packer.read(batch)[0]])]
        tables[input] = pa.concat_tables([tables[input], pa.Table.from_batches([batch])])
    given = MicroBatchHost(hosting).rows(0, packed, Group(), 0)
    columns = hosting.operator().output_schema
    (output,) = [decode(row.blob, columns) for row in given if row.tag == OUTPUT]
    want = run(query, tables).output
    assert sorted(output["v_left"].to_pylist()) == sorted(want["v_left"].to_pylist()) == ["", "b"]


SCHEMA = pa.schema({"t": pa.timestamp("us"), "k": pa.int64(), "j": pa.int64()})


def asof(idle_after: str | None, lateness: str = "1 s", on: str = "k") -> Hosting:
    query = AsofJoin(
        left_time=Point("t"), right_time=Point("t"), on=on, confidence=1.0, how="left_outer",
        lateness=Lateness(lateness, lateness, idle_after=idle_after),
    )  # fmt: skip
    return Hosting(query, (SCHEMA, SCHEMA), 1, True)


def micro_batch(hosting: Hosting, group: Group, *inputs: list[int], watermark_ms: int = 0) -> list[Tagged]:
    """Rows of each input, by their seconds."""
    packed = []
    for input, seconds in enumerate(inputs):
        packer = BlockPacker(hosting, input)
        times = pa.array([at * 1_000_000 for at in seconds], pa.timestamp("us"))
        rows = pa.record_batch([times, pa.array([1] * len(seconds)), pa.array([2] * len(seconds))], schema=SCHEMA)
        packed += packer.split([packer.read(rows)[0]])
    given = MicroBatchHost(hosting).rows(0, [(row.kind, row.rows, row.blob) for row in packed], group, watermark_ms)
    return list(given)


@pytest.mark.parametrize(("idle_after", "lateness"), [("1000 s", "1 s"), (None, "1 s"), ("10 s", "500 s")])
def test_the_watermark_never_goes_back_whatever_the_settings_of_a_restart(
    idle_after: str | None, lateness: str
) -> None:
    """The right rows of 100 s are gone: a left row of 150 s would have a wrong answer. It is late, as it would be
    without the change."""
    group = Group()
    for seconds in ([0], [100], [200], [300]):
        micro_batch(asof("10 s"), group, [], seconds)
    micro_batch(asof("10 s"), group, [], [301])
    changed = asof(idle_after, lateness)
    given = micro_batch(changed, group, [150, 295])
    rejected = [decode(row.blob, changed.rejects_schema) for row in given if row.tag == REJECTED]
    assert [(code, input) for rows in rejected for code, input in zip(*rows_of_rejects(rows), strict=True)] == [
        ("WA-1010", "left")
    ]
    again = micro_batch(changed, group, [151])
    assert sum(row.tag == REJECTED for row in again) == 1, "it stays where it was"


def rows_of_rejects(rows: pa.RecordBatch) -> tuple[list[str], list[str]]:
    return rows.column("code").to_pylist(), rows.column("input").to_pylist()


def test_a_bucket_without_clocks_is_not_asked_for_them() -> None:
    group = Group()
    micro_batch(asof(None), group, [1], [2], watermark_ms=1)
    assert group.record is not None
    assert group.record[0] == LAYOUT
    micro_batch(asof("10 s"), group, [3], [3], watermark_ms=1)
    assert group.record[0] == LAYOUT_WITH_CLOCKS


def test_each_micro_batch_compares_the_query_with_the_checkpoints() -> None:
    """A writer of the user's own starts without `write_stream`'s check."""
    group = Group()
    for hosting in (asof(None), asof("1 s"), asof(None)):
        assert list(MicroBatchHost(hosting).rows(CONTROL, [], group, 0))
    with pytest.raises(EngineError, match=r"WA-3032.*on was \('k',\) and is \('j',\)"):
        MicroBatchHost(asof(None, on="j")).rows(CONTROL, [], group, 0)
