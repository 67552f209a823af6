"""Rows without a time in every mode, and rows at the watermark: what docs/modes.md says of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from whenabouts.core import Interval, Lateness, Point, overlaps, possibly, within
from whenabouts.core.local import rejects, run, run_stream, timing_join
from whenabouts.core.timing_join.modes import BESTS, HOWS
from whenabouts.core.timing_join.query import TimingJoin

SECOND = 1_000_000
MODES = [(how, best) for how in HOWS for best in BESTS if best is None or how not in ("left_semi", "left_anti")]
TIMES = {side: Interval("t0", "t1", max_uncertainty="1 s") for side in ("left_time", "right_time")}


def _rows(first: int, ends: list[tuple[int | None, int | None]]) -> pa.Table:
    return pa.table(
        {
            "id": range(first, first + len(ends)),
            "t0": pa.array([a for a, _ in ends], pa.int64()),
            "t1": pa.array([b for _, b in ends], pa.int64()),
        }
    )


LEFT = _rows(1, [(0, 5), (None, 5), (0, None), (None, None), (900, 950)])
RIGHT = _rows(11, [(3, 9), (None, 9), (500, 505)])


@pytest.mark.parametrize(("how", "best"), MODES)
@pytest.mark.parametrize("condition", [within("5us", confidence=0.5), possibly(within("5us"))])
def test_a_row_without_a_time_is_rejected_in_every_mode(how: str, best: str | None, condition: Any) -> None:
    """Also where its side is preserved: that it has no partner cannot be known. A row with half a time has none."""
    query = TimingJoin(**TIMES, condition=condition, how=how, best=best, lateness="1 s")
    for outcome in (run(query, [LEFT, RIGHT]), run_stream(query, [(LEFT,), (RIGHT,)])):
        refused = outcome.rejects
        assert sorted(refused["id"].to_pylist()) == [2, 3, 4, 12]
        assert set(refused["code"].to_pylist()) == {"WA-1003"}
        ids = {
            each
            for name in outcome.output.column_names
            if name.startswith("id")
            for each in outcome.output[name].to_pylist()
        }
        assert ids <= {1, 5, 11, 13, None}


@pytest.mark.filterwarnings("ignore::whenabouts.core.RejectedRowsWarning")
def test_rows_without_a_time_can_be_put_beside_the_unmatched_ones() -> None:
    found = timing_join(LEFT, RIGHT, **TIMES, condition=overlaps(), how="left_anti")
    refused = rejects(found)
    lost = refused.filter(pa.compute.equal(refused["input"], "left")).select(LEFT.column_names)
    assert sorted(pa.concat_tables([found, lost])["id"].to_pylist()) == [2, 3, 4, 5]


@pytest.mark.parametrize(("behind_us", "late"), [(0, []), (1, [2])])
def test_a_row_at_the_watermark_is_in_time(behind_us: int, late: list[int]) -> None:
    """The watermark is the greatest t_max less the lateness; only a row before it is late."""
    point, newest = Point("t"), 100 * SECOND
    query = TimingJoin(
        left_time=point, right_time=point, condition=within("1 s", confidence=1), lateness=Lateness("5 s", "5 s")
    )
    first, then = (pa.table({"t": [t], "id": [n]}) for n, t in ((1, newest), (2, newest - 5 * SECOND - behind_us)))
    outcome = run_stream(query, [(first, then), (first, first.slice(0, 0))])
    assert outcome.rejects["id"].to_pylist() == late
