"""Reports as tables, in text and in notebooks."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pyarrow as pa
import pytest

import whenabouts as wa
from whenabouts.core.costs.choices import Workload
from whenabouts.core.errors import InputError
from whenabouts.planner.state_forecast import forecast_state

POINT = wa.Point("t")
QUERY = wa.TimingJoin(left_time=POINT, right_time=POINT, on="k", condition=wa.within(5, confidence=1))


class Texts(HTMLParser):
    """The texts of a page, which must be well-formed and free of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in ("p", "b", "table", "thead", "tbody", "tr", "th", "td")
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_an_answer_shows_its_reason_and_no_markup_of_the_data() -> None:
    key = "<script>alert(1)</script>"
    answer = wa.why_not({"t": 0, "k": key}, {"t": 1, "k": "b"}, query=QUERY)
    texts = Texts(answer._repr_html_()).texts
    assert {"No pair", "key", "1"} <= set(texts)
    assert any(key in text for text in texts)


def test_chance_matches_show_their_numbers() -> None:
    table = pa.table({"t": list(range(0, 5000, 7)), "k": [1] * 715})
    found = wa.chance_matches(table, table, query=QUERY, observed=7)
    assert {"from the rates", "from time slides", "observed", "7"} <= set(Texts(found._repr_html_()).texts)


def test_a_plan_shows_every_choice() -> None:
    registry = wa.Registry()
    registry.register("lamps", wa.CoalescingQuery(("lamp",), ("room",), rows=100), wa.Statistics(cp=0.8))
    plan = registry.plan()
    texts = Texts(plan._repr_html_()).texts
    assert {"Plan", "lamps", *map(str, plan.decisions["lamps"].values())} <= set(texts)


def test_expected_state_shows_rows_and_bytes_of_each_input() -> None:
    schema = pa.schema({"t": pa.timestamp("us"), "k": pa.int64()})
    forecast = forecast_state(replace(QUERY, lateness="2 s"), [schema, schema], [100, 10], every="8 s")
    texts = Texts(forecast._repr_html_()).texts
    assert {"left", "1,100", "right", "110", "1,210 rows, 18.91 KiB in all"} <= set(texts)
    assert dict(forecast) == forecast  # a dictionary, as ever
    registry = wa.Registry()
    load = Workload(rates={"left": 100, "right": 10}, row_bytes={"left": 16, "right": 16})
    registry.register("a < b", replace(QUERY, lateness="2 s"), load)
    texts = Texts(registry.plan()._repr_html_()).texts
    assert "Expected state of a < b" in texts


@pytest.mark.filterwarnings("ignore::whenabouts.RejectedRowsWarning")
def test_a_summary_counts_rejects_whatever_frame_they_are_in() -> None:
    table = pa.table({"t": pa.array([5, None, None], pa.int64()), "k": [1, 1, 1]})
    pairs = wa.run(QUERY, [table, table.slice(1)])
    found = wa.summarise_rejects(wa.rejects(pairs))
    assert found.total == 4
    assert found.counts[0][:2] == ("left", "WA-1003")
    assert "4 rows were rejected" in Texts(found._repr_html_()).texts
    one = wa.summarise_rejects(wa.rejects(pairs).slice(0, 1))
    assert "1 row was rejected" in Texts(one._repr_html_()).texts
    assert wa.summarise_rejects(wa.rejects(pairs).to_pandas()) == found
    assert str(wa.summarise_rejects(wa.rejects(pairs).slice(0, 0))) == "no row was rejected"
    with pytest.raises(InputError, match="WA-1001: the rejects have no column"):
        wa.summarise_rejects(table)
