"""In process mode a checkpoint may be taken before timers are registered: the results that they would trigger are not
lost."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import pyarrow as pa
import pytest

from whenabouts.core import Interval, Lateness, within
from whenabouts.core.harness import Variant
from whenabouts.core.local import run
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.flink_plugin.harness import FlinkProcessHarness

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.filterwarnings("ignore")]

SECOND = 1_000_000
TIME = Interval("t_min", "t_max", max_uncertainty="1s")
JOIN = TimingJoin(
    left_time=TIME, right_time=TIME, on="k", condition=within("3s", confidence=0.5), how="left_outer",
    lateness=Lateness("1s", "1s"),
)  # fmt: skip


class _Bundling(FlinkProcessHarness):
    """Bundles end with checkpoints, or by age: no checkpoint comes at the end of the input. There is one checkpoint
    between two steps."""

    options: ClassVar = {
        "python__fn_execution__bundle__size": "1000",
        "python__fn_execution__bundle__time": "1000",
        "execution__checkpointing__interval": "1 s",
    }


def _rows(at_s: int, keys: range) -> pa.Table:
    t = [at_s * SECOND + key for key in keys]
    return pa.table({"t_min": t, "t_max": t, "k": list(keys)})


def test_timers_that_a_checkpoint_has_missed_are_set_again() -> None:
    """After the first file, from whose checkpoint the job continues, only rows of one key follow."""
    lefts = [_rows(0, range(40)), *(_rows(at, range(1)) for at in (10, 20, 30))]
    rights = [table.slice(0, 0) for table in lefts]
    job = _Bundling().open(JOIN, Variant(streaming=True, parallelism=4, restart_after=1))
    job.source("left", lefts)
    job.source("right", rights)
    found = job.collect()
    assert job.crashed
    expected = run(JOIN, [pa.concat_tables(lefts), pa.concat_tables(rights)])
    columns = expected.output.column_names
    assert _counted(found.output.select(columns)) == _counted(expected.output)


def _counted(rows: pa.Table) -> Counter[str]:
    return Counter(map(repr, rows.to_pylist()))
