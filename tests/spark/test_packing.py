"""Rows survive packing, whatever the sizes of batches and packs; this needs no engine."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.core import Interval, Lateness, Point, within
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.hosting import host as hosting
from whenabouts.core.hosting import out_of_core as piecemeal
from whenabouts.core.hosting.host import COUNTS, OUTPUT, BucketInput, Hosting, read_counts
from whenabouts.core.hosting.micro_batch_host import CONTROL
from whenabouts.core.hosting.micro_batch_watermark import MicroBatchWatermark, delay_ms
from whenabouts.core.hosting.packed_kinds import PRESENT, REJECTS
from whenabouts.core.local import run
from whenabouts.core.runtime.blocks import T_MAX
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.state.segment_codec import decode
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.spark_plugin import packing
from whenabouts.spark_plugin.batch_host import BatchHost
from whenabouts.spark_plugin.bucket_labels import bucket_labels, partition_of
from whenabouts.spark_plugin.packing import Packer

SCHEMA = pa.schema({"t": pa.int64(), "k": pa.int64()})
QUERY = TimingJoin(left_time=Point("t"), right_time=Point("t"), on="k", condition=within(5, confidence=1))
HOSTING = Hosting(QUERY, (SCHEMA, SCHEMA), 4, True)

rows = st.lists(st.tuples(st.none() | st.integers(-(2**40), 2**40), st.none() | st.integers(0, 9)), max_size=12)


@given(st.lists(rows, max_size=4), st.integers(1, 20))
def test_every_row_arrives_once_in_the_bucket_of_its_key(
    batches: list[list[tuple[int | None, int | None]]], pack: int
) -> None:
    given_rows = [pa.RecordBatch.from_pylist([{"t": t, "k": k} for t, k in b], SCHEMA) for b in batches]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "ROWS_PER_PACK", pack)
        packed = list(Packer(HOSTING, 1).pack(given_rows))
    operator = HOSTING.operator()
    seen: Counter[tuple[int, int | None]] = Counter()
    rejected = 0
    present = 0
    for row in (row for batch in packed for row in batch.to_pylist()):
        assert (row["bucket"] == CONTROL) == (row["kind"] in (REJECTS, PRESENT))
        if row["bucket"] == CONTROL:
            rejected += row["rows"]
            present += row["kind"] == PRESENT and not row["blob"]  # with one: the counts of doubtful integer times
            continue
        arrived = BucketInput()
        arrived.take(operator, [(row["kind"], row["rows"], row["blob"])])
        (arrival,) = arrived.arrivals
        block = arrival.block
        assert (arrival.input, block.num_rows) == (1, row["rows"])
        assert {bucket_labels(4)[b] for b in operator.keys.buckets(block, 4)} == {row["bucket"]}
        clock = row["clock"]
        assert int(clock.timestamp() // 1) * 1_000_000 + clock.microsecond == max(block.column(T_MAX).to_pylist())
        assert "first" not in row  # batch only
        seen.update((r["t"], r["k"]) for r in block.to_pylist())
    assert seen == Counter((t, k) for b in batches for t, k in b if t is not None)
    assert rejected == sum(t is None for b in batches for t, _ in b)
    assert present == any(batches)


@given(st.integers(1, 300))
def test_every_bucket_has_a_partition_of_its_own(buckets: int) -> None:
    labels = bucket_labels(buckets)
    assert [partition_of(label, buckets) for label in labels] == list(range(buckets))
    assert CONTROL not in labels


@given(st.integers(-(10**15), 10**15), st.integers(0, 10**7), st.integers(0, 10**7))
def test_the_watermark_never_claims_more_than_is_true(t_max_us: int, lateness_us: int, behind_us: int) -> None:
    """Spark: floor of the greatest time to milliseconds, less the delay; a row within the lateness is never late."""
    clock = MicroBatchWatermark(max(t_max_us // 1000 - delay_ms(lateness_us), 0))
    in_time = t_max_us - min(behind_us, lateness_us)
    assert in_time >= clock.us
    if clock.ms > 0:  # and Spark accepts an event time that the operator accepts
        assert clock.us > clock.ms * 1000


def test_the_watermark_is_exact_for_whole_milliseconds() -> None:
    latest, lateness = 1_700_000_000_123_000, 5_000_000
    assert MicroBatchWatermark(latest // 1000 - delay_ms(lateness)).us == latest - lateness


@given(st.integers(-(10**15), 10**15), st.integers(0, 10**12), st.integers(0, 10**12))
def test_a_timer_fires_at_the_first_watermark_that_reaches_it(timer_us: int, now_ms: int, later_ms: int) -> None:
    now, later = MicroBatchWatermark(now_ms), MicroBatchWatermark(now_ms + later_ms)
    set_to = now.timer_ms(timer_us)
    assert set_to is not None
    assert set_to >= now.ms  # not due in this micro-batch again
    if later.ms > now.ms:
        assert (later.ms > set_to) == (later.us >= timer_us)


def test_no_timer_is_told_from_a_timer_at_zero() -> None:
    assert (MicroBatchWatermark(0).timer_ms(None), MicroBatchWatermark(0).timer_ms(-5)) == (None, 0)


def test_output_is_cut_into_blobs_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "BYTES_PER_BLOB", 1000)
    batch = pa.record_batch({"n": list(range(1001))})
    pieces = list(hosting._pieces(batch))
    assert pa.Table.from_batches(pieces).to_pydict() == batch.to_pydict()
    assert max(piece.nbytes for piece in pieces) <= 1000


def test_lateness_of_each_side_is_its_own() -> None:
    query = TimingJoin(
        left_time=Point("t"), right_time=Point("t"), condition=within(5, confidence=1), lateness=Lateness("1 ms", "2 s")
    )
    assert [delay_ms(lateness) for lateness in query.lateness_us] == [2, 2001]


# --- Large buckets in batch -----------------------------------------------------------------------------------------


def _table(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    t = rng.permutation(rows) * 1_000_000
    return pa.table(
        {
            "a": t - rng.integers(0, 3_000_000, rows),
            "b": t,
            "k": rng.integers(0, 2, rows),
            "v": t // 7_000_000 % 2,
            "id": np.arange(rows),
        }
    )


def _through_the_batch_host(query: Query, tables: list[pa.Table], buckets: int) -> tuple[pa.Table, Counter[str]]:
    host = Hosting(query, tuple(table.schema for table in tables), buckets, False)
    packed = [
        row for i, t in enumerate(tables) for b in Packer(host, i).pack(t.to_batches(100)) for row in b.to_pylist()
    ]
    packed.sort(key=lambda row: (row["bucket"], row["first"]))
    batch = pa.RecordBatch.from_pylist(packed)
    tagged = [row for out in BatchHost(host).run([batch]) for row in out.to_pylist()]
    schema = host.operator().output_schema
    output = [decode(row["blob"], schema) for row in tagged if row["tag"] == OUTPUT]
    return pa.Table.from_batches(output, schema), read_counts(row["blob"] for row in tagged if row["tag"] == COUNTS)


UNSURE = Interval("a", "b", max_uncertainty="3 s")
LARGE: dict[str, Query] = {
    "pairs": TimingJoin(left_time=UNSURE, right_time=UNSURE, on="k", condition=within("4 s", confidence=0.5)),
    "mutual best": TimingJoin(
        left_time=UNSURE,
        right_time=UNSURE,
        on="k",
        condition=within("4 s", confidence=0.5),
        how="full_outer",
        best="both",
    ),
    "no key": TimingJoin(
        left_time=UNSURE, right_time=UNSURE, condition=within("4 s", confidence=0.9), how="left_anti", time_slots="50 s"
    ),
    "lengths not declared": TimingJoin(
        left_time=Interval("a", "b"), right_time=Interval("a", "b"), on="k", condition=within("4 s", confidence=0.5)
    ),
    "extents": Coalesce(time="b", group="k", values="v", window="5 s", slide="5 s"),
}


@pytest.mark.parametrize("kind", LARGE)
def test_a_bucket_larger_than_memory_is_taken_in_piecemeal(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(hosting, "ROWS_PER_BLOB", 40)
    monkeypatch.setattr(piecemeal, "BYTES_PER_PIECE", 20_000)
    query = LARGE[kind]
    tables = [_table(2_000, seed) for seed in range(len(query.inputs))]
    output, counts = _through_the_batch_host(query, tables, 3)
    want = run(query, tables)
    assert sorted(map(repr, output.to_pylist())) == sorted(map(repr, want.output.to_pylist()))
    assert counts["rows_in"] == counts["rows_processed"] == sum(map(len, tables))
    if kind == "lengths not declared":
        assert counts["rows_stored"] == 0  # without a rule for eviction: all rows at once
    elif kind != "extents":  # which keep extents, not rows
        assert counts["rows_evicted"] > 0.5 * counts["rows_stored"] > 0
