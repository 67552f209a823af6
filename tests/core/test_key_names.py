"""Keys with different names in the inputs, and the join types of other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from whenabouts.cli.app import main
from whenabouts.conformance import case_tables, multiset
from whenabouts.core import Lateness, Point, QueryError, chance_matches, local, why_not, within
from whenabouts.core.hosting.query_identity import identity_of
from whenabouts.core.timing_join.modes import BESTS, HOWS
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.planner.plan_files import registry_of

MODES = [(how, best) for how in HOWS for best in BESTS if best is None or how not in ("left_semi", "left_anti")]
OTHER = {"case": "case_r", "k": "k_r"}
PAIRS = [("case", "case_r"), ("k", "k_r")]
LEFT = pa.table({"t": [1, 2, 3], "region": ["a", "b", None]})
RIGHT = pa.table({"t": [1, 2, 9], "reg": ["a", "c", "a"], "v": [7, 8, 9]})
JOIN: dict[str, Any] = {"left_time": Point("t"), "right_time": Point("t"), "condition": within(0, confidence=1)}


def _renamed(tables: Sequence[pa.Table]) -> list[pa.Table]:
    return [table.rename_columns([OTHER.get(name, name) for name in table.column_names]) for table in tables]


def _both(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """With the keys under either name."""
    found = []
    for table in tables:
        for name, other in OTHER.items():
            table = table.append_column(other, table.column(name))
        found.append(table)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(("how", "best"), MODES)
def test_every_mode_gives_the_rows_that_it_gives_under_one_name(how: str, best: str | None, streaming: bool) -> None:
    query = replace(case_tables.dataset("ties").query, how=how, best=best)
    files = case_tables.stream("ties") if streaming else case_tables.finite("ties")
    left, right = files["left"], files["right"]

    def ran(query: TimingJoin, right: Sequence[pa.Table]) -> pa.Table:
        if streaming:
            return local.run_stream(query, [left, right], buckets=3).output
        return local.run(query, [pa.concat_tables(left), pa.concat_tables(right)], buckets=3).output

    expected, found = ran(query, _both(right)), ran(replace(query, on=PAIRS), _renamed(right))
    kept = [name for name in expected.column_names if name not in OTHER]
    assert sorted(kept) == sorted(name for name in found.column_names if name not in OTHER)
    multiset.assert_same(multiset.rows(found, kept), multiset.rows(expected, kept), f"{how}, {best}")
    assert found.num_rows


def test_both_columns_of_a_pair_come_out_and_one_of_both_sides_once() -> None:
    left, right = LEFT.append_column("k", [[1, 1, 1]]), RIGHT.append_column("k", [[1, 1, 1]])
    found = local.timing_join(left, right, on=["k", ("region", "reg")], how="full_outer", **JOIN)
    assert found.column_names == ["t_left", "region", "k", "t_right", "reg", "v", "probability"]
    rows = {tuple(row.values())[:6] for row in found.to_pylist()}
    assert rows == {
        (1, "a", 1, 1, "a", 7), (2, "b", 1, None, None, None), (3, None, 1, None, None, None),
        (None, None, 1, 2, "c", 8), (None, None, 1, 9, "a", 9),
    }  # fmt: skip


def test_a_pair_may_be_crossed_by_columns_of_the_same_names() -> None:
    left, right = LEFT.append_column("reg", [["x"] * 3]), RIGHT.append_column("region", [["y"] * 3])
    found = local.timing_join(left, right, on={"left": "region", "right": "reg"}, **JOIN)
    assert found.drop(["t_left", "t_right", "probability"]).to_pylist() == [
        {"region_left": "a", "reg_left": "x", "reg_right": "a", "v": 7, "region_right": "y"}
    ]


def test_a_window_join_maps_streams_to_their_columns() -> None:
    tables = {"gate": LEFT, "hall": RIGHT, "exit": RIGHT.rename_columns(["t", "zone", "w"])}
    windows = {("gate", "hall"): 0, ("hall", "exit"): 0}
    found = local.window_join(
        tables, time=Point("t"), windows=windows, on={"gate": ["region"], "hall": ["reg"], "exit": "zone"}
    )
    assert found.select(["region", "reg", "zone", "v", "w"]).to_pylist() == [
        {"region": "a", "reg": "a", "zone": "a", "v": 7, "w": 7}
    ]


@pytest.mark.parametrize(
    "on",
    [7, b"k", ["k", 7], [("a",)], [("a", "b", "c")], [("a", None)], {"left": "a"}, {"left": "a", "right": ["a", "b"]},
     {"left": "a", "rihgt": "b"}, {"left": 1, "right": 2}, [[]], [""]],
)  # fmt: skip
def test_what_names_no_keys_is_refused(on: Any) -> None:
    with pytest.raises(QueryError, match="WA-2006: on is"):
        TimingJoin(on=on, **JOIN)


def test_questions_about_pairs_know_the_names() -> None:
    query = TimingJoin(on=[("region", "reg")], **JOIN)
    assert why_not({"t": 1, "region": "a"}, {"t": 1, "reg": "a"}, query=query)
    told = str(why_not({"t": 1, "region": "a"}, {"t": 1, "reg": "b"}, query=query))
    assert told == "key: left has region='a', right has reg='b'"
    assert "'reg' of the right row is null" in str(why_not({"t": 1, "region": 1}, {"t": 1, "reg": None}, query=query))
    assert chance_matches(LEFT, RIGHT, query=query).window_us == 1.0


def test_repeats_are_told_by_keys_of_either_name() -> None:
    query = {"on": [("region", "reg")], "deduplicate_by": {"left": "t", "right": "v"}}
    found = local.timing_join(pa.concat_tables([LEFT, LEFT]), pa.concat_tables([RIGHT, RIGHT]), **query, **JOIN)
    assert found.num_rows == 1


def test_a_plain_key_stays_what_a_checkpoint_calls_it() -> None:
    """A checkpoint written before keys could be pairs knows them by these texts."""
    schemas = [pa.schema({"t": pa.int64(), "k": pa.int64(), "l": pa.int64()})] * 2
    for on, told in (
        ("k", "('k',)"),
        (["k", "l"], "('k', 'l')"),
        (None, "()"),
        ({"left": "k", "right": "k"}, "('k',)"),
    ):
        settings = identity_of(TimingJoin(on=on, **JOIN), schemas, 4).settings
        assert settings == {"on": told, "how": "'inner'", "best": "None", "time_slots": "None"}
    several = WindowJoin(times={"a": Point("t"), "b": Point("t")}, windows={("a", "b"): 1}, on=["k"])
    assert identity_of(several, schemas, 4).settings["on"] == "('k',)"


@pytest.mark.parametrize(
    ("names", "how"),
    [
        ("inner INNER", "inner"),
        ("left leftouter left_outer LEFT_OUTER left-outer", "left_outer"),
        ("right rightouter right_outer", "right_outer"),
        ("outer full fullouter full_outer FullOuter", "full_outer"),
        ("semi leftsemi left_semi", "left_semi"),
        ("anti leftanti left_anti", "left_anti"),
    ],
)
def test_join_types_of_spark_pandas_and_polars(names: str, how: str) -> None:
    for name in [*names.split(), how.replace("_", " ")]:
        query = TimingJoin(how=name, **JOIN)
        assert (query.how, query.mode.how) == (how, how)
        assert query == TimingJoin(how=how, **JOIN)


@pytest.mark.parametrize("how", ["cross", "right_semi", "right_anti", "", None, 5, ["inner"], "_"])
def test_a_join_type_that_there_is_not_is_refused(how: Any) -> None:
    with pytest.raises(QueryError, match="WA-2006: how is"):
        TimingJoin(how=how, **JOIN)


def test_the_command_line_takes_both(tmp_path: Any) -> None:
    for name, table in (("l", LEFT), ("r", RIGHT)):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    paths = [str(tmp_path / f"{name}.parquet") for name in ("l", "r")]
    options = ["--left-time", "t", "--right-time", "t", "--within", "0s", "--confidence", "1", "--on", "region=reg"]
    out = str(tmp_path / "out.parquet")
    done = CliRunner().invoke(main, ["join", *paths, *options, "--how", "left", "-o", out])
    assert done.exit_code == 0, done.output
    found = pq.read_table(out).select(["region", "reg"]).to_pylist()
    assert sorted(tuple(map(str, row.values())) for row in found) == [("None", "None"), ("a", "a"), ("b", "None")]
    windows = ["--window", "l,r=0s", "--time", "t", "--on", "region=reg", "-o", out]
    done = CliRunner().invoke(main, ["window-join", f"l={paths[0]}", f"r={paths[1]}", *windows])
    assert done.exit_code == 0, done.output
    assert pq.read_table(out).select(["region", "reg"]).to_pylist() == [{"region": "a", "reg": "a"}]


def test_plan_files_take_both() -> None:
    streams = {name: {"time": "t", "lateness": "1 s", "columns": {"t": "timestamp", name: "int64"}} for name in "ab"}
    query = {"name": "pairs", "join": ["a", "b"], "within": "1 s", "confidence": 1, "how": "leftanti"}
    found = registry_of({"streams": streams, "queries": [query | {"on": {"left": "a", "right": "b"}}]})
    inner = found.query("pairs")
    assert (inner.on, inner.how, inner.lateness) == ((("a", "b"),), "left_anti", Lateness("1 s", "1 s"))
