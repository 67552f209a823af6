"""The host of micro-batches: a replayed step is the same step."""

from __future__ import annotations

import pyarrow as pa

from whenabouts.conformance.simulated_spark import Group
from whenabouts.core import Lateness, Point, within
from whenabouts.core.hosting.host import REJECTED, BlockPacker, Hosting
from whenabouts.core.hosting.micro_batch_host import MicroBatchHost
from whenabouts.core.timing_join.query import TimingJoin
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
