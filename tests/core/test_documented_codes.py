"""docs/operations.md says for every error code what to do."""

from __future__ import annotations

import re
from pathlib import Path

from whenabouts.core.errors import Code

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


def test_the_page_for_operators_knows_every_code_and_no_other() -> None:
    rows = [line.split("|")[1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| WA-")]
    told = [code for row in rows for code in re.findall(r"WA-\d{4}", row)]
    assert sorted(told) == sorted(Code)
