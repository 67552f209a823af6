"""Type checkers know that a result is of the kind that went in: mypy checks this file, and the tests run it."""

from __future__ import annotations

from typing import assert_type

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import whenabouts as wa

POINT = wa.Point("t")
NEAR = wa.within(5, confidence=1)
DATA = {"t": [1, 2, 9], "k": [1, 1, 2]}


def test_pandas_frames_give_a_pandas_frame() -> None:
    frame = pd.DataFrame(DATA)
    pairs = wa.timing_join(frame, frame, on="k", left_time=POINT, right_time=POINT, condition=NEAR)
    assert_type(pairs, pd.DataFrame)
    assert isinstance(pairs, pd.DataFrame)
    assert_type(wa.rejects(pairs), pd.DataFrame)
    assert_type(wa.profile(frame, "t"), wa.Profile)
    assert_type(wa.coalesce(frame, time="t", values="k"), pd.DataFrame)
    assert_type(wa.window_join({"a": frame, "b": frame}, on="k", time=POINT, windows={("a", "b"): 5}), pd.DataFrame)
    assert_type(wa.temporal_join(frame, frame, time="t", values="k", rows=2, relation="overlaps"), pd.DataFrame)


def test_polars_frames_give_a_polars_frame_and_lazy_ones_a_lazy_one() -> None:
    frame = pl.DataFrame(DATA)
    pairs = wa.timing_join(frame, frame, on="k", left_time=POINT, right_time=POINT, condition=NEAR)
    assert_type(pairs, pl.DataFrame)
    assert isinstance(pairs, pl.DataFrame)
    lazy = wa.timing_join(frame.lazy(), frame.lazy(), on="k", left_time=POINT, right_time=POINT, condition=NEAR)
    assert_type(lazy, pl.LazyFrame)
    assert isinstance(lazy, pl.LazyFrame)
    assert_type(wa.asof_join(frame, frame, on="k", left_time=POINT, right_time=POINT), pl.DataFrame)
    numbers = wa.join_aggregate(
        frame, frame, on="k", left_time=POINT, right_time=POINT, condition=NEAR, aggregates={"n": "count"}
    )
    assert_type(numbers, pl.DataFrame)


def test_arrow_tables_and_relations_give_their_kind() -> None:
    table = pa.table(DATA)  # pyarrow has no types of its own: to mypy it is Any
    pairs = wa.timing_join(table, table, on="k", left_time=POINT, right_time=POINT, condition=NEAR)
    assert_type(pairs, pa.Table)
    assert isinstance(pairs, pa.Table)
    with duckdb.connect() as connection:
        relation = connection.from_arrow(table)
        found = wa.timing_join(relation, relation, on="k", left_time=POINT, right_time=POINT, condition=NEAR)
        assert_type(found, duckdb.DuckDBPyRelation)
        assert isinstance(found, duckdb.DuckDBPyRelation)


def test_what_learned_of_clocks_gives_frames_of_the_kind_that_it_takes() -> None:
    frame = pd.DataFrame({"id": range(60), "t": range(0, 60_000_000, 1_000_000)})
    assert_type(wa.profile(frame, "t").with_interval(frame), pd.DataFrame)
    clock = wa.learn_delay(frame, frame.assign(t=frame["t"] + frame["id"] % 7), on="id", left_time="t", right_time="t")
    assert_type(clock.correct(frame), pd.DataFrame)
    assert isinstance(clock.correct(frame), pd.DataFrame)


def test_durations_may_be_those_of_numpy() -> None:
    assert wa.within(np.int64(5), confidence=1) == NEAR
    assert wa.within(np.timedelta64(5, "us"), confidence=1) == NEAR
