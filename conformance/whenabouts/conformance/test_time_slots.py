"""Laws of time slots: rows of one key spread over buckets, each pair found once, each row counted once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from whenabouts.conformance import case_tables, expectations, generators, multiset
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.test_modes import MAIN, MODES, _expected, _known_answer, _query, _rows, _same, _told
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.harness import Variant
from whenabouts.core.timing_join.modes import home_input

similar = pytest.mark.similar


def _spreads(mode: str) -> bool:
    try:
        home_input(_query(MAIN, mode).mode)
    except QueryError:
        return False
    return True


SPREAD = ("inner", *filter(_spreads, MODES))
WIDTHS = {"narrow": 700_000, "wide": 40_000_000}
"""Slots of a fraction of the stretch in which partners lie (a row is copied to all buckets), and of a multiple."""


def _cases(kept: Iterable[tuple[str, str]]) -> list[Any]:
    cases = [(mode, width) for mode in SPREAD for width in WIDTHS]
    return [case if case in kept else pytest.param(*case, marks=similar) for case in cases]


@pytest.mark.parametrize(("mode", "width"), _cases([("inner", "narrow"), ("right_outer", "wide")]))
def test_oracle_time_slots(engine: Engine, mode: str, width: str) -> None:
    """Spread over four buckets by time, each mode that decides about one side gives the rows of brute force."""
    query = replace(case_tables.dataset(MAIN).query, **MODES.get(mode, {}), time_slots=WIDTHS[width])
    outcome = engine.run(query, case_tables.finite(MAIN), Variant(parallelism=4))
    if mode == "inner":
        whole = engine.run(replace(query, time_slots=None), case_tables.finite(MAIN))
        multiset.assert_same(multiset.rows(outcome.output), multiset.rows(whole.output), "slots against none")
    else:
        _same(outcome, _expected(MAIN, mode), mode, query)
    assert outcome.metrics["matched"] == outcome.output.num_rows
    assert outcome.metrics["rows_in"] == sum(table.num_rows for table in case_tables.dataset(MAIN).tables.values())
    assert outcome.metrics["rows_in"] == outcome.metrics["rows_processed"] + outcome.metrics["rows_rejected"]


@pytest.mark.parametrize(("mode", "width"), _cases([("left_outer best left", "narrow")]))
def test_oracle_time_slots_on_streams(engine: Engine, mode: str, width: str) -> None:
    """The same on a stream that loses a step: rows become final at the instants of the stream without slots."""
    query = replace(case_tables.dataset(MAIN).query, **MODES.get(mode, {}), time_slots=WIDTHS[width])
    outcome = engine.run(query, case_tables.stream(MAIN), Variant(streaming=True, parallelism=4, restart_after=1))
    if mode == "inner":
        whole = engine.run(replace(query, time_slots=None), case_tables.stream(MAIN), Variant(streaming=True))
        multiset.assert_same(multiset.rows(outcome.output), multiset.rows(whole.output), "slots against none")
    else:
        told, wanted = _told(outcome, "event_time"), _rows(_expected(MAIN, mode), outcome, timed=True)
        multiset.assert_same(told, wanted, f"{mode} in slots", {"query": query})


@pytest.mark.hosting
@similar
def test_oracle_time_slots_count_late_rows_once(engine: Engine) -> None:
    """A late row is rejected once, although buckets hold copies of it; the pairs are those of the other rows."""
    query = replace(case_tables.dataset("wide").query, time_slots=500_000)
    files = case_tables.late_stream("wide")
    outcome = engine.run(query, files, Variant(streaming=True, parallelism=3))
    counted = outcome.metrics
    tables = expectations.whole(files)
    accepted = expectations.accepted(outcome, tables, expectations.read(query, tables).events)
    expected = expectations.answer(query, tables, accepted).rows
    multiset.assert_same(expectations.join_rows(outcome), expected, "pairs of the rows that were accepted")
    assert counted["rows_in"] == sum(table.num_rows for table in tables.values())
    assert counted["rows_in"] == counted["rows_processed"] + counted["rows_rejected"]
    assert outcome.rejects.num_rows == counted["rows_rejected"] > 0


def test_oracle_time_slots_of_any_tables(engine: Engine) -> None:
    """For any small tables, width and number of buckets, with a key or without, the rows are those of brute force."""

    @generators.examples(engine.seconds_per_run(Variant()))
    @given(st.data(), generators.joins(), st.integers(2, 5), st.integers(1, 2_000_000))
    def law(data: st.DataObject, example: generators.Example, parallelism: int, width: int) -> None:
        mode = data.draw(st.sampled_from([mode for mode in SPREAD if mode in MODES]))
        try:
            slotted = replace(example.query, **MODES[mode], time_slots=width)
        except QueryError as error:
            if error.code is not Code.NOT_SLOTTED:
                raise
            event("refused")
            return
        example = example._replace(query=slotted)
        expected = _known_answer(example)
        files = {side: (table,) for side, table in example.tables.items()}
        outcome = engine.run(slotted, files, Variant(parallelism=parallelism), remember=False)
        _same(outcome, expected, "rows", slotted)

    law()


@pytest.mark.parametrize("mode", sorted(set(MODES) - set(SPREAD)))
def test_oracle_time_slots_are_refused(engine: Engine, mode: str) -> None:
    """A mode that decides about the rows of both sides cannot be spread by time, and is refused."""
    query = _query(MAIN, mode)
    with pytest.raises(QueryError) as raised:
        replace(query, time_slots="1 s")
    assert raised.value.code is Code.NOT_SLOTTED
    tables = expectations.whole(case_tables.finite(MAIN))
    schemas = [table.schema for table in tables.values()]
    assert replace(query, time_slots="auto").operator(schemas, streaming=True).keys.slots is None
