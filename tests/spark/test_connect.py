"""Everything works over Spark Connect, too: with a server of its own, and a client that must not use py4j."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.connect import PATIENCE_S, connect_server, needs_connect
from whenabouts.core import Interval, within
from whenabouts.core.local import run
from whenabouts.core.timing_join.query import TimingJoin

pytestmark = [pytest.mark.slow, needs_connect]

WITHOUT_JVM = """
import runpy, sys
from py4j import clientserver, java_gateway
def refuse(*args, **kwargs): raise AssertionError("a client of Spark Connect reaches for a JVM")
for gateway in (java_gateway.JavaGateway, java_gateway.GatewayClient, clientserver.ClientServer):
    gateway.__init__ = refuse
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with connect_server(tmp_path) as address:
        yield address


def rows(table: pa.Table, schema: pa.Schema) -> Counter[str]:
    return Counter(map(repr, table.select(schema.names).cast(schema).to_pylist()))


def test_batch_stream_rejects_and_sql_over_connect(server: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    t_max = np.sort(draw.integers(0, 60_000_000, 40)) + 1_600_000_000_000_000
    table = pa.table(
        {
            "t_min": pa.array(t_max - draw.integers(-500_000, 5_000_000, 40), pa.timestamp("us", "UTC")),
            "t_max": pa.array(t_max, pa.timestamp("us", "UTC")),
            "k": pa.array(draw.integers(0, 3, 40)),
            "id": pa.array(range(40)),
        }
    )
    (tmp_path / "events").mkdir()
    pq.write_table(table, tmp_path / "events" / "a.parquet")
    client = subprocess.run(
        [sys.executable, "-c", WITHOUT_JVM, str(Path(__file__).parent / "connect_client.py"), server, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert client.returncode == 0, client.stderr[-3000:]
    time = Interval("t_min", "t_max", max_uncertainty="5 s")
    query = TimingJoin(left_time=time, right_time=time, condition=within("4 s", confidence=0.6), on="k")
    want = run(query, [table, table])
    assert want.output.num_rows > 40
    assert want.rejects.num_rows > 1
    for name in ("batch", "stream", "sql"):
        told = pq.read_table(tmp_path / f"{name}.parquet")
        assert rows(told, want.output.schema) == rows(want.output, want.output.schema), name
    for name in ("rejects", "split"):
        told = pq.read_table(tmp_path / f"{name}.parquet")
        assert rows(told, want.rejects.schema) == rows(want.rejects, want.rejects.schema), name
