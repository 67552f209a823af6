"""The rows of `benchmarks/state_heavy.py` are the same in numpy and SQL, and its answers those of a loop."""

from __future__ import annotations

import importlib
import json
import sqlite3
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("pyperf")
pytest.importorskip("tabulate")


@pytest.fixture
def clicks() -> ModuleType:
    return importlib.import_module("clicks")


@pytest.fixture
def heavy(clicks: ModuleType) -> ModuleType:
    return importlib.import_module("state_heavy")


@pytest.mark.parametrize("held", [2_000, 100_000_000])
def test_the_rows_in_sql_are_those_of_numpy(clicks: ModuleType, held: int) -> None:
    stream = clicks.Clicks(held, 37)
    texts, numbers = stream.sql(), sqlite3.connect(":memory:")
    numbers.create_function("MOD", 2, lambda a, b: a % b)
    n = np.random.default_rng(3).integers(stream.first(0), stream.first(37), 300)
    converted = n % clicks.EVERY == clicks.EVERY - 1
    keys = np.where(converted, stream.key_of(stream.clicked(n)), stream.key_of(n))
    for number, is_conversion, key, t_ms in zip(
        n.tolist(), converted.tolist(), keys.tolist(), stream.t_ms(n).tolist(), strict=True
    ):
        side = "conversions" if is_conversion else "clicks"
        asked = [texts[name] for name in ("t_ms", side, f"of_{side}")]
        asked.append(clicks.pair_sql("n", "(n + 5)"))
        found = numbers.execute(f"SELECT {', '.join(asked)} FROM (SELECT {number} AS n)").fetchone()
        assert found == (t_ms, key, 1, clicks.hash_of(np.array([number]), np.array([number + 5])))


def test_the_answers_are_those_of_a_loop(clicks: ModuleType) -> None:
    """Also by parts of the keys; the hash sees partners that are exchanged."""
    stream = clicks.Clicks(2_000, 30)
    sides: dict[int, tuple[list[tuple[int, int]], list[tuple[int, int, int]]]] = {}
    for day in range(stream.days):
        left, right = (table.to_pylist() for table in stream.day(day))
        for row in left:
            sides.setdefault(row["k"], ([], []))[0].append((row["id"], row["t"]))
        for row in right:
            sides.setdefault(row["k"], ([], []))[1].append((row["id"], row["t"], day))
    pairs = [
        (day, click, conversion)
        for one, other in sides.values()
        for click, t in one
        for conversion, at, day in other
        if 0 <= (at - t).total_seconds() <= 28 * 86_400
    ]
    answers = stream.answers()
    assert answers == stream.answers(parts=3)
    for until in (9, 29):
        met = np.array([each[1:] for each in pairs if each[0] <= until])
        assert answers[until] == (len(met), clicks.hash_of(met[:, 0], met[:, 1]) % clicks.PRIME)
    exchanged = np.roll(met[:, 1], 1)
    assert clicks.hash_of(met[:, 0], exchanged) % clicks.PRIME != answers[29][1]


def test_costs_are_those_between_two_numbers_of_rows(heavy: ModuleType, clicks: ModuleType, tmp_path: Path) -> None:
    """Totals of a step that came twice count once; what a process did before its first output is in no figure."""
    stream = clicks.Clicks(10_000, heavy.DAYS)
    progress = heavy.Progress(tmp_path, stream, steps=True)
    steps = (0, 1, 1, 2)
    last = [stream.first(step) + 33 for step in steps]
    lines = [{"step": s, "last": n, "pairs": s, "hash": 1, "held": 0} for s, n in zip(steps, last, strict=True)]
    lines.append({"step": 3, "last": 0, "pairs": 0, "hash": 0, "held": 0})
    (tmp_path / "progress").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 4, "la')
    progress.read()
    day = stream.first(1) - stream.first(0)
    assert (progress.lines, progress.answer, progress.rows) == (5, (3, 3), 3 * day)
    samples = [
        heavy.Sample(9.0 * at, rows, cpu, {}) for at, (rows, cpu) in enumerate([(0, 5), (day, 9), (3 * day, 11)])
    ]
    outcome = heavy.Outcome(samples, state_bytes=7, answer=(3, 3))
    assert outcome.micros(1, 3 * day) == pytest.approx(2e6 / (2 * day))
    assert outcome.micros(1, 4 * day) is None
    outcome.write(tmp_path / "kept.json")
    assert heavy.Outcome.read(tmp_path / "kept.json") == outcome


def test_a_contender_that_was_measured_before_keeps_its_line(
    heavy: ModuleType, clicks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the folder of its rows is gone; one that is measured again has a new line."""
    stream, kept = clicks.Clicks(10_000, heavy.DAYS), tmp_path / "new" / "lines.json"
    day = stream.first(1) - stream.first(0)
    found: list[tuple[list[str], list[str]]] = []

    class Told(heavy.Suite):
        def finding(self, title: str, text: str, *, plots: object = ()) -> None:
            assert title.endswith("10,000 held")
            found[-1][1].extend(line.split("|")[1].strip() for line in text.splitlines()[4:])

        def save(self, folder: Path = tmp_path) -> None:
            pass

    def draw(name: str, lines: dict[str, object], *labels: str, **axes: object) -> str:
        found.append((list(lines), []))
        return name

    monkeypatch.setattr(heavy, "draw", draw)

    def measured(name: str, megabytes: int) -> None:
        samples = [heavy.Sample(at, at * day, at, {"JVM": megabytes << 20}) for at in range(4)]
        heavy.report(Told("some", 1), stream, {name: heavy.Outcome(samples, answer=(megabytes, 1))}, kept)

    measured("flink-own", 3)
    measured("spark-ours", 5)
    measured("flink-own", 7)
    ours, own = heavy.CONTENDERS["spark-ours"], heavy.CONTENDERS["flink-own"]
    assert found == [([own], [own]), ([ours, own], [ours, own]), ([ours, own], [ours, own])]
    lines = json.loads(kept.read_text())["10000"]
    assert lines["flink-own"]["line"][-1] == "7 pairs"
    assert lines["flink-own"]["memory"] == [[1, 7.0], [2, 7.0], [3, 7.0]]
