"""What a checkpoint binds a query to besides its options."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from whenabouts.core import EngineError, Interval, Point, within
from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.durations import Duration
from whenabouts.core.expressions.sql import parse_expression
from whenabouts.core.hosting.packer_clocks import without_slots
from whenabouts.core.hosting.query_identity import Identity, identity_of
from whenabouts.core.join_aggregate.query import JoinAggregate
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.shared_coalescing.query import share
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.wrappers.deduplication import deduplicated
from whenabouts.core.wrappers.select_project import SelectProject

SCHEMA = pa.schema({"t": pa.int64(), "u": pa.int64(), "k": pa.int64()})
TIMES = {"left_time": Point("t"), "right_time": Point("t")}


def joined(width: Duration = "4 s", **options: Any) -> TimingJoin:
    given: dict[str, Any] = {
        "left_time": Point("t"),
        "right_time": Point("t"),
        "condition": within(width, confidence=1),
    }
    return TimingJoin(**(given | options))


def summed(width: Duration = "4 s", **options: Any) -> JoinAggregate:
    given: dict[str, Any] = {
        "left_time": Point("t"),
        "right_time": Point("t"),
        "condition": within(width, confidence=1),
    }
    return JoinAggregate(**(given | {"aggregates": {"n": "count"}} | options))


def asof(width: Duration = "4 s", **options: Any) -> AsofJoin:
    given: dict[str, Any] = TIMES | {"tolerance": width}
    return AsofJoin(**(given | options))


def identity(query: Query) -> Identity:
    return identity_of(query, [SCHEMA] * len(query.inputs), 4)


@pytest.mark.parametrize("make", [joined, summed, asof])
def test_time_slots_keep_their_width(make: Any) -> None:
    """They decide which bucket holds a row: a narrower query would look for it in another one."""
    auto = {"time_slots": "auto"}
    wide = identity(make(**auto)).to_json()
    identity(make(**auto)).check(wide)
    with pytest.raises(EngineError, match=r"WA-3032: .*time slots was \d+ us, .* and is \d+ us, "):
        identity(make("2 s", **auto)).check(wide)
    with pytest.raises(EngineError, match=r"WA-3032: .*time slots was 9000000 us"):
        identity(make("2 s", time_slots="9 s")).check(identity(make(time_slots="9 s")).to_json())
    identity(make("2 s", on="k", **auto)).check(identity(make(on="k", **auto)).to_json())


@pytest.mark.parametrize("make", [joined, summed, asof])
def test_time_slots_that_a_query_with_a_key_does_not_have_may_come_and_go(make: Any) -> None:
    """On Flink "auto" chooses none where there is an `idle_after`, which may change; it used to be recorded as None."""
    for key, refused in (("k", False), ((), True)):
        plain = make(on=key, time_slots="auto")
        without = without_slots(plain, "idle_after on Flink")
        written = identity(make(on=key)), identity(without), identity(plain)
        for before, now in ((each, other) for each in written for other in written):
            if refused and (before is written[2]) != (now is written[2]):
                with pytest.raises(EngineError, match=r"WA-3032: .*the width of time slots was "):
                    now.check(before.to_json())
            else:
                now.check(before.to_json())
    old = json.loads(identity(make(on="k")).to_json())
    del old["implied"]  # as earlier releases wrote it
    identity(make(on="k", time_slots="auto")).check(json.dumps(old))


@pytest.mark.parametrize("make", [joined, summed])
def test_times_keep_their_columns(make: Any) -> None:
    """Rows in state keep the times that they came with."""
    before = identity(make()).to_json()
    for other in (Point("u"), Interval("t", "u", max_uncertainty=9)):
        with pytest.raises(EngineError, match=r"WA-3032: .*what right_time reads was t and is (t, )?u "):
            identity(make(right_time=other)).check(before)
    longer = [Interval("t", "u", max_uncertainty=longest) for longest in (9, 99)]
    identity(make(left_time=longer[1])).check(identity(make(left_time=longer[0])).to_json())
    by = deduplicated(joined(), "k"), deduplicated(joined(left_time=Point("u")), "k")
    with pytest.raises(EngineError, match=r"WA-3032: .*what left_time reads was t and is u"):
        identity(by[1]).check(identity(by[0]).to_json())


def test_queries_that_share_an_extent_keep_the_group_columns_that_say_in_which_bucket_a_row_is() -> None:
    """Rows would be looked for in other buckets than those that hold their groups' state."""

    def shared(**groups: Any) -> Any:
        return share({name: Coalesce(time="t", group=by, values="u", window=6) for name, by in groups.items()})

    def of(buckets: int, **groups: Any) -> Identity:
        return identity_of(shared(**groups), [SCHEMA], buckets)

    before = of(4, both=("k", "g")).to_json()
    of(4, both=("k", "g"), other=("g", "k")).check(before)
    with pytest.raises(EngineError, match=r"WA-3032: .*that all queries have was k, g and is k "):
        of(4, both=("k", "g"), one="k").check(before)
    with pytest.raises(EngineError, match=r"WA-3032: .*that all queries have was k, g and is none "):
        of(4, both=("k", "g"), none=()).check(before)
    of(1, both=("k", "g"), one="k").check(of(1, both=("k", "g")).to_json())
    written = json.loads(before)
    del written["implied"]  # as earlier releases wrote it
    of(4, both=("k", "g"), one="k").check(json.dumps(written))


def test_the_layout_of_a_condition_is_no_part_of_it() -> None:
    """A query as text that was laid out otherwise is the same query."""

    def filtered(where: str) -> SelectProject:
        return SelectProject(query=joined(), where={"left": parse_expression(where)})

    before = identity(filtered("k > 1 AND u = 2")).to_json()
    identity(filtered("k > 1\n    AND u = 2")).check(before)
    with pytest.raises(EngineError, match=r"WA-3032: .*where was "):
        identity(filtered("k > 1 AND u = 3")).check(before)


def test_identities_of_earlier_releases_say_nothing_of_either() -> None:
    query = joined(time_slots="auto")
    written = json.loads(identity(query).to_json())
    del written["implied"]
    identity(query).check(json.dumps(written))
    identity(joined(time_slots="auto", right_time=Point("u"))).check(json.dumps(written))


def test_a_strategy_is_called_by_its_present_name() -> None:
    one, other = (
        identity_of(
            WindowJoin(times={"a": Point("t"), "b": Point("t")}, windows={("a", "b"): "1 s"}, strategy=strategy),
            [SCHEMA, SCHEMA],
            2,
        )
        for strategy in ("forward", "backward")
    )
    assert json.loads(one.to_json())["settings"]["strategy"] == "'few'", "as checkpoints have it"
    with pytest.raises(EngineError, match=r"WA-3032: .*strategy was 'forward' and is 'backward'"):
        other.check(one.to_json())
