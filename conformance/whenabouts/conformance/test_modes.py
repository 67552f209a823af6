"""Laws of the join modes and of `best`: which rows are emitted, with what, and when they are final."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import event, given, reject
from hypothesis import strategies as st

from whenabouts.conformance import case_tables, expectations, generators, join_modes_oracle, multiset
from whenabouts.conformance.case_tables import SECOND
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.expectations import Inputs
from whenabouts.conformance.generators import Example
from whenabouts.conformance.join_modes_oracle import ExpectedRow
from whenabouts.conformance.multiset import Row
from whenabouts.conformance.oracle import AmbiguousPairError
from whenabouts.conformance.slow_engine_cases import fewer_on_slow_engines
from whenabouts.core import Interval, Lateness, Point, between, within
from whenabouts.core.harness import Variant
from whenabouts.core.local import Outcome
from whenabouts.core.timing_join.modes import BESTS, HOWS
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.timing_join.settings import STRATEGIES

STREAM = Variant(streaming=True)
similar = pytest.mark.similar
ACCURACY = Fraction(1, 10**12)

MODES: dict[str, dict[str, Any]] = {
    how if best is None else f"{how} best {best}": {"how": how, "best": best}
    for how in HOWS
    for best in BESTS
    if (how, best) != ("inner", None) and (best is None or how not in ("left_semi", "left_anti"))
}
MODES |= {
    f"{mode}, nearest": {**MODES[mode], "ties": "nearest"}
    for mode in ("inner best left", "left_outer best right", "full_outer best left", "full_outer best both")
}
FEW = ("full_outer", "left_semi", "left_anti", "full_outer best left", "full_outer best both")
"""Modes that between them take every path."""

MAIN = "ties"
"""Rows repeat, keys hold nulls, probabilities tie: the dataset on which all modes and strategies run."""

OTHERS = ("wide", "narrow", "certain", "point and interval", "points", "malformed", "before 1970", "one-sided")
"""On these datasets, and with these strategies, modes take turns."""


def _turns(names: Sequence[str]) -> list[tuple[str, str]]:
    """Each name with two of the few modes."""
    return [(name, FEW[(index + shift) % len(FEW)]) for index, name in enumerate(names) for shift in (0, 2)]


def _query(dataset: str, mode: str, **options: Any) -> TimingJoin:
    return replace(case_tables.dataset(dataset).query, **MODES[mode], **options)


@lru_cache
def _expected(dataset: str, mode: str) -> list[ExpectedRow]:
    source = case_tables.dataset(dataset)
    return _answer(_query(dataset, mode), source.tables, expectations.of_dataset(dataset)[0])


def _answer(query: TimingJoin, tables: Mapping[str, pa.Table], inputs: Inputs) -> list[ExpectedRow]:
    schemas = {side: table.schema for side, table in tables.items()}
    return join_modes_oracle.results(query, schemas, inputs.events)


def _told(outcome: Outcome, *computed: str) -> Counter[Row]:
    """Output rows, whether they have a probability, and computed columns."""
    output = outcome.output
    names = [name for name in output.column_names if name not in expectations.COMPUTED]
    if "probability" in output.column_names:
        valid = output.column("probability").is_valid()
        at = output.column_names.index("probability")
        output = output.set_column(at, "probability", valid)
        names.append("probability")
    return multiset.rows(output, [*names, *computed])


def _rows(expected: list[ExpectedRow], outcome: Outcome, *, timed: bool = False) -> Counter[Row]:
    """The oracle's rows in the form of `_told`."""
    with_p = "probability" in outcome.output.column_names
    return Counter(
        (*result.row, *([multiset.cell(result.p is not None)] if with_p else []), *([result.at_us] if timed else []))
        for result in expected
    )


def _same(outcome: Outcome, expected: list[ExpectedRow], what: str, query: TimingJoin) -> None:
    __tracebackhide__ = True
    multiset.assert_same(_told(outcome), _rows(expected, outcome), what, {"query": query})


ON_MAIN = [(MAIN, mode) for mode in (*FEW, "full_outer best left, nearest")]
NEAREST = [(name, mode) for name in ("points", "wide") for mode in MODES if "nearest" in mode]


@pytest.mark.parametrize(
    ("dataset", "mode"),
    fewer_on_slow_engines(
        [*((MAIN, m) for m in MODES), *_turns(OTHERS), *NEAREST], [*ON_MAIN, ("one-sided", "left_anti")]
    ),
)
def test_oracle_modes(engine: Engine, dataset: str, mode: str) -> None:
    """Each mode gives the rows of brute force on finite input: unmatched ones with nulls, only the best partners."""
    query = _query(dataset, mode)
    outcome = engine.run(query, case_tables.finite(dataset))
    _same(outcome, _expected(dataset, mode), mode, query)
    assert outcome.metrics["matched"] == outcome.output.num_rows
    assert outcome.metrics["rows_in"] == outcome.metrics["rows_processed"] + outcome.metrics["rows_rejected"]


@pytest.mark.parametrize(
    ("dataset", "mode"),
    fewer_on_slow_engines(
        [*((MAIN, m) for m in MODES), *_turns(OTHERS[:-1]), *NEAREST],
        [(MAIN, "full_outer"), (MAIN, "full_outer best both, nearest"), ("before 1970", "left_semi")],
    ),
)
def test_oracle_modes_on_streams(engine: Engine, dataset: str, mode: str) -> None:
    """On a stream each mode gives the same rows, and each row's event time is the instant at which it became final."""
    query = _query(dataset, mode)
    outcome = engine.run(query, case_tables.stream(dataset), STREAM)
    expected = _expected(dataset, mode)
    multiset.assert_same(
        _told(outcome, "event_time"), _rows(expected, outcome, timed=True), f"{mode} on a stream", {"query": query}
    )
    alone = sum(result.p is None for result in expected) if query.how != "left_semi" else 0
    assert outcome.metrics["unmatched"] == alone
    assert outcome.metrics["rows_in"] == outcome.metrics["rows_processed"] + outcome.metrics["rows_rejected"]


@pytest.mark.parametrize(
    ("strategy", "mode"), fewer_on_slow_engines(_turns(STRATEGIES[1:]), [("lazy_lookup", "full_outer best both")])
)
def test_differential_modes_of_strategies(engine: Engine, strategy: str, mode: str) -> None:
    """Every strategy gives the rows of `auto` in every mode, on finite input and on streams, to the last bit."""
    lazy = _query(MAIN, mode, strategy=strategy, block_size=40)
    auto = _query(MAIN, mode)
    for inputs, variant in ((case_tables.finite(MAIN), Variant()), (case_tables.stream(MAIN), STREAM)):
        told, usual = (multiset.rows(engine.run(query, inputs, variant).output) for query in (lazy, auto))
        multiset.assert_same(told, usual, f"{mode}, {strategy} against auto")


def test_differential_key_names(engine: Engine) -> None:
    """Keys with another name on the right side join like keys of one name; both columns are in the output."""
    others, query, files = {"case": "case_right", "k": "k_right"}, _query(MAIN, "full_outer"), case_tables.stream(MAIN)
    renamed = [
        table.rename_columns([others.get(name, name) for name in table.column_names]) for table in files["right"]
    ]
    pairs = replace(query, on=tuple(others.items()))
    found = engine.run(pairs, files | {"right": renamed}, Variant(streaming=True, parallelism=3)).output
    usual = engine.run(query, files, STREAM).output
    kept = [name for name in usual.column_names if name not in others]
    multiset.assert_same(
        multiset.rows(found, kept), multiset.rows(usual, kept), "keys of other names", {"query": pairs}
    )
    for name, other in others.items():
        of_left, of_right = (found.column(each).combine_chunks() for each in (name, other))
        either, known = pa.table({name: pc.coalesce(of_left, of_right)}), usual.select([name])
        multiset.assert_same(multiset.rows(either), multiset.rows(known), f"{name}, of the one side or the other")


@pytest.mark.parametrize("mode", fewer_on_slow_engines(FEW, ["full_outer"]))
def test_differential_modes_batch_and_stream(engine: Engine, mode: str) -> None:
    """A stream gives the rows of the finite join in every mode, to the last bit of the probability."""
    query = _query("wide", mode)
    stream, finite = (
        engine.run(query, case_tables.stream("wide"), STREAM),
        engine.run(query, case_tables.finite("wide")),
    )
    names = finite.output.column_names
    multiset.assert_same(multiset.rows(stream.output, names), multiset.rows(finite.output), "stream against batch")


@pytest.mark.parametrize(
    ("files", "seed", "mode"),
    fewer_on_slow_engines(
        [((1 + 4 * (n % 3), 1 + n), n, mode) for n, mode in enumerate(FEW, 1)], [((9, 3), 2, "left_semi")]
    ),
)
def test_differential_modes_of_arrival_orders(engine: Engine, files: tuple[int, int], seed: int, mode: str) -> None:
    """Another order of arrival, split into other files, makes the same rows final at the same instants."""
    query = _query(MAIN, mode)
    usual, other = (engine.run(query, case_tables.stream(MAIN, *how), STREAM) for how in ((), (files, seed)))
    told = [multiset.rows(outcome.output) for outcome in (other, usual)]
    multiset.assert_same(told[0], told[1], f"{mode}: files {files}, order {seed}")


@pytest.mark.hosting
@pytest.mark.parametrize(
    ("strategy", "step", "mode"),
    fewer_on_slow_engines([(("auto", "lazy")[n % 2], n % 4, m) for n, m in enumerate(FEW, 1)], kept=()),
)
def test_differential_modes_restarted(engine: Engine, strategy: str, step: int, mode: str) -> None:
    """A crash in the middle of an uncommitted step and a replay give the same rows, each once, over three buckets."""
    query = _query(MAIN, mode, strategy=strategy, block_size=40)
    crashed = engine.run(query, case_tables.stream(MAIN), Variant(streaming=True, parallelism=3, restart_after=step))
    usual = engine.run(_query(MAIN, mode), case_tables.stream(MAIN), STREAM)
    multiset.assert_same(multiset.rows(crashed.output), multiset.rows(usual.output), f"{mode} restarted")


@pytest.mark.parametrize("mode", fewer_on_slow_engines(MODES, FEW))
def test_oracle_columns_of_modes(engine: Engine, mode: str) -> None:
    """Outer modes have the columns of both sides, semi and anti the left ones; integers stay integers beside nulls."""
    query, tables = _query(MAIN, mode), case_tables.dataset(MAIN).tables
    outcome = engine.run(query, case_tables.finite(MAIN))
    expected = expectations.output_schema(query, tables, streaming=False)
    if query.how in ("left_semi", "left_anti"):
        expected = tables["left"].schema
    multiset.assert_same_columns(outcome.output.schema, expected, mode)


@pytest.mark.parametrize(
    "mode", fewer_on_slow_engines(["inner best both", "full_outer", "full_outer best right"], ["full_outer"])
)
def test_oracle_probability_of_modes(engine: Engine, mode: str) -> None:
    """Pairs carry their probability (within 1e-12), rows without a partner a null; without the column the same rows."""
    query = _query(MAIN, mode)
    outcome, bare = (engine.run(q, case_tables.finite(MAIN)) for q in (query, replace(query, probability=False)))
    exact: dict[Row, set[Fraction | None]] = {}
    for result in _expected(MAIN, mode):
        exact.setdefault(result.row, set()).add(None if result.p is None else result.p.exact)
    names = bare.output.column_names
    assert names == [name for name in outcome.output.column_names if name != "probability"]
    keys = zip(*(multiset.cells(outcome.output.column(name)) for name in names), strict=True)
    for row, value in zip(keys, outcome.output.column("probability").to_pylist(), strict=True):
        (p,) = exact[row]
        assert (value is None) == (p is None)
        assert value is None or p is None or abs(Fraction(value) - p) <= ACCURACY
    multiset.assert_same(multiset.rows(bare.output), multiset.rows(outcome.output, names), "probability=False")


@pytest.mark.parametrize(
    ("empty", "mode"), fewer_on_slow_engines(_turns(("left", "right", "both")), [("both", "left_anti")])
)
def test_oracle_modes_of_empty_inputs(engine: Engine, empty: str, mode: str) -> None:
    """With one side empty all rows of the other are unmatched; with both empty there are columns but no row."""
    query, whole = _query(MAIN, mode), case_tables.dataset(MAIN).tables
    tables = {side: table.slice(0, 0 if empty in (side, "both") else 60) for side, table in whole.items()}
    expected = _answer(query, tables, expectations.read(query, tables))
    for variant in (Variant(), STREAM):
        outcome = engine.run(query, {side: (table,) for side, table in tables.items()}, variant)
        _same(outcome, expected, f"{mode}, {empty} empty", query)


@lru_cache
def _far_stream() -> dict[str, case_tables.Files]:
    """Partners that come at the last moment at which they are not late, after quiet files; rows that stay alone.

    t_max    60 . . . . . . . . . . . . 90 . . . . . 100 s
    file 0   |||||||||||||||||||||||||||||||||||||||||||    left: every half second; right: every seventh second
    1 to 3                                      |           nothing new: time to settle what is settled
    file 4                              ===|                right rows that end at the watermark
    """

    def rows(t_max: list[int], length: list[int], first_id: int) -> pa.Table:
        end = [case_tables.YEAR_2024 + t for t in t_max]
        start = [t - span for t, span in zip(end, length, strict=True)]
        ids = list(range(first_id, first_id + len(end)))
        columns = {"k": [0] * len(end), "t_min": start, "t_max": end, "id": ids}
        return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})

    def dense(every: int) -> pa.Table:
        ends = list(range(60 * SECOND, 100 * SECOND + 1, every))
        return rows(ends, [0] * len(ends), 0)

    quiet = [rows([95 * SECOND], [0], 1000 + n) for n in range(3)]
    last = rows([90 * SECOND] * 5, [n * SECOND for n in range(5)], 2000)
    right = (dense(7 * SECOND), *quiet, last)
    return {"left": (dense(SECOND // 2), *quiet, rows([], [], 0)), "right": right}


EDGES = {
    "half": within("2 s", confidence=0.5),
    "certain": between("-3 s", "4 s", confidence=1.0),
    "ahead": between("5 s", "8 s", confidence=0.4),
}


@pytest.mark.parametrize(
    ("edge", "mode"),
    fewer_on_slow_engines(
        [*(("half", mode) for mode in FEW), *_turns(("certain", "ahead")), ("ahead", "full_outer")],
        [("half", "full_outer"), ("half", "full_outer best both")],
    ),
)
def test_oracle_modes_of_latest_partners(engine: Engine, edge: str, mode: str) -> None:
    """No row is unmatched, and no partner the best, while another may arrive; here some arrive just in time."""
    longest = Interval("t_min", "t_max", max_uncertainty="4 s")
    query = TimingJoin(
        left_time=longest, right_time=longest, condition=EDGES[edge], on="k",
        lateness=Lateness(left="10 s", right="10 s"), **MODES[mode],
    )  # fmt: skip
    tables = expectations.whole(_far_stream())
    expected = _answer(query, tables, expectations.read(query, tables))
    outcome = engine.run(query, _far_stream(), STREAM)
    told = _told(outcome, "event_time")
    multiset.assert_same(told, _rows(expected, outcome, timed=True), f"{mode} with the latest partners")
    assert outcome.metrics["rows_late"] == 0


@lru_cache
def _steady_stream() -> dict[str, case_tables.Files]:
    """A row a second on each side, a file a minute."""

    def table(first: int, offset: int) -> pa.Table:
        t = [case_tables.YEAR_2024 + SECOND * (second + offset) for second in range(first, first + 60)]
        return pa.table({"t": pa.array(t, pa.int64()), "id": pa.array(range(first, first + 60), pa.int64())})

    return {side: tuple(table(60 * n, n % 2) for n in range(8)) for side in expectations.SIDES}


def _steady_query(mode: str) -> TimingJoin:
    return TimingJoin(
        left_time=Point("t"), right_time=Point("t"), condition=within("1 s", confidence=1.0), **MODES[mode]
    )


@lru_cache
def _steady_answer(mode: str) -> list[ExpectedRow]:
    query, tables = _steady_query(mode), expectations.whole(_steady_stream())
    return _answer(query, tables, expectations.read(query, tables))


@pytest.mark.parametrize(
    "mode",
    fewer_on_slow_engines(
        ["left_outer", "left_anti", "left_semi", "full_outer best left", "inner best both"], ["inner best both"]
    ),
)
def test_oracle_bounded_state_of_modes(engine: Engine, mode: str) -> None:
    """Final rows leave the state while the stream continues."""
    query = _steady_query(mode)
    outcome = engine.run(query, _steady_stream(), STREAM)
    _same(outcome, _steady_answer(mode), mode, query)
    held = outcome.metrics["rows_stored"] - outcome.metrics["rows_evicted"]
    assert 0 <= held <= 4 * 4 * 60, f"{held} rows are held at the end"


def _with_mode(data: st.DataObject, example: Example) -> Example:
    mode = data.draw(st.sampled_from(sorted(MODES)))
    event(mode)
    return example._replace(query=replace(example.query, **MODES[mode]))


def _known_answer(example: Example) -> list[ExpectedRow]:
    """Brute force; an example in which the kernel's rounding picks the best partner (3/8 or 27/72) is drawn again."""
    try:
        return _answer(example.query, example.tables, expectations.read(example.query, example.tables))
    except AmbiguousPairError:
        reject()


def test_oracle_modes_of_any_tables(engine: Engine) -> None:
    """For any small tables, any query and any mode the rows are those of brute force."""

    @generators.examples(engine.seconds_per_run(Variant()))
    @given(st.data(), generators.joins(), st.integers(1, 3))
    def law(data: st.DataObject, example: Example, parallelism: int) -> None:
        example = _with_mode(data, example)
        files = {side: (table,) for side, table in example.tables.items()}
        expected = _known_answer(example)
        outcome = engine.run(example.query, files, Variant(parallelism=parallelism), remember=False)
        _same(outcome, expected, "rows", example.query)

    law()


def test_oracle_modes_of_any_streams(engine: Engine) -> None:
    """For any small streams, restarted anywhere, in any mode, rows and their instants equal those of brute force."""

    @generators.examples(engine.seconds_per_run(STREAM))
    @given(st.data(), generators.joins(units=(SECOND,), finite=False))
    def law(data: st.DataObject, example: Example) -> None:
        example = _with_mode(data, example)
        files = data.draw(generators.arrivals(example))
        restart = data.draw(st.none() | st.integers(0, max(map(len, files.values())) - 1))
        expected = _known_answer(example)
        outcome = engine.run(example.query, files, Variant(streaming=True, restart_after=restart), remember=False)
        told, wanted = _told(outcome, "event_time"), _rows(expected, outcome, timed=True)
        multiset.assert_same(told, wanted, "rows", {"query": example.query})
        assert outcome.rejects.num_rows == 0

    law()
