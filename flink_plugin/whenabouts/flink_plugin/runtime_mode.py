"""Whether a job is a stream or a batch."""

from __future__ import annotations

from collections.abc import Sequence

from pyflink.datastream import DataStream
from pyflink.table import Table

from whenabouts.core.runtime.option_checks import refused
from whenabouts.flink_plugin.blocks import Blocks
from whenabouts.flink_plugin.row_streams import environment_of

_MODE = "execution.runtime-mode"


def is_streaming(sources: Sequence[Blocks | Table | DataStream]) -> bool:
    """What `execution.runtime-mode` says of the job of these sources.

    A Table environment gives the job its own mode when it translates a Table, so that of the last Table counts. Raises
    QueryError WA-2006 for AUTOMATIC: Flink decides it for all sources of the job together, when that is submitted. A
    query that was built as a stream would lose rows in a batch, where Flink has the state of one key at a time.
    """
    last = next((source for source in reversed(sources) if isinstance(source, Table)), sources[-1])
    if isinstance(last, Table):
        mode = str(last._t_env.get_config().get(_MODE, "STREAMING"))
    else:
        options = environment_of(last)._j_stream_execution_environment.getConfiguration()
        mode = str(options.getString(_MODE, "STREAMING"))
    if mode.upper() not in ("STREAMING", "BATCH"):
        raise refused(_MODE, mode, "choose STREAMING or BATCH: a query is built for one of them")
    return mode.upper() == "STREAMING"
