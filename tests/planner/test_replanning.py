"""Plans that follow the stream: switched while it runs, with nothing lost and nothing repeated."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from whenabouts.core import QueryError
from whenabouts.core.coalescing import Coalesce
from whenabouts.core.local import Outcome, run, run_stream
from whenabouts.core.protocol import Query
from whenabouts.core.shared_coalescing import QUERY
from whenabouts.planner import Registry, Replanning

SECOND = 1_000_000
NAMES = ("a", "b", "c")


def drifting(seed: int = 3) -> list[pa.Table]:
    """Files of 10 s; values change rarely in the first and the last third, and with nearly every row in between."""
    draw, level, files = random.Random(seed), dict.fromkeys(NAMES, 0), []
    for number in range(60):
        rows = [(number * 10 + draw.randrange(10) - draw.randrange(4), draw.choice("xy")) for _ in range(40)]
        columns: dict[str, list[int]] = {name: [] for name in NAMES}
        for _ in rows:
            for name in NAMES:
                level[name] += draw.random() < (0.95 if 20 <= number < 40 else 0.03)
                columns[name].append(level[name])
        t = [at * SECOND + draw.randrange(SECOND) for at, _ in rows]
        files.append(pa.table({"t": pa.array(t, pa.int64()), "k": [k for _, k in rows]} | columns))
    return files


def query(name: str) -> Coalesce:
    return Coalesce(time="t", group="k", values=name, window="60 s", slide="10 s", lateness="14 s")


def registry(hysteresis: float = 0.05) -> Registry:
    found = Registry(hysteresis=hysteresis)
    for name in NAMES:
        found.register(name, query(name), stream="s")
    return found


def assert_alone(outcome: Outcome, files: list[pa.Table]) -> None:
    for name in NAMES:
        alone = run(query(name), [pa.concat_tables(files)]).output
        mine = outcome.output.filter(pc.equal(outcome.output[QUERY], name)).select(alone.column_names)
        assert alone.num_rows > 500
        assert Counter(map(repr, mine.to_pylist())) == Counter(map(repr, alone.to_pylist())), name
    assert outcome.metrics["rows_in"] == outcome.metrics["rows_processed"] + outcome.metrics["rows_rejected"]
    assert not outcome.rejects.num_rows


@pytest.mark.parametrize("restart_after", [None, 33])
def test_plans_follow_the_stream_and_the_rows_are_those_of_each_query_alone(restart_after: int | None) -> None:
    files = drifting()
    steering = Replanning(registry(), files[0].schema, every="30 s", weight=0.5)
    assert set(steering.plan.schemes.values()) == {"eager"}
    outcome = run_stream(steering.query, [files], steering=steering, restart_after=restart_after)
    decided = [now for switch in steering.switches for _, now in switch.changes.values()]
    assert decided[0] == "lazy"  # once hardly anything coalesces
    assert set(decided) == {"eager", "lazy"}  # and back
    assert len(steering.switches) <= 6  # and not to and fro
    assert 200 * SECOND < steering.switches[0].at_us < 400 * SECOND
    assert all(each.statistics["source"] == "measured" for each in steering.plan.queries)
    assert_alone(outcome, files)


def test_a_plan_that_does_not_win_clearly_is_not_adopted() -> None:
    files = drifting()
    steering = Replanning(registry(hysteresis=0.9), files[0].schema, every="30 s")
    assert_alone(run_stream(steering.query, [files], steering=steering), files)
    assert steering.switches == []


@pytest.mark.parametrize(("seed", "buckets"), [(0, 1), (1, 2), (2, 3)])
def test_switching_at_any_step_equals_never_switching(seed: int, buckets: int) -> None:
    files, draw, plans = drifting(seed), random.Random(seed), registry()
    switched = 0

    def steering(counts: Counter[str], latest_us: int) -> Query | None:
        nonlocal switched
        assert counts["rows_in"] > 0
        if draw.random() < 0.5:
            return None
        for name in NAMES:
            plans.pin(name, draw.choice(["eager", "lazy"]))
        switched += 1
        return plans.share(files[0].schema)

    outcome = run_stream(
        plans.share(files[0].schema), [files], steering=steering, buckets=buckets, restart_after=draw.randrange(60)
    )
    assert switched > 10
    assert_alone(outcome, files)


def test_a_stretch_of_no_length_is_refused() -> None:
    with pytest.raises(QueryError, match="WA-2021: every is '0 s'"):
        Replanning(registry(), drifting()[0].schema, every="0 s")
