"""Pathway's `interval_join` on two Parquet files; run by `stream_peers.py` in an environment of its own.

    python pathway_join.py LEFT RIGHT WITHIN_US OUT

Prints CPU-seconds from tables in memory to pairs in memory, start-up excluded; writes the pairs to OUT.
"""

import sys
import time

import pandas as pd
import pathway as pw

left_file, right_file, within_us, out = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
frames = [pd.read_parquet(file) for file in (left_file, right_file)]
warm = pw.debug.table_to_pandas(pw.debug.table_from_pandas(frames[0].head(10)))
begun = time.process_time()
left, right = (pw.debug.table_from_pandas(frame) for frame in frames)
near = pw.temporal.interval(-within_us, within_us)
pairs = left.interval_join(right, left.t, right.t, near, left.k == right.k).select(left=left.id_, right=right.id_)
found = pw.debug.table_to_pandas(pairs, include_id=False)
print(time.process_time() - begun)
found.to_parquet(out, index=False)
