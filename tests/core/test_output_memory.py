"""A step whose output does not fit into memory stops with a code and the number of rows, before it begins if
possible."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.core import Interval, Lateness, Point, QueryError, WhenaboutsError, within
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.local import coalesce, run, run_stream, temporal_join, window_join
from whenabouts.core.runtime import output_memory
from whenabouts.core.runtime.output_memory import MEBIBYTES, free_bytes
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.timing_join.settings import STRATEGIES

SECOND = 1_000_000
FREE = 1 << 30


@pytest.fixture
def _a_gibibyte(monkeypatch: pytest.MonkeyPatch) -> None:
    """On any machine."""
    monkeypatch.delenv(MEBIBYTES, raising=False)
    monkeypatch.setattr(output_memory, "free_bytes", lambda: FREE)


def points(rows: int) -> pa.Table:
    return pa.table({"t": pa.array(np.arange(rows)), "id": pa.array(np.arange(rows))})


def query(reach: int, **options: Any) -> TimingJoin:
    point = Point("t")
    return TimingJoin(left_time=point, right_time=point, condition=within(reach, confidence=1), **options)


@pytest.mark.usefixtures("_a_gibibyte")
@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name not in ("simple", "ssort")])
@pytest.mark.parametrize("how", ["inner", "full_outer"])
def test_an_accidental_cross_join_stops_before_a_pair_is_made(strategy: str, how: str) -> None:
    """100,000 x 100,000 points within each other's reach: 10,000,000,000 pairs, known from the bounds."""
    asked = query(100_000, strategy=strategy, how=how)
    expected = (
        r"WA-2201: at least 10,000,000,000 pairs of 100,000 x 100,000 rows are expected, which take \d+\.\d GiB, "
        r"and 1\.0 GiB are free .*join on a key.*best=.*left_semi.*WHENABOUTS_OUTPUT_MEMORY=off"
    )
    with pytest.raises(QueryError, match=expected):
        run(asked, [points(100_000)] * 2)


@pytest.mark.usefixtures("_a_gibibyte")
def test_so_does_a_step_of_a_stream_and_a_step_that_fits_does_not() -> None:
    files = [[points(10), points(100_000)]] * 2
    asked = query(100_000, lateness=Lateness("1s", "1s"))
    with pytest.raises(QueryError, match=r"WA-2201: at least 10,001,000,000 pairs of 100,010 x 100,010 rows"):
        run_stream(asked, files)
    assert run_stream(query(3, lateness=Lateness("1s", "1s")), files).output.num_rows > 700_000


@pytest.mark.usefixtures("_a_gibibyte")
@pytest.mark.parametrize("how", ["left_semi", "left_anti"])
def test_modes_that_make_no_pairs_are_not_stopped(how: str) -> None:
    assert run(query(100_000, how=how), [points(100_000)] * 2).output.num_rows in (0, 100_000)


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "best"), [("simple", None), ("ssort", None), ("auto", None), ("auto", "left")])
def test_what_the_bounds_do_not_know_stops_on_the_way(
    strategy: str, best: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window that is narrower than the times: no pair is sure, and the output has 6,250,000 pairs of at least 24
    bytes."""
    n = 2_500
    table = pa.table({"a": [0] * n, "b": [1_000] * n, "id": range(n)})
    time = Interval("a", "b")
    asked = TimingJoin(
        left_time=time, right_time=time, condition=within(900, confidence=0.1), strategy=strategy, best=best
    )
    monkeypatch.setenv(MEBIBYTES, "100")
    if best is not None:  # one partner of each
        assert run(asked, [table, table]).output.num_rows == n
        return
    with pytest.raises(QueryError, match=r"WA-2201: \d,\d+,\d+ pairs in one step take \d+"):
        run(asked, [table, table])
    monkeypatch.setenv(MEBIBYTES, "off")
    assert run(asked, [table, table]).output.num_rows == n * n


def test_memory_that_runs_short_on_the_way_stops_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MEBIBYTES, raising=False)
    # The second time that little is left: memory kept for later arrays is let go of first.
    left = iter([FREE, FREE >> 1, 1 << 20, 1 << 20])
    monkeypatch.setattr(output_memory, "free_bytes", lambda: next(left))
    with pytest.raises(QueryError, match=r"in one step take .* more are to come, and 1\.0 MiB are free"):
        run(query(3_000), [points(3_000)] * 2)


def combinations() -> Any:
    tables = {name: points(100_000) for name in "ab"}
    return window_join(tables, time=Point("t"), windows={("a", "b"): 100_000})


def three_streams() -> Any:
    """Each single expansion has few partners; together there are many."""
    tables = {name: points(3_000) for name in "abc"}
    return window_join(tables, time=Point("t"), windows={("a", "b"): 3_000, ("b", "c"): 3_000})


def periods() -> Any:
    n = 100_000
    table = pa.table(
        {"t": pa.array(np.repeat([0, SECOND], n)), "g": pa.array(np.tile(np.arange(n), 2)), "v": [1] * 2 * n}
    )
    return temporal_join(table, table, time="t", group="g", values="v", window="1h")


def rows_in_a_gap() -> Any:
    """Ten days without rows, evaluated a million times a second."""
    table = pa.table({"t": [0, 864_000 * SECOND], "v": [1, 2]})
    return coalesce(table, time="t", values="v", rows=1, slide="1us")


def window_over_a_gap() -> Any:
    table = pa.table({"t": [0, 864_000 * SECOND], "v": [1, 2]})
    return coalesce(table, time="t", values="v", window="11d", slide="1us")


def many_runs_in_many_extents() -> Any:
    table = pa.table({"t": np.arange(50_000), "v": np.arange(50_000)})
    return coalesce(table, time="t", values="v", window="1s", slide="1us")


@pytest.mark.usefixtures("_a_gibibyte")
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (combinations, "at least 10,000,000,000 combinations of 100,000 x 100,000 rows"),
        (three_streams, r"at least [\d,]+ combinations|[\d,]+ combinations in one step take"),
        (periods, "at least 10,000,000,000 pairs of periods to compare"),
        (rows_in_a_gap, r"at least 864,000,000,001 instants at which a window slides"),
        (window_over_a_gap, r"at least 864,000,000,001 extents of a window and a group"),
        (many_runs_in_many_extents, r"at least 1,250,025,000 coalesced rows of all extents"),
    ],
)
def test_other_operators_stop_alike(asked: Callable[[], Any], told: str) -> None:
    with pytest.raises(QueryError, match=f"WA-2201: {told}"):
        asked()


@pytest.mark.usefixtures("_a_gibibyte")
def test_a_gap_in_a_stream_stops_alike() -> None:
    files = [[pa.table({"t": [t], "v": [1]}) for t in (0, 1, 864_000 * SECOND, 864_001 * SECOND)]]
    with pytest.raises(QueryError, match="WA-2201"):
        run_stream(Coalesce(time="t", values="v", rows=1, slide="1us", lateness=0), files)


@pytest.mark.parametrize("told", ["1G", "-1", "", "none"])
def test_a_setting_that_is_none_is_refused(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MEBIBYTES, told)
    with pytest.raises(WhenaboutsError, match="WA-2151"):
        run(query(100_000), [points(100_000)] * 2)


def test_small_output_never_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_memory, "free_bytes", lambda: 0)
    assert run(query(10), [points(10_000)] * 2).output.num_rows > 200_000


def _written(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({"proc/meminfo": "MemTotal: 900 kB\nMemAvailable: 500 kB\nSwapFree: 12 kB\n"}, 512 << 10),
        (
            {  # version 2: the group and each one around it, file cache counts as free
                "proc/self/cgroup": "0::/pods/mine\n",
                "groups/pods/mine/memory.max": "max\n",
                "groups/pods/mine/memory.current": "9000\n",
                "groups/pods/memory.max": "300000\n",
                "groups/pods/memory.current": "250000\n",
                "groups/pods/memory.stat": "anon 1\nactive_file 1000\ninactive_file 4000\n",
            },
            55_000,
        ),
        (
            {  # version 1, where no limit is a great number
                "proc/self/cgroup": "3:cpu,cpuacct:/x\n4:memory:/docker/abc\n",
                "groups/memory/memory.limit_in_bytes": f"{2**63 - 4096}\n",
                "groups/memory/memory.usage_in_bytes": "5\n",
                "groups/memory/docker/abc/memory.limit_in_bytes": "200000\n",
                "groups/memory/docker/abc/memory.usage_in_bytes": "150000\n",
                "groups/memory/docker/abc/memory.stat": "active_file 7\ntotal_active_file 9\ntotal_inactive_file 1\n",
            },
            50_010,
        ),
        ({"groups/memory.max": "100\n", "groups/memory.current": "900\n", "proc/self/cgroup": "0::/\n"}, 0),
    ],
)
def test_free_is_what_the_closest_limit_leaves(
    files: dict[str, str], free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _written(tmp_path, {"proc/meminfo": "MemAvailable: 999999 kB\n"} | files)
    monkeypatch.setattr(output_memory, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(output_memory, "_CGROUPS", tmp_path / "groups")
    assert free_bytes() == free


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system tells no size of the address space")
def test_a_process_with_little_address_space_stops_instead_of_dying() -> None:
    """As when an engine limits its workers (`spark.executor.pyspark.memory`): 2 GiB are left for an output of 3 GiB."""
    program = """
import resource, sys
import pyarrow as pa
from whenabouts.core import Point, within
from whenabouts.core.local import timing_join
def join(n):
    table = pa.table({"t": range(n)})
    time = Point("t")
    return timing_join(table, table, left_time=time, right_time=time, condition=within(n, confidence=1))
join(10)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30),) * 2)
try:
    join(12_000)
except Exception as error:
    print(error)
"""
    environment = {name: value for name, value in os.environ.items() if name != MEBIBYTES}
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert "WA-2201: at least 144,000,000 pairs" in told.stdout, told.stderr
