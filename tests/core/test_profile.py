"""Profiles of whole tables: planted defects are found with the right kind, clean columns give no doubt."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import whenabouts as wa
from whenabouts import learn_clock, profile
from whenabouts.core.clocks.profile.granules import DAY, HOUR, MINUTE, MS, SECOND
from whenabouts.core.errors import Code, InputError, QueryError

NOW = 1_700_000_000_000_000
N = 6_000

Columns = dict[str, np.ndarray]


def poisson(seed: int, rows: int = N, every: int = 10 * SECOND) -> np.ndarray:
    return NOW + np.cumsum(np.random.default_rng(seed).exponential(every, rows)).astype(np.int64)


def bursts(seed: int, rows: int = N) -> np.ndarray:
    random = np.random.default_rng(seed)
    centres = random.integers(0, rows * 10 * SECOND, max(1, rows // 20))
    return np.sort(
        NOW + (centres[random.integers(0, len(centres), rows)] + random.exponential(SECOND, rows)).astype(int)
    )


def some(share: float, seed: int = 9, rows: int = N) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).permutation(rows)[: int(share * rows)])


def kinds(columns: Columns, least: tuple[str, ...] = ("note", "doubt", "wrong"), **options: Any) -> set[str]:
    found = profile(pa.table(columns), "t", **options)
    return {each.kind for each in found.findings if each.severity in least}


def _with(at: np.ndarray, change: Callable[[np.ndarray], Any]) -> Columns:
    us = poisson(0)
    us[at] = change(us[at])
    return {"t": us}


def _copied(share: float) -> Columns:
    us = poisson(0)
    whole = np.sort(np.concatenate([us, us[some(share)]]))
    return {"t": whole, "id": np.searchsorted(us, whole)}


def _polled(share: float) -> tuple[Columns, dict[str, Any]]:
    rows = int(share * N)
    polled = NOW + np.arange(rows) * 37 * SECOND + np.random.default_rng(1).integers(0, SECOND, rows)
    us = np.concatenate([polled, poisson(0, N - rows)])
    return {"t": us, "g": np.repeat([1, 2], [rows, N - rows])}, {"group": "g"}


def _late(share: float) -> Columns:
    us = poisson(0)
    arrival = us.copy()
    arrival[some(share)] += np.random.default_rng(2).integers(MINUTE, 5 * MINUTE, int(share * N))
    return {"t": us[np.argsort(arrival, kind="stable")]}


def _stepped(share: float) -> tuple[Columns, dict[str, Any]]:
    us = poisson(0)
    us[N - int(min(share, 0.99) * N) :] -= 2 * HOUR
    return {"t": us}, {}


def _zoned(share: float) -> tuple[Columns, dict[str, Any]]:
    random = np.random.default_rng(0)
    rows = int(1_500 / share)
    us = NOW // DAY * DAY + random.integers(0, 12, rows) * DAY + (random.normal(13, 3, rows) * HOUR).astype(np.int64)
    away = np.arange(rows) < 1_500
    return {"t": us + np.where(away, 3 * HOUR, 0), "g": away.astype(int)}, {"group": "g", "arrival": "t"}


PLANTED: dict[str, tuple[str, Callable[[float], Any]]] = {
    "milliseconds": ("mixed units", lambda share: _with(some(share), lambda us: us // 1_000)),
    "sentinels": ("sentinel", lambda share: _with(some(share), lambda us: 0)),
    "the year 9999": ("sentinel", lambda share: _with(some(share), lambda us: 253_402_214_400_000_000)),
    "a frequent date": ("sentinel", lambda share: _with(some(share), lambda us: 1_000_000_000_000_000)),
    "whole seconds": ("granularity", lambda share: _with(some(share), lambda us: us // SECOND * SECOND)),
    "a poll": ("polling", _polled),
    "copies": ("duplicate rows", _copied),
    "equal times": ("duplicate times", lambda share: {"t": _copied(share)["t"]}),
    "an outage": ("outage", lambda share: _with(np.arange(N - int(share * N), N), lambda us: us + 10 * HOUR)),
    "late rows": ("order", _late),
    "a step": ("clock step", _stepped),
}
WHOLE = {"milliseconds": "unit", "a frequent date": None, "an outage": None}
"""What a defect of all rows is found as, if not under the same name; None: it is none then."""


@pytest.mark.parametrize("share", [0.01, 1.0])
@pytest.mark.parametrize("defect", PLANTED)
def test_a_planted_defect_is_found(defect: str, share: float) -> None:
    kind, plant = PLANTED[defect]
    wanted = WHOLE.get(defect, kind) if share == 1 else kind
    if wanted is None:
        pytest.skip("all rows alike show nothing")
    planted = plant(share)
    columns, options = planted if isinstance(planted, tuple) else (planted, {})
    assert wanted in kinds(columns, **options)


@pytest.mark.parametrize(("share", "max_rows"), [(0.01, 10_000_000), (0.5, 10_000_000), (0.5, 2_000), (0.04, 2_000)])
def test_a_group_of_local_times_is_suspected(share: float, max_rows: int) -> None:
    """In a sample of 2,000 rows, too: zones are looked for in 65,536 random ones."""
    columns, options = _zoned(share)
    options["max_rows"] = max_rows
    assert "zone" in kinds(columns, ("doubt",), **options)
    columns["t"] = columns["t"] - np.where(columns["g"], 3 * HOUR, 0)
    assert "zone" not in kinds(columns, **options)


def _clean(seed: int, shape: str, rows: int) -> tuple[Columns, dict[str, Any]]:
    us = (bursts if shape == "bursts" else poisson)(seed, rows)
    random = np.random.default_rng(seed)
    columns = {"t": us, "v": random.integers(0, 5, rows)}
    if shape == "seconds":
        columns["t"] = us // SECOND * SECOND
    if shape == "delayed":  # arrives after a random delay, in groups
        delay = random.exponential(SECOND, rows).astype(np.int64)
        columns = {"t": us, "g": random.integers(0, 3, rows), "seen": us + delay}
        order = np.argsort(columns["seen"])
        return {name: values[order] for name, values in columns.items()}, {"group": "g", "arrival": "seen"}
    return columns, {}


def _doubts(seed: int, shape: str, rows: int) -> list[str]:
    columns, options = _clean(seed, shape, rows)
    return [str(found) for found in profile(pa.table(columns), "t", **options).findings if found.severity != "note"]


@pytest.mark.parametrize("rows", [1_000, 20_000])
@pytest.mark.parametrize("shape", ["poisson", "bursts", "seconds", "delayed"])
def test_a_clean_column_gives_no_doubt(shape: str, rows: int) -> None:
    assert [_doubts(seed, shape, rows) for seed in range(2)] == [[], []]


@pytest.mark.exhaustive
@pytest.mark.parametrize("rows", [1_000, 10_000, 100_000, 1_000_000])
@pytest.mark.parametrize("shape", ["poisson", "bursts", "seconds", "delayed"])
def test_99_of_100_clean_columns_give_no_doubt(shape: str, rows: int) -> None:
    found = [_doubts(seed, shape, rows) for seed in range(100 if rows < 1_000_000 else 10)]
    assert sum(map(bool, found)) <= 1, found


def _settled(found: Any) -> dict[str, Any]:
    """A profile without what speaks of the order of rows."""
    report = found.to_dict()
    for each in (report["whole"], *report["groups"]):
        del each["order"]
    del report["lateness_us"], report["sentence"]
    report["findings"] = [f["sentence"] for f in report["findings"] if f["kind"] != "order"]
    return report


def test_rows_in_another_order_give_the_same_profile() -> None:
    columns, options = _polled(0.3)
    columns["t"][some(0.02)] = 0
    table = pa.table(columns)
    shuffled = table.take(pa.array(np.random.default_rng(0).permutation(N)))
    assert _settled(profile(shuffled, "t", **options)) == _settled(profile(table, "t", **options))


def test_frames_of_any_kind_and_chunks_give_the_same_profile() -> None:
    columns, options = _polled(0.3)
    table = pa.table(columns)
    wanted = profile(table, "t", **options).to_dict()
    frames = (
        pl.DataFrame(columns), pd.DataFrame(columns), ds.dataset(table), table.to_reader(max_chunksize=100),
        table.to_batches()[0],
    )  # fmt: skip
    for frame in frames:
        assert profile(frame, "t", **options).to_dict() == wanted


def test_timestamps_of_each_unit_give_the_same_profile() -> None:
    us = poisson(0) // SECOND * SECOND
    wanted = profile(pa.table({"t": us}), "t").to_dict()
    for unit in ("s", "ms", "us", "ns"):
        column = pa.array(us, pa.timestamp("us")).cast(pa.timestamp(unit, "UTC"))
        assert profile(pa.table({"t": column}), "t").to_dict() == wanted


@pytest.mark.parametrize(
    ("per_second", "kind"), [(1, "unit"), (1_000, "unit"), (10**9, "unit"), (1.0, "float"), (1_000.0, "float")]
)
def test_a_wrong_unit_is_found_and_the_times_are_read_right(per_second: float, kind: str) -> None:
    us = poisson(0) // SECOND * SECOND
    numbers = us // SECOND * per_second
    found = profile(pa.table({"t": numbers}), "t")
    assert [each.kind for each in found.wrong] == [kind]
    assert found.span_us == (us.min(), us.max())
    assert [share.granule_us for share in found.whole.granules] == [SECOND]
    with pytest.raises(InputError) as caught:
        found.spec()
    assert caught.value.code == Code.UNFIT_TIMES
    assert "No specification" in str(found)


@pytest.mark.parametrize("per_second", [[1e6, 1e3], [1e6, 1], [1e3, 1, 1e6], [1, 1e3, 1, 1e9]])
def test_units_of_which_none_has_most_rows_are_found(per_second: list[float]) -> None:
    us = poisson(0)
    numbers = [int(time * each // 1e6) for time, each in zip(us.tolist(), per_second * N, strict=False)]
    found = profile(pa.table({"t": pa.array(numbers, pa.int64())}), "t")
    mixed = [each for each in found.wrong if each.kind == "mixed units"]
    assert sum(each.share for each in mixed) == pytest.approx(1 - found.whole.rows / N)
    assert len(mixed) == len(set(per_second)) - 1
    assert found.span_us[0] > NOW - SECOND
    with pytest.raises(InputError, match="WA-1081"):
        found.spec()


_SECONDS = 1_714_557_612 + 7 * np.arange(40)
"""Seconds since 1970."""


@pytest.mark.parametrize(
    ("column", "convert", "unit"),
    [
        (pa.array(_SECONDS), "Multiply its numbers by 1,000,000", "s"),
        (pa.array(_SECONDS, pa.timestamp("ns")), "Multiply its numbers by 1,000,000,000", "s"),
        (pa.array(_SECONDS, pa.timestamp("ms")), "Multiply its numbers by 1,000", "s"),
        (pa.array(_SECONDS * 10**6, pa.timestamp("ms")), "Divide its numbers by 1,000", "us"),
    ],
)
def test_the_remedy_converts_from_the_declared_unit(column: pa.Array, convert: str, unit: str) -> None:
    table, remedy = pa.table({"t": column}), f"{convert}, or declare them as timestamp[{unit}]."
    (found,) = profile(table, "t").wrong
    assert (found.kind, found.remedy) == ("unit", remedy)
    with pytest.raises(InputError, match=f"WA-1081.*{re.escape(remedy)}"):
        learn_clock(table, table, left_time="t", right_time="t")


_MIXTURES = {
    "three units": (
        [*_SECONDS[:20], *(_SECONDS[:20] * 1_000), *(_SECONDS[:15] * 10**6)],
        [
            "but 36.4 % of its numbers look like milliseconds (",
            "36.4 % of the rows look like seconds, others like milliseconds or microseconds.",
            "27.3 % of the rows look like microseconds, others like seconds or milliseconds.",
        ],
    ),
    "one row of each": (
        [_SECONDS[0], _SECONDS[0] * 1_000, _SECONDS[0] * 10**6],
        [
            "but 33.3 % of its numbers look like milliseconds (",
            "33.3 % of the rows look like seconds, others like milliseconds or microseconds.",
            "33.3 % of the rows look like microseconds, others like seconds or milliseconds.",
        ],
    ),
    "one row of a finer unit": (
        [*(_SECONDS * 10**6), _SECONDS[0] * 10**9],
        ["2.44 % of the rows look like nanoseconds, the others like microseconds."],
    ),
    "dates": ([20_240_101 + n for n in range(25)], ["but its numbers look like dates such as 20240131 ("]),
}


@pytest.mark.parametrize("case", _MIXTURES)
def test_of_mixed_units_each_is_named_and_no_factor_is(case: str) -> None:
    numbers, sentences = _MIXTURES[case]
    wrong = profile(pa.table({"t": pa.array(numbers, pa.int64())}), "t").wrong
    assert len(wrong) == len(sentences)
    for found, sentence in zip(wrong, sentences, strict=True):
        assert sentence in found.sentence
        assert "by 1,000" not in found.remedy


def test_times_of_other_years_are_of_no_other_unit() -> None:
    """Ten days from 1970 on in microseconds; an hour of them looks like seconds."""
    assert "mixed units" not in kinds({"t": np.arange(N) * (10 * DAY // N)})


def test_single_precision_is_reported_with_its_tick() -> None:
    found = profile(pa.table({"t": (poisson(0) / 1e6).astype(np.float32)}), "t")
    assert (found.whole.tick_us, "128 s" in str(found)) == (128 * SECOND, True)


def test_times_ahead_of_their_arrival_by_half_a_granule_were_rounded() -> None:
    true = poisson(0)
    rounded = (true + SECOND // 2) // SECOND * SECOND
    table = pa.table({"t": rounded, "seen": true + MS})
    assert profile(table, "t", arrival="seen").spec() == wa.from_granularity("t", "1 s", rounding="nearest")
    assert profile(table, "t").spec() == wa.from_granularity("t", "1 s")


def test_the_specification_holds_the_true_times_and_joins() -> None:
    true = poisson(3, 500)
    group = np.arange(500) % 2
    read = true // np.where(group, MINUTE, SECOND) * np.where(group, MINUTE, SECOND)
    rows = pa.table({"id": np.arange(500), "g": np.array(["a", "b"])[group], "t": read})
    found = profile(rows, "t", group="g")
    assert found.specs() == {"a": wa.from_granularity("t", "1 s"), "b": wa.from_granularity("t", "1 min")}
    assert found.spec() == found.spec("b")
    ends = found.with_interval(rows)
    low, high = (ends.column(name).to_numpy() for name in ("t_min", "t_max"))
    assert ((low <= true) & (true <= high)).all()
    assert (high - low).tolist() == np.where(group, MINUTE, SECOND).tolist()
    pairs = wa.timing_join(
        rows, pa.table({"other": np.arange(500), "true": true}), left_time=found.spec(), right_time=wa.Point("true"),
        condition=wa.possibly(wa.within("0 s")),
    )  # fmt: skip
    same = {(a, b) for a, b in zip(pairs["id"].to_pylist(), pairs["other"].to_pylist(), strict=True) if a == b}
    assert len(same) == 500


def test_the_lateness_is_enough_for_the_share_that_was_asked_for() -> None:
    found = profile(pa.table(_late(0.05)), "t")
    for share in (0.9, 0.96, 0.99, 0.999, 1):
        assert found.whole.order.rejected(found.lateness(share)) <= 1 - share
    assert found.lateness(0.9) == 0 < found.lateness(0.96) <= found.lateness(1)


def test_the_line_to_paste_is_the_specification() -> None:
    found = profile(pa.table({"t": poisson(0) // MINUTE * MINUTE}), "t")
    last = str(found).splitlines()[-1]
    assert last == 'left_time=wa.from_granularity("t", "1 min")'
    assert eval(last.removeprefix("left_time="), {"wa": wa}) == found.spec()


def test_small_groups_together_have_no_clock_that_steps() -> None:
    us = poisson(0, 450)
    table = pa.table({"t": np.concatenate([us, us[:30]]), "g": np.arange(480) // 15})  # the last two begin again
    assert [each.kind for each in profile(table, "t").wrong] == ["clock step"]
    assert not profile(table, "t", group="g").wrong


@pytest.mark.parametrize("max_rows", [10_000_000, 100])
def test_equal_times_say_no_more_than_one(max_rows: int) -> None:
    """A single midnight does not make days the granularity, nor that of all groups."""
    for times in ([NOW // DAY * DAY], NOW + np.arange(9) * HOUR):
        found = profile(pa.table({"t": np.repeat(times, 200)}), "t", max_rows=max_rows)
        assert [each.kind for each in found.findings if each.severity == "doubt"] == ["too few"]
        with pytest.raises(
            InputError, match=r"WA-1081.*(have one time, which is|9 different times in 1,800 usable rows)"
        ):
            found.spec()
    assert profile(
        pa.table({"t": np.repeat(NOW // DAY * DAY + np.arange(10) * DAY, 200)}), "t"
    ).spec() == wa.from_granularity("t", "1 day")


def test_a_group_of_few_times_has_the_specification_of_all() -> None:
    us = np.sort(poisson(0, 200))
    table = pa.table(
        {"t": np.append(us, np.full(50, us[99] // MINUTE * MINUTE)), "g": np.repeat(["a", "b"], [200, 50])}
    )
    found = profile(table, "t", group="g")
    assert found.groups["b"].granule_us >= MINUTE
    assert found.spec() == found.spec("a") == found.spec("b") == wa.Point("t")
    assert found.to_dict()["groups"][1]["spec"] == 'wa.Point("t")'


def test_polls_without_a_row_have_two_intervals() -> None:
    polls = np.flatnonzero(np.random.default_rng(0).random(6_000) < 0.3)
    found = profile(pa.table({"t": NOW + polls * 30 * SECOND}), "t")
    (poll,) = (each for each in found.findings if each.kind == "polling")
    assert found.spec().max_uncertainty_us > 5 * MINUTE
    assert re.search(r'The specification, \d+(\.\d+)? min, allows for .* found nothing, say "30 s"', poll.remedy)


def test_small_groups_are_one() -> None:
    table = pa.table({"t": poisson(0, 130), "g": [1] * 100 + [n for n in range(2, 17) for _ in range(2)]})
    assert {key: each.rows for key, each in profile(table, "t", group="g").groups.items()} == {1: 100, "few": 30}


def test_reports_are_json_and_one_file(tmp_path: Path) -> None:
    columns, options = _polled(0.3)
    columns["g"] = np.where(columns["g"] == 1, "<b>", "c")
    found = profile(pa.table(columns), "t", **options)
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()
    page = found.to_html(tmp_path / "report.html").read_text()
    assert "&lt;b&gt;" in page
    assert "<b></td>" not in page
    assert "<svg" in page
    assert not re.search(r"<script|src=|https?://", page)
    assert found.plot().axes[0].get_ylabel() == "rows"


def test_the_frame_is_taken_under_its_old_name_with_a_warning() -> None:
    table = pa.table({"t": poisson(0, 50)})
    with pytest.warns(DeprecationWarning, match="table= is deprecated: use frame="):
        found = profile(table=table, time="t")  # type: ignore[call-arg]
    with pytest.warns(DeprecationWarning, match="table= is deprecated: use frame="):
        assert found.with_interval(table=table) == found.with_interval(frame=table)  # type: ignore[call-arg]


def test_of_a_reader_the_first_rows_are_read() -> None:
    found = profile(pa.table({"t": poisson(0)}).to_reader(), "t", max_rows=1_000)
    assert (found.rows, [each.kind for each in found.findings]) == (1_000, ["first rows only"])


def _much() -> pa.Table:
    """Whole seconds, polled rows, milliseconds, late rows, sentinels, another unit, nulls."""
    rows = 10 * N
    us = poisson(0, rows, SECOND)
    group = np.arange(rows) % 3
    us = np.where(group == 0, us // SECOND * SECOND, us // MS * MS)
    us = np.where(group == 1, us // (8 * SECOND) * 8 * SECOND + 7 * MS, us)
    arrival = us + np.random.default_rng(3).exponential(SECOND, rows).astype(np.int64)
    us[some(0.01, 1, rows)] = 0
    us[some(0.02, 2, rows)] //= 1_000
    us[[5, 9]] = 1_000
    mask = np.zeros(rows, bool)
    mask[some(0.005, 3, rows)] = True
    return pa.table({"t": pa.array(us, mask=mask), "g": group, "seen": arrival})


def _counted(found: Any) -> dict[str, Any]:
    """What of a profile is exact if it is of a sample."""
    kinds = ("unit", "mixed units", "sentinel", "out of range", "null", "granularity", "type", "float")
    wholes = (found.whole, *found.groups.values())
    return {
        "rows": (found.rows, found.nulls, found.span_us),
        "groups": {key: (each.rows, each.span_us) for key, each in found.groups.items()},
        "granules": [each.granules for each in wholes],
        "specs": {key: each.spec_text("t") for key, each in found.groups.items()},
        "findings": {each.sentence for each in found.findings if each.kind in kinds},
    }


@pytest.mark.parametrize("options", [{}, {"group": "g"}, {"group": "g", "arrival": "seen"}])
def test_a_sample_of_many_rows_counts_all_of_them(options: dict[str, str]) -> None:
    table = _much()
    whole, sampled = (profile(table, "t", max_rows=limit, **options) for limit in (10 * N, 3 * N))
    assert _counted(sampled) == _counted(whole)
    assert {each.kind for each in sampled.findings} == {each.kind for each in whole.findings} | {"sample"}
    assert sampled.sampled is not None
    assert abs(sampled.sampled - 3 * N) < 0.2 * N
    assert sum(sampled.counts) == pytest.approx(whole.whole.rows, rel=0.01)


def test_the_batches_of_a_dataset_do_not_change_what_is_counted() -> None:
    table, options = _much(), {"group": "g", "arrival": "seen", "max_rows": N}
    parts = pa.Table.from_batches(table.to_batches(max_chunksize=997))
    found = [profile(ds.dataset(each), "t", **options) for each in (table, parts)]
    assert _counted(found[0]) == _counted(found[1])


def test_only_outages_of_the_rows_are_outages_of_a_sample() -> None:
    us = poisson(4, 10 * N)
    clean = profile(pa.table({"t": us}), "t", max_rows=N)
    assert [each.kind for each in clean.findings] == ["sample"]
    us[5 * N :] += DAY
    silent = profile(pa.table({"t": us}), "t", max_rows=N)
    assert [each.kind for each in silent.findings] == ["sample", "outage"]


def test_a_sample_of_a_coarse_column_is_not_all_of_it() -> None:
    days = pa.table({"t": np.repeat(NOW // DAY * DAY + np.arange(40) * DAY, 500)})
    found = profile(days, "t", max_rows=1_000)
    assert found.spec() == wa.from_granularity("t", "1 d")
    assert found.sampled is not None
    assert found.sampled < 5_000


@pytest.mark.parametrize("values", [[0] * 100, [None] * 100, [NOW] * 100])
def test_many_rows_without_times_are_reported(values: list[Any]) -> None:
    whole, sampled = (profile(pa.table({"t": pa.array(values, pa.int64())}), "t", max_rows=n) for n in (100, 50))
    kinds = [{each.kind for each in found.findings} - {"sample"} for found in (whole, sampled)]
    assert kinds[0] == kinds[1]
    assert str(sampled)


def test_nulls_and_too_few_rows_are_reported() -> None:
    found = profile(pa.table({"t": pa.array([None, NOW, None])}), "t")
    assert [each.kind for each in found.findings] == ["too few", "null"]
    assert "no usable time" in str(profile(pa.table({"t": pa.array([], pa.int64())}), "t"))
    assert "no usable time" in str(profile(pa.table({"t": pa.array([None])}), "t"))


@pytest.mark.parametrize(
    ("table", "options", "code"),
    [
        (pa.table({"t": ["now"]}), {}, Code.WRONG_TYPE),
        (pa.table({"t": pa.array(["now"], pa.string_view())}), {}, Code.WRONG_TYPE),
        (pa.table({"x": [1]}), {}, Code.MISSING_COLUMN),
        (ds.dataset(pa.table({"x": [1]})), {}, Code.MISSING_COLUMN),
        (pa.table({"t": [1]}), {"group": "g"}, Code.MISSING_COLUMN),
        (pa.table({"t": [1]}), {"arrival": "seen"}, Code.MISSING_COLUMN),
        ("events.csv", {}, Code.NOT_AN_INPUT),
        (pa.table({"t": [1], "g": [[1]]}), {"group": "g"}, Code.WRONG_TYPE),
        (pa.table([[1], [2]], names=["t", "t"]), {}, Code.COLUMN_CLASH),
        (pa.table({"t": [1]}), {"max_rows": 0}, Code.BAD_OPTION),
        (pa.table({"t": [1]}), {"seed": -1}, Code.BAD_OPTION),
    ],
)
def test_bad_arguments_have_codes(table: Any, options: dict[str, Any], code: Code) -> None:
    with pytest.raises((InputError, QueryError)) as caught:
        profile(table, "t", **options)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([0] * 50), "sentinel"),
        (pa.array([0] * 50), "too few"),
        (pa.array(range(19_000, 19_050), pa.int32()).cast(pa.date32()), "type"),
        (pa.array(range(1_700_000_000, 1_700_000_050), pa.int32()), "type"),
        (pa.array([2**64 - 1] * 5 + [NOW + n * SECOND for n in range(50)], pa.uint64()), "out of range"),
        (
            pa.array([2**31 - 1, -(2**31)] + [19_000 + n for n in range(50)], pa.int32()).cast(pa.date32()),
            "out of range",
        ),
        (pa.array([253_402_300_800_000_000] * 5 + [NOW + n * SECOND for n in range(50)]), "out of range"),
        (pa.array([253_402_300_800.0] * 5 + [1.7e9 + n for n in range(50)]), "out of range"),
        (pa.array([20_240_101 + n for n in range(25)]), "unit"),
        (pa.array([float("nan"), None] + [1.7e9 + n for n in range(50)]), "float"),
    ],
)
def test_columns_that_joins_cannot_read_are_reported(column: pa.Array, kind: str) -> None:
    found = profile(pa.table({"t": column}), "t")
    assert kind in [each.kind for each in found.findings]
    assert json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    "group", [[None, float("nan"), 1.0], ["few", "a", None], [b"x", b"y", b"z"], [True, False, None]]
)
def test_groups_of_any_plain_type(group: list[Any]) -> None:
    for column in (pa.array(group * 100), pa.array(group * 100).dictionary_encode()):
        table = pa.table({"t": poisson(0, 300), "g": column})
        found = profile(table, "t", group="g")
        assert [each.rows for each in found.groups.values()] == [100, 100, 100]
        assert json.dumps(found.to_dict(), allow_nan=False)
        assert found.with_interval(table).num_rows == 300


@pytest.mark.parametrize("max_rows", [1_000, 100])
def test_groups_of_floats_are_those_of_keys(max_rows: int) -> None:
    """NaN equals NaN, and -0.0 equals 0.0, among all rows and in a sample; each has its own intervals."""
    us = np.where(np.arange(900) % 3 == 0, poisson(0, 900) // MINUTE * MINUTE, poisson(1, 900))
    table = pa.table({"t": us, "g": [float("nan"), 0.0, 1.0, float("nan"), -0.0, 1.0] * 150})
    found = profile(table, "t", group="g", max_rows=max_rows)
    assert sorted(map(repr, found.groups)) == ["0.0", "1.0", "nan"]
    assert [each.rows for each in found.groups.values()] == [300, 300, 300]
    ends = found.with_interval(table)
    assert {b - a for a, b in zip(ends["t_min"][::3].to_pylist(), ends["t_max"][::3].to_pylist(), strict=True)} == {
        MINUTE
    }


def test_a_group_of_which_the_sample_has_no_row_has_no_offset() -> None:
    seen = poisson(0, 3_000)
    rare = np.where(np.abs(np.arange(3_000) - 1_000) < 20, 1, 0)
    table = pa.table({"t": seen - MS, "g": rare, "seen": seen})
    samples = [profile(table, "t", group="g", arrival="seen", max_rows=20, seed=seed) for seed in range(5)]
    assert all(sorted(found.groups) == [0, 1] for found in samples)


def test_group_columns_that_python_cannot_hold_have_a_code() -> None:
    late = pa.array([253_402_300_800] * 100, pa.int64()).cast(pa.timestamp("s"))
    for max_rows in (1_000, 50):
        with pytest.raises(InputError, match="WA-1007: a group column has times outside the years 1 to 9999"):
            profile(pa.table({"t": poisson(0, 100), "g": late}), "t", group="g", max_rows=max_rows)


def test_an_hour_back_at_the_end_of_the_calendar_is_a_step() -> None:
    last = 253_402_300_799_999_999
    us = last - 4_000 * SECOND + np.concatenate([np.arange(3_000), np.arange(3_000) - 600]) * SECOND
    assert "clock step" in kinds({"t": us})


def test_a_group_on_gps_time_is_named_when_the_arrival_is_known() -> None:
    arrival, group = poisson(0), np.arange(N) % 3
    us = arrival - 50 * MS + np.where(group == 1, 18 * SECOND, 0)
    (found,) = (
        each
        for each in profile(pa.table({"t": us, "g": group, "seen": arrival}), "t", group="g", arrival="seen").findings
        if each.kind == "time scale"
    )
    assert "1 is 18 s off the others, as much as GPS less UTC" in found.sentence


def test_frames_of_engines_are_refused_with_what_to_pass() -> None:
    class DataFrame:
        __module__ = "pyspark.sql.classic.dataframe"

    with pytest.raises(InputError, match=r"WA-1062: the profiled input is .*give a DataFrame of Spark"):
        profile(DataFrame(), "t")


def test_bad_questions_have_codes() -> None:
    found = profile(pa.table({"t": poisson(0)}), "t")
    with pytest.raises(QueryError, match="WA-2074"):
        found.spec("a")
    for share in (0, 1.5, "most", True):
        with pytest.raises(QueryError, match="WA-2006"):
            found.lateness(share)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="WA-2009"):
        found.with_interval(pa.table({"t": [1], "t_min": [1]}))


def test_rows_at_both_ends_of_the_calendar_are_no_poll() -> None:
    """The gap between them would be a period longer than any duration may be (WA-2002)."""
    ends = np.array([-62_135_596_800_000_000, 253_370_764_800_000_000])
    found = profile(pa.table({"t": (ends[:, None] + np.arange(60)[::2] * 1_000_000).ravel()}), "t")
    assert "polling" not in {each.kind for each in found.findings}
    assert found.spec().columns == ("t",)
