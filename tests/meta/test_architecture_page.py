"""The files that the architecture page names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORE = ROOT / "core" / "whenabouts" / "core"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_file_on_the_page_is_there() -> None:
    named = set(re.findall(r"`([a-z_/]+/[a-z_]+\.py)`", PAGE))
    assert len(named) > 40
    assert {name for name in named if not (CORE / name).is_file() and not (ROOT / name).is_file()} == set()


def test_every_package_is_on_the_page() -> None:
    listed = set(re.findall(r"^\| `([a-z_]+)` \|", PAGE, re.MULTILINE))
    assert listed == {path.parent.name for path in CORE.glob("*/__init__.py")}
