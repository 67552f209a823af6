"""Bytewax's `join_window` on two Parquet files; run by `stream_peers.py` in an environment of its own.

    python bytewax_join.py LEFT RIGHT WITHIN_US OUT

It joins rows in the same tumbling window of twice the width. That is not the same question (pairs across an edge are
lost, pairs up to two widths apart are found), but the nearest that Bytewax offers. Prints CPU-seconds; writes the pairs
to OUT.
"""

import sys
import time
from datetime import UTC, datetime, timedelta

import bytewax.operators as op
import bytewax.operators.windowing as win
import pandas as pd
from bytewax.dataflow import Dataflow
from bytewax.testing import TestingSink, TestingSource, run_main

left_file, right_file, within_us, out = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
sides = []
for file in (left_file, right_file):
    frame = pd.read_parquet(file)
    at = [EPOCH + timedelta(microseconds=t) for t in frame["t"].tolist()]
    sides.append(list(zip(frame["k"].astype(str).tolist(), zip(at, frame["id_"].tolist(), strict=True), strict=True)))
begun = time.process_time()
found: list[tuple[str, tuple]] = []
flow = Dataflow("join")
streams = [op.input(name, flow, TestingSource(rows, batch_size=1_000)) for name, rows in zip("lr", sides, strict=True)]
clock = win.EventClock(ts_getter=lambda row: row[0], wait_for_system_duration=timedelta(days=10_000))
windows = win.TumblingWindower(length=timedelta(microseconds=2 * within_us), align_to=EPOCH)
joined = win.join_window("join", clock, windows, *streams, insert_mode="product", emit_mode="complete")
op.output("out", joined.down, TestingSink(found))
run_main(flow)
pairs = [(one[1], other[1]) for _, (_, (one, other)) in found if one is not None and other is not None]
print(time.process_time() - begun)
pd.DataFrame(pairs, columns=["left", "right"]).to_parquet(out, index=False)
