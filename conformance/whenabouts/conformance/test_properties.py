"""Laws over queries and tables drawn by hypothesis, which shrink to the smallest that breaks a law."""

from __future__ import annotations

from hypothesis import event, given
from hypothesis import strategies as st

from whenabouts.conformance import expectations, generators, multiset
from whenabouts.conformance.case_tables import SECOND
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.generators import Example
from whenabouts.core.harness import Variant


def _answer(example: Example) -> expectations.TimingJoinAnswer:
    inputs = expectations.read(example.query, example.tables)
    return expectations.answer(example.query, example.tables, inputs.events)


def test_oracle_pairs_of_any_tables(engine: Engine) -> None:
    """For any small tables and any query the pairs are those of brute force."""

    @generators.examples(engine.seconds_per_run(Variant()))
    @given(generators.joins(), st.integers(1, 3))
    def law(example: Example, parallelism: int) -> None:
        answer = _answer(example)
        event("pairs" if answer.rows else "no pair")
        files = {side: (table,) for side, table in example.tables.items()}
        outcome = engine.run(example.query, files, Variant(parallelism=parallelism), remember=False)
        multiset.assert_same(expectations.join_rows(outcome), answer.rows, "pairs", {"query": example.query})

    law()


def test_oracle_pairs_of_any_streams(engine: Engine) -> None:
    """For any small streams, restarted anywhere, the pairs are those of brute force and no row is late."""

    @generators.examples(engine.seconds_per_run(Variant(streaming=True)))
    @given(st.data(), generators.joins(units=(SECOND,), finite=False))
    def law(data: st.DataObject, example: Example) -> None:
        files = data.draw(generators.arrivals(example))
        restart = data.draw(st.none() | st.integers(0, max(map(len, files.values())) - 1))
        outcome = engine.run(example.query, files, Variant(streaming=True, restart_after=restart), remember=False)
        answer = _answer(example)
        event("pairs" if answer.rows else "no pair")
        multiset.assert_same(expectations.join_rows(outcome), answer.rows, "pairs", {"query": example.query})
        assert outcome.rejects.num_rows == 0

    law()
