"""Laws of `where=`: a condition on the columns of both rows decides, as in the ON of SQL, what a pair is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import event, given, reject
from hypothesis import strategies as st

from whenabouts.conformance import case_tables, expectations, generators, join_modes_oracle, multiset
from whenabouts.conformance.case_tables import SECOND
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.generators import Example
from whenabouts.conformance.join_modes_oracle import ExpectedRow
from whenabouts.conformance.multiset import Row
from whenabouts.conformance.oracle import AmbiguousPairError
from whenabouts.conformance.slow_engine_cases import fewer_on_slow_engines
from whenabouts.core.harness import Variant
from whenabouts.core.local import Outcome
from whenabouts.core.timing_join.modes import BESTS, HOWS
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.timing_join.settings import STRATEGIES

STREAM = Variant(streaming=True)
MAIN = "ties"
"""Rows repeat, keys and payloads hold nulls, probabilities tie."""

MODES: dict[str, dict[str, Any]] = {
    how if best is None else f"{how} best {best}": {"how": how, "best": best}
    for how in HOWS
    for best in BESTS
    if best is None or how not in ("left_semi", "left_anti")
}

Fields = Mapping[str, Any]


class WhereCase(NamedTuple):
    """A condition as users write it, and on two rows as dicts, in plain Python."""

    asked: str | Callable[[pa.Table, pa.Table], pa.ChunkedArray]
    of_rows: Callable[[Fields, Fields], bool]


def _lesser_number(left: pa.Table, right: pa.Table) -> pa.ChunkedArray:
    return pc.less(left["id"], right["id"])


def _not_less(one: Any, other: Any) -> bool:
    """SQL's `one >= other`; false for nulls and NaN."""
    return one is not None and other is not None and one >= other


WHERES = {
    "both ids": WhereCase("id_left < right.id", lambda left, right: left["id"] < right["id"]),
    "function": WhereCase(_lesser_number, lambda left, right: left["id"] < right["id"]),
    "nulls and NaN": WhereCase("left.x >= small", lambda left, right: _not_less(left["x"], right["small"])),
    "three values": WhereCase(
        "flag OR right.note = 'right'", lambda left, right: left["flag"] is True or right["note"] == "right"
    ),
    "one side": WhereCase("RIGHT.price > 0", lambda _, right: right["price"] is not None and right["price"] > 0),
    "times": WhereCase("right.t_max - left.t_max >= 0", lambda left, right: right["t_max"] >= left["t_max"]),
    "nothing": WhereCase("left.id < 0", lambda _left, _right: False),
}
SMALL = {
    "other values": WhereCase("left.v <> right.v", lambda left, right: left["v"] != right["v"]),
    "rising": WhereCase("v_left < v_right", lambda left, right: left["v"] < right["v"]),
    "equal keys": WhereCase("left.k = right.k", lambda left, right: left["k"] is not None and left["k"] == right["k"]),
}
"""On the columns of generated tables."""

_TURNS = [(mode, name) for n, mode in enumerate(MODES) for name in (list(WHERES)[n % 7], list(WHERES)[(n + 3) % 7])]
_KEPT = [("inner", "both ids"), ("full_outer best both", "one side")]


def _answer(query: TimingJoin, tables: Mapping[str, pa.Table], where: WhereCase) -> list[ExpectedRow]:
    schemas = {side: table.schema for side, table in tables.items()}
    return join_modes_oracle.results(query, schemas, expectations.read(query, tables).events, where.of_rows)


def _query(mode: str, where: str, **options: Any) -> TimingJoin:
    return replace(case_tables.dataset(MAIN).query, where=WHERES[where].asked, **MODES[mode], **options)


@lru_cache
def _expected(mode: str, where: str) -> list[ExpectedRow]:
    return _answer(_query(mode, where), case_tables.dataset(MAIN).tables, WHERES[where])


def _same(outcome: Outcome, expected: list[ExpectedRow], query: TimingJoin, *, timed: bool = False) -> None:
    """The rows, whether they have a probability, and on streams their instants."""
    __tracebackhide__ = True
    output, names = outcome.output, [n for n in outcome.output.column_names if n not in expectations.COMPUTED]
    computed = [name for name in ("probability",) if name in output.column_names]
    for name in computed:
        output = output.set_column(output.column_names.index(name), name, output.column(name).is_valid())
    wanted: Counter[Row] = Counter(
        (
            *result.row,
            *(multiset.cell(result.p is not None) for _ in computed),
            *([result.at_us] if timed else []),
        )
        for result in expected
    )
    found = multiset.rows(output, [*names, *computed, *(["event_time"] if timed else [])])
    multiset.assert_same(found, wanted, "rows", {"query": query})


@pytest.mark.parametrize(("mode", "where"), fewer_on_slow_engines(_TURNS, [("left_outer", "one side")]))
def test_oracle_where(engine: Engine, mode: str, where: str) -> None:
    """In each mode, with a condition in SQL or a function, the rows are those of brute force; null is not true."""
    query = _query(mode, where)
    outcome = engine.run(query, case_tables.finite(MAIN))
    _same(outcome, _expected(mode, where), query)
    assert outcome.metrics["matched"] == outcome.output.num_rows


@pytest.mark.parametrize(("mode", "where"), fewer_on_slow_engines(_TURNS, _KEPT))
def test_oracle_where_on_streams(engine: Engine, mode: str, where: str) -> None:
    """On a stream the rows are the same, and each is final at the instant that follows from the pairs that are left."""
    query = _query(mode, where)
    outcome = engine.run(query, case_tables.stream(MAIN), STREAM)
    _same(outcome, _expected(mode, where), query, timed=True)


@pytest.mark.parametrize(
    ("strategy", "mode"),
    fewer_on_slow_engines(
        [(each, mode) for each in STRATEGIES[1:] for mode in ("inner", "left_semi", "full_outer best left")],
        [("lazy", "left_semi")],
    ),
)
def test_differential_where_of_strategies(engine: Engine, strategy: str, mode: str) -> None:
    """Every strategy gives the rows of `auto` under a condition, to the last bit of the probability."""
    lazy = _query(mode, "both ids", strategy=strategy, block_size=40)
    for inputs, variant in ((case_tables.finite(MAIN), Variant()), (case_tables.stream(MAIN), STREAM)):
        told, usual = (engine.run(query, inputs, variant).output for query in (lazy, _query(mode, "both ids")))
        multiset.assert_same(multiset.rows(told), multiset.rows(usual), f"{mode}, {strategy} against auto")


def test_differential_where_and_a_filter(engine: Engine) -> None:
    """Under an inner join a condition leaves the pairs that a filter of the result leaves, probability and all."""
    query = _query("inner", "both ids")
    found = engine.run(query, case_tables.finite(MAIN)).output
    all_pairs = engine.run(replace(query, where=None), case_tables.finite(MAIN)).output
    wanted = all_pairs.filter(pc.less(all_pairs["id_left"], all_pairs["id_right"]))
    multiset.assert_same(multiset.rows(found), multiset.rows(wanted), "where against a filter")


@pytest.mark.parametrize(
    ("mode", "where", "step"),
    fewer_on_slow_engines(
        [("inner", "function", 0), ("left_semi", "nulls and NaN", 2), ("full_outer best left", "three values", 1)],
        [("left_semi", "nulls and NaN", 2)],
    ),
)
def test_differential_where_restarted(engine: Engine, mode: str, where: str, step: int) -> None:
    """What a condition reads is in the state: a crash and a replay over three buckets give the same rows, each once."""
    query, files = _query(mode, where), case_tables.stream(MAIN)
    crashed = engine.run(query, files, Variant(streaming=True, parallelism=3, restart_after=step))
    _same(crashed, _expected(mode, where), query, timed=True)


def _with_where(data: st.DataObject, example: Example) -> tuple[Example, WhereCase, list[ExpectedRow]]:
    mode, where = data.draw(st.sampled_from(sorted(MODES))), data.draw(st.sampled_from(sorted(SMALL)))
    event(f"{mode}, {where}")
    example = example._replace(query=replace(example.query, where=SMALL[where].asked, **MODES[mode]))
    try:
        return example, SMALL[where], _answer(example.query, example.tables, SMALL[where])
    except AmbiguousPairError:
        reject()


def test_oracle_where_of_any_tables(engine: Engine) -> None:
    """For any small tables, any query, any mode and any condition the rows are those of brute force."""

    @generators.examples(engine.seconds_per_run(Variant()))
    @given(st.data(), generators.joins(), st.integers(1, 3))
    def law(data: st.DataObject, example: Example, parallelism: int) -> None:
        example, _, expected = _with_where(data, example)
        files = {side: (table,) for side, table in example.tables.items()}
        outcome = engine.run(example.query, files, Variant(parallelism=parallelism), remember=False)
        _same(outcome, expected, example.query)

    law()


def test_oracle_where_of_any_streams(engine: Engine) -> None:
    """For any small streams, restarted anywhere, in any mode, rows and their instants equal those of brute force."""

    @generators.examples(engine.seconds_per_run(STREAM))
    @given(st.data(), generators.joins(units=(SECOND,), finite=False))
    def law(data: st.DataObject, example: Example) -> None:
        example, _, expected = _with_where(data, example)
        files = data.draw(generators.arrivals(example))
        restart = data.draw(st.none() | st.integers(0, max(map(len, files.values())) - 1))
        outcome = engine.run(example.query, files, Variant(streaming=True, restart_after=restart), remember=False)
        _same(outcome, expected, example.query, timed=True)

    law()
