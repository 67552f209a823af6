"""Pictures of pairs and of stretches: what is drawn is what the join computes."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import whenabouts as wa
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.explain.pair_picture import clipped, difference, outline

pytest.importorskip("matplotlib")

TEMPLATES = {
    "fast": [(0, "20ms", 0.7), ("20ms", "90ms", 0.3)],
    "late": [(0, "5ms", 0.5), ("5ms", "40ms", 0), ("40ms", "45ms", 0.5)],
}
CONDITIONS = {
    "within": wa.within("20ms", confidence=0.5), "deadline": wa.deadline("50ms", confidence=0.5),
    "delay": wa.delay("3ms", confidence=0.5), "between": wa.between("-5ms", "31ms", confidence=0.5),
}  # fmt: skip
ROWS: dict[str, tuple[wa.Interval | wa.Histogram | wa.Point, list[dict[str, Any]]]] = {
    "interval": (wa.Interval("a", "b"), [{"a": 0, "b": 40_000}, {"a": 10_000, "b": 70_000}, {"a": 600, "b": 601}]),
    "histogram": (
        wa.Histogram("t", template="k", templates=TEMPLATES),
        [{"t": 80_000, "k": "fast"}, {"t": 70_000, "k": "late"}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("right", ROWS)
@pytest.mark.parametrize("left", ROWS)
def test_the_shaded_area_is_the_probability(left: str, right: str, condition: str) -> None:
    query = wa.TimingJoin(left_time=ROWS[left][0], right_time=ROWS[right][0], condition=CONDITIONS[condition])
    for left_row in ROWS[left][1]:
        for right_row in ROWS[right][1]:
            answer = wa.why_not(left_row, right_row, query=query)
            assert answer.picture is not None
            at, height = difference(answer.picture.left, answer.picture.right)
            assert np.trapezoid(height, at) == pytest.approx(1, abs=1e-9)
            inside = clipped(at, height, answer.picture.lo_us, answer.picture.hi_us)
            assert np.trapezoid(inside[1], inside[0]) == pytest.approx(answer.probability, abs=1e-9)
            for buckets in (answer.picture.left, answer.picture.right):
                at, height = outline(buckets)
                assert np.trapezoid(height, at) == pytest.approx(1, abs=1e-9)


def test_points_and_certain_pairs_can_be_drawn() -> None:
    point = wa.Point("t")
    for d in (0, 5, 10**15):
        query = wa.TimingJoin(left_time=point, right_time=point, condition=wa.within(d, confidence=1))
        for t in (0, 5, 10**15):
            assert len(wa.why_not({"t": 0}, {"t": t}, query=query).plot().axes) == 2


def test_the_title_is_the_answer() -> None:
    point = wa.Point("t")
    query = wa.TimingJoin(left_time=point, right_time=point, on="k", condition=wa.within(5, confidence=1))
    answer = wa.why_not({"t": 0, "k": "a"}, {"t": 1, "k": "b"}, query=query)
    assert answer.plot().get_suptitle() == "key: left has k='a', right has k='b'"


def test_notebooks_show_pictures_without_pyplot() -> None:
    query = wa.TimingJoin(left_time=wa.Point("t"), right_time=wa.Point("t"), condition=wa.within(5, confidence=1))
    table = pa.table({"t": [0, 3]})
    timeline = wa.timeline(table, table, wa.run(query, [table, table]), query=query)
    for figure in (timeline, wa.why_not({"t": 0}, {"t": 3}, query=query).plot()):
        assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_row_without_a_time_cannot_be_drawn() -> None:
    query = wa.TimingJoin(left_time=wa.Point("t"), right_time=wa.Point("t"), condition=wa.within(5, confidence=1))
    with pytest.raises(QueryError, match="WA-1003") as refused:
        wa.why_not({"t": None}, {"t": 1}, query=query).plot()
    assert refused.value.code == Code.NOT_AVAILABLE


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    query = wa.TimingJoin(left_time=wa.Point("t"), right_time=wa.Point("t"), condition=wa.within(5, confidence=1))
    answer = wa.why_not({"t": 0}, {"t": 1}, query=query)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(QueryError, match=r"pip install 'whenabouts\[plot\]'"):
        answer.plot()


LEFT = pa.table({"k": ["a", "b", "a", "a"], "t": [0, 10, None, 500], "v": [1, 2, 3, 4]})
RIGHT = pa.table({"key": ["a", "b", "b"], "a": [3, 12, 800], "b": [7, 30, 900], "v": [1, 2, 3]})
JOIN: dict[str, Any] = {
    "left_time": wa.Point("t"), "right_time": wa.Interval("a", "b"), "on": {"left": "k", "right": "key"},
    "condition": wa.within("10us", confidence=0.3),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::whenabouts.RejectedRowsWarning")
@pytest.mark.parametrize("how", ["inner", "left_outer", "full_outer"])
def test_a_timeline_has_the_events_of_the_stretch_and_their_pairs(how: str) -> None:
    query = wa.TimingJoin(**JOIN, how=how)
    pairs = wa.timing_join(LEFT, RIGHT, **JOIN, how=how)
    titles = [
        wa.timeline(LEFT, RIGHT, pairs, query=query, start=start, events=events).axes[0].get_title()
        for start, events in ((0, 60), (0, 2), (4, 2), (9, 9))
    ]
    assert titles == ["6 events, 2 pairs", "2 events, 1 pair", "2 events, 0 pairs", "0 events, 0 pairs"]


@pytest.mark.filterwarnings("ignore::whenabouts.RejectedRowsWarning")
def test_a_timeline_takes_any_dataframe_and_pairs_without_probability() -> None:
    frames = LEFT.to_pandas().dropna().astype({"t": int}), RIGHT.to_pandas()
    pairs = wa.timing_join(*frames, **JOIN, probability=False)
    figure = wa.timeline(*frames, pairs, query=wa.TimingJoin(**JOIN))
    assert figure.axes[0].get_title() == "6 events, 2 pairs"


def test_a_timeline_of_nothing_is_empty() -> None:
    empty = LEFT.slice(0, 0), RIGHT.slice(0, 0)
    figure = wa.timeline(*empty, wa.timing_join(*empty, **JOIN), query=wa.TimingJoin(**JOIN))
    assert figure.axes[0].get_title() == "0 events, 0 pairs"


@pytest.mark.filterwarnings("ignore::whenabouts.RejectedRowsWarning")
def test_a_timeline_needs_the_times_of_pairs_and_refuses_what_is_none() -> None:
    query, pairs = wa.TimingJoin(**JOIN), wa.timing_join(LEFT, RIGHT, **JOIN)
    times = [name for spec in (JOIN["left_time"], JOIN["right_time"]) for name in spec.columns]
    only = wa.timeline(LEFT, RIGHT, pairs.select(times), query=query)
    assert only.axes[0].get_title() == "6 events, 2 pairs"
    texts = pairs.set_column(pairs.column_names.index(times[0]), times[0], pa.array(["noon"] * len(pairs)))
    for wrong, code in ((LEFT, "WA-1001"), (RIGHT, "WA-1001"), (texts, "WA-1002")):
        with pytest.raises(wa.InputError, match=f"{code}: the pairs"):
            wa.timeline(LEFT, RIGHT, wrong, query=query)
