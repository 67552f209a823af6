"""Reports of profiles and clocks as text, dict, page and figure: whole, however few rows there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest

import whenabouts as wa

START = 1_700_000_000_000_000
COLUMNS: dict[str, list[int | None]] = {
    "none": [], "one": [START], "two equal": [START, START], "nulls": [None] * 5, "sentinels": [0] * 30,
    "equal": [START] * 50, "usual": [START + 7 * n * n for n in range(50)],
}  # fmt: skip


def pictures(report: Any, folder: Path) -> int:
    """How many pictures the page has, each of which must be whole and show something; text and dict must be, too."""
    assert str(report).startswith(report.sentence)
    json.dumps(report.to_dict(), allow_nan=False)
    assert report._repr_html_()
    report.to_html(folder / "page.html")
    page = (folder / "page.html").read_text()
    assert "<script" not in page
    assert not re.findall(r"(?:href|src)=", page)
    drawn = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    for picture in drawn:
        assert list(ElementTree.fromstring(picture))
        assert not re.search(r"\b(nan|inf)\b", picture)
    return len(drawn)


@pytest.mark.parametrize("column", COLUMNS)
def test_a_profile_of_few_rows_has_whole_reports(column: str, tmp_path: Path) -> None:
    found = wa.profile(pa.table({"t": pa.array(COLUMNS[column], pa.int64())}), "t")
    assert pictures(found, tmp_path) == (0 if column in ("none", "nulls", "sentinels") else 2)
    pytest.importorskip("matplotlib")
    assert found.plot()._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize(("rows", "delays"), [(0, 1), (1, 1), (300, 1), (300, 2), (300, 300)])
def test_a_clock_has_whole_reports(rows: int, delays: int, tmp_path: Path) -> None:
    t = START + 1_000_003 * np.arange(rows) ** 2 // 100
    late = np.random.default_rng(0).integers(0, delays, rows) * 1_000 + 500
    sides = pa.table({"id": np.arange(rows), "t": t}), pa.table({"id": np.arange(rows), "u": t + late})
    clock = wa.learn_delay(*sides, on="id", left_time="t", right_time="u")
    assert pictures(clock, tmp_path) == int(clock.found) == int(rows > 1)
    pytest.importorskip("matplotlib")
    if clock.found:
        assert clock.plot()._repr_png_().startswith(b"\x89PNG")
