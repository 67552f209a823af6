"""The second operator of the protocol, against runs counted by hand."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.core import InputError, Point, QueryError
from whenabouts.core.local import run, run_stream
from whenabouts.core.run_merger import RunMerger

SCHEMA = pa.schema({"ts": pa.int64(), "g": pa.string(), "v": pa.int64()})
Row = tuple[int, str | None, int | None]


def table(rows: list[Row]) -> pa.Table:
    return pa.table(
        [
            pa.array(column, field.type)
            for column, field in zip(zip(*rows, strict=True) if rows else ([], [], []), SCHEMA, strict=True)
        ],
        schema=SCHEMA,
    )


def expected(rows: list[Row], gap: int) -> list[tuple[str | None, int | None, int, int, int]]:
    """From scratch: sort each group by time (then value, nulls last), cut where value or gap says so."""
    runs = []
    for group in {row[1] for row in rows}:
        mine = sorted((r for r in rows if r[1] == group), key=lambda r: (r[0], r[2] is None, r[2] or 0))
        current: list[Row] = []
        for row in mine:
            if current and (row[2] != current[-1][2] or row[0] - current[-1][0] > gap):
                runs.append((group, current[0][2], current[0][0], current[-1][0], len(current)))
                current = []
            current.append(row)
        runs.append((group, current[0][2], current[0][0], current[-1][0], len(current)))
    return sorted(runs, key=repr)


def got(output: pa.Table) -> list[tuple[object, ...]]:
    plain = output.set_column(2, "f", output.column("valid_from").cast(pa.int64())).set_column(
        3, "t", output.column("valid_to").cast(pa.int64())
    )
    return sorted((tuple(row.values()) for row in plain.to_pylist()), key=repr)


ROWS = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from(["a", "b", None]), st.sampled_from([1, 2, None])),
    max_size=25,
)


@given(ROWS, st.integers(0, 6))
@settings(deadline=None)
def test_batch_equals_runs_from_scratch(rows: list[Row], gap: int) -> None:
    query = RunMerger(time=Point("ts"), group="g", values="v", gap=gap)
    assert got(run(query, [table(rows)], buckets=2).output) == expected(rows, gap)


@given(ROWS.filter(len), st.integers(0, 6), st.integers(1, 5), st.sampled_from([None, 0, 1, 2]))
@settings(deadline=None)
def test_stream_equals_batch(rows: list[Row], gap: int, per_file: int, restart: int | None) -> None:
    files = [[table(rows[i : i + per_file]) for i in range(0, len(rows), per_file)]]
    query = RunMerger(time=Point("ts"), group="g", values="v", gap=gap, lateness=30)
    outcome = run_stream(query, files, buckets=2, restart_after=restart)
    assert got(outcome.output) == expected(rows, gap)
    assert outcome.rejects.num_rows == 0


def test_runs_come_out_as_soon_as_they_are_final_and_state_shrinks() -> None:
    rows: list[Row] = [(t, "a", t // 10) for t in range(0, 1000)]
    files = [[table(rows[i : i + 10]) for i in range(0, 1000, 10)]]
    metrics = run_stream(RunMerger(time=Point("ts"), group="g", values="v", gap=5), files).metrics
    assert metrics["rows_stored"] - metrics["rows_evicted"] < 30


def test_refusals() -> None:
    with pytest.raises(QueryError, match="WA-2006"):
        RunMerger(time=Point("ts"))
    with pytest.raises(QueryError, match="WA-2003"):
        RunMerger(time=Point("ts"), values="v", gap="-1s")
    with pytest.raises(InputError, match="WA-1001"):
        RunMerger(time=Point("ts"), values="w").operator([SCHEMA], streaming=False)
    with pytest.raises(QueryError, match="WA-2009"):
        RunMerger(time=Point("ts"), values=["v", "v"]).operator([SCHEMA], streaming=False)
