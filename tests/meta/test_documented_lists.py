"""Lists in the documentation are complete: what has a name in the code has a row or a word on its page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from whenabouts.core.clocks.profile.findings import Kind

DOCS = Path(__file__).parents[2] / "docs"


def _section(page: str, heading: str) -> str:
    """The text under a heading, to the next one of its level or above."""
    text = (DOCS / page).read_text(encoding="utf-8")
    level = heading.split(" ")[0]
    begin = text.index(f"\n{heading}\n") + len(heading) + 2
    end = re.search(rf"^#{{1,{len(level)}}} ", text[begin:], re.MULTILINE)
    return text[begin:] if end is None else text[begin : begin + end.start()]


def _first_cells(text: str) -> set[str]:
    """The names in backticks that the first cells of a table have."""
    cells = re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_every_kind_of_finding_has_a_row() -> None:
    assert _first_cells(_section("profile.md", "## What it looks for")) == set(get_args(Kind))
