"""`ties="nearest"`: the nearest of equally probable partners, as pandas finds it for exact times."""

from __future__ import annotations

import random
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from whenabouts.core import Interval, Point, QueryError, within
from whenabouts.core.hosting.query_identity import identity_of
from whenabouts.core.local import run, run_stream, timing_join
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.timing_join.settings import STRATEGIES

POINTS: dict[str, Any] = {"left_time": Point("t"), "right_time": Point("t"), "on": "k", "lateness": 1000}


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*(table[name].to_pylist() for name in ("id", "chosen")), strict=True))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_of_exact_times_it_is_the_nearest_row_of_merge_asof(seed: int, strategy: str) -> None:
    """Of two that are equally near the earlier, as in pandas; on streams the same, whatever the order of arrival."""
    draw = random.Random(seed)
    left = pd.DataFrame({"t": sorted(draw.randrange(300) for _ in range(80)), "k": draw.choices("ab", k=80)})
    left["id"] = range(80)
    times = sorted(draw.sample(range(300), 60))
    right = pd.DataFrame({"t": times, "k": draw.choices("ab", k=60), "chosen": range(60)})
    asof = pd.merge_asof(left, right, on="t", by="k", direction="nearest", tolerance=9)
    want = sorted((row.id, None if pd.isna(row.chosen) else int(row.chosen)) for row in asof.itertuples())
    assert len({chosen for _, chosen in want}) > 30
    query = TimingJoin(
        **POINTS, condition=within(9, confidence=1), how="left_outer", best="left", ties="nearest",
        strategy=strategy, block_size=7,
    )  # fmt: skip
    tables = [pa.Table.from_pandas(frame, preserve_index=False) for frame in (left, right)]
    assert _rows(run(query, tables, buckets=2).output) == want
    shuffled = [table.take(draw.sample(range(table.num_rows), table.num_rows)) for table in tables]
    files = [[table.slice(at, 11) for at in range(0, table.num_rows, 11)] for table in shuffled]
    assert _rows(run_stream(query, files).output) == want


def test_of_uncertain_times_a_more_probable_partner_wins_however_far() -> None:
    """Midpoints decide between equal probabilities only, then the earlier row."""
    left = pa.table({"t": [100], "end": [110], "id": [0]})
    right = pa.table({"t": [92, 98, 99, 103], "end": [106, 108, 112, 113], "chosen": [0, 1, 2, 3]})
    span = Interval("t", "end")
    times: dict[str, Any] = {"left_time": span, "right_time": span}

    def chosen(apart: int, *rows: int, ties: str) -> int:
        found = timing_join(
            left, right.take(list(rows)), **times, condition=within(apart, confidence=0.1), best="left", ties=ties
        )
        number: int = found["chosen"].to_pylist()[0]
        return number

    for rows in ((0, 1, 2, 3), (3, 2, 1, 0)):
        assert chosen(50, *rows, ties="earliest") == 0  # all certain: the least t_max
        assert chosen(50, *rows, ties="nearest") == 2  # midpoints 99, 103, 105.5, 108 and 105
        assert chosen(3, *rows, ties="nearest") == chosen(3, *rows, ties="earliest") == 1  # the most probable


def test_what_is_refused_and_what_a_checkpoint_knows() -> None:
    with pytest.raises(QueryError, match="WA-2006: ties is 'latest'"):
        TimingJoin(**POINTS, condition=within(9, confidence=1), best="left", ties="latest")
    with pytest.raises(QueryError, match="WA-2006: ties='nearest' without best"):
        TimingJoin(**POINTS, condition=within(9, confidence=1), ties="nearest")
    schema = pa.schema({"t": pa.int64(), "k": pa.string()})
    options: dict[str, Any] = POINTS | {"condition": within(9, confidence=1), "best": "both"}
    usual = identity_of(TimingJoin(**options), [schema, schema], 4)
    nearest = identity_of(TimingJoin(**options, ties="nearest"), [schema, schema], 4)
    assert "ties" not in usual.settings  # as in checkpoints of earlier releases
    assert nearest.settings["ties"] == "'nearest'"
