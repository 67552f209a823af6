"""Flink's schemas, as the planner takes them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyflink.common import Row, Types
from pyflink.table import StreamTableEnvironment

from whenabouts.core import QueryError
from whenabouts.flink_plugin.mini_cluster import local_environment
from whenabouts.planner import Registry, Stream

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def test_the_planner_takes_the_schema_of_a_table_or_a_stream() -> None:
    environment = local_environment(1)
    table = StreamTableEnvironment.create(environment).from_elements([(1, 2)], ["ts", "v"])
    row = Types.ROW_NAMED(["ts", "v"], [Types.LONG(), Types.LONG()])
    rows = environment.from_collection([Row(1, 2)], row)
    registry = Registry()
    registry.register("runs", "SELECT * FROM s [ROWS 5] COALESCE ON v")
    arrow = pa.schema({"ts": pa.int64(), "v": pa.int64()})
    for given in (table, table.get_resolved_schema(), table.get_schema(), rows):
        assert Stream(given).schema.names == arrow.names
        assert registry.share(given) == registry.share(arrow)
    with pytest.raises(QueryError, match=r"WA-2006: a BigIntType is given.*get_resolved_schema"):
        registry.share(table.get_schema().get_field_data_type(0))
