"""polars-bio's `overlap` of two Parquet files; run by `overlaps.py` in an environment of its own.

    python polars_bio_overlap.py LEFT RIGHT ROUNDS OUT

One thread, intervals with both ends included. Prints CPU-seconds from frames in memory to all columns of the pairs in
memory, for each round after one to warm up; writes the pairs to OUT.
"""

import sys
import time

import polars as pl
import polars_bio as pb

left_file, right_file, rounds, out = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
pb.set_option("datafusion.execution.target_partitions", "1")
frames = [pl.read_parquet(file).rename({"a": "start", "b": "end"}) for file in (left_file, right_file)]
for frame in frames:
    frame.config_meta.set(coordinate_system_zero_based=False)
for number in range(rounds + 1):
    begun = time.process_time()
    pairs = pb.overlap(*frames, output_type="polars.DataFrame")
    if number:
        print(time.process_time() - begun)
pairs.select(left="id_1", right="id_2").write_parquet(out)
