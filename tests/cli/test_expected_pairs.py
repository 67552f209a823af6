"""The greatest number of pairs that a join can have is counted exactly, and limits stop a run before it begins."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whenabouts.cli.expected_pairs import AtMost, at_most, refuse_over
from whenabouts.cli.inputs import Input
from whenabouts.core import Interval, QueryError, between, deadline, within
from whenabouts.core.times.conditions import Condition

SPECS = (Interval("a", "b"), Interval("a", "b"))


def source(name: str, rows: list[tuple[int, int, str | None]]) -> Input:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    table = pa.table(
        {
            "a": pa.array(columns[0], pa.int64()),
            "b": pa.array(columns[1], pa.int64()),
            "k": pa.array(columns[2], pa.string()),
        }
    )
    return Input(name, (table.slice(0, 3), table.slice(3)), table.slice(0, 0))


def brute(left: Input, right: Input, condition: Condition, keyed: bool) -> AtMost:
    """Pairs of supports that meet: some x1, x2 in them have lo <= x2 - x1 <= hi."""
    rows = [[row for table in side.tables for row in table.to_pylist()] for side in (left, right)]
    partners: dict[tuple[int, int], int] = {}
    pairs = 0
    for i, x in enumerate(rows[0]):
        for j, y in enumerate(rows[1]):
            meets = y["a"] - x["b"] <= condition.hi_us and y["b"] - x["a"] >= condition.lo_us
            if meets and (not keyed or (x["k"] is not None and x["k"] == y["k"])):
                pairs += 1
                for row in ((0, i), (1, j)):
                    partners[row] = partners.get(row, 0) + 1
    left_most = max((count for (side, _), count in partners.items() if side == 0), default=0)
    return AtMost(pairs, max(partners.values(), default=0), left_most)


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize(
    "condition", [within(3, confidence=0.5), between(-9, -2, confidence=0.5), deadline(4, confidence=1)]
)
def test_the_count_is_that_of_trying_every_pair(condition: Condition, keyed: bool) -> None:
    random_ = random.Random(5)
    for _ in range(20):
        left, right = (
            source(
                name,
                [
                    (t, t + random_.choice([0, 0, 1, 6]), random_.choice(["x", "y", None]))
                    for t in (random_.randrange(40) for _ in range(random_.randrange(30)))
                ],
            )
            for name in ("left", "right")
        )
        found = at_most((left, right), SPECS, condition, ("k",) if keyed else ())
        assert found == brute(left, right, condition, keyed)


def test_limits_stop_only_what_passes_them() -> None:
    refuse_over(AtMost(10, 3, 2), 10, 3)
    refuse_over(AtMost(10, 3, 2), None, None)
    with pytest.raises(QueryError, match="at most 10 pairs are expected, over --max-pairs 9"):
        refuse_over(AtMost(10, 3, 2), 9, None)
    with pytest.raises(QueryError, match="one row can have 3 partners, over --max-pairs-per-row 2"):
        refuse_over(AtMost(10, 3, 2), None, 2)


def test_more_pairs_than_memory_holds_end_a_command_with_their_number(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without options: sure pairs are counted anyway, before any pair is made. A batch is written as it is computed."""
    pq.write_table(pa.table({"t": range(4_000)}), tmp_path / "a.parquet")
    monkeypatch.setenv("WHENABOUTS_OUTPUT_MEMORY", "200")
    given = "a.parquet a.parquet --left-time t --right-time t --within 1s --confidence 1"
    done = cli(f"join {given} --stream --lateness 1s -o out.parquet")
    assert done.exit_code == 2, done.stderr
    assert "WA-2201: at least 16,000,000 pairs of 4,000 x 4,000 rows" in done.stderr
    assert "WHENABOUTS_OUTPUT_MEMORY=off" in done.stderr
    assert not (tmp_path / "out.parquet").exists()
    done = cli(f"join {given} -o out.parquet")
    assert done.exit_code == 0, done.stderr
    assert pq.read_metadata(tmp_path / "out.parquet").num_rows == 16_000_000
