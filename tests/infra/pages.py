"""The code blocks of pages: they run in order, and print what the page shows."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_blocks(page: str, names: dict[str, Any], without: str | None = None) -> int:
    """Run the Python blocks of a page with these names, but for those with a word; how many outputs agreed.

    A block's output is the text block that follows it. Raises AssertionError for another output.
    """
    blocks = FENCE.findall((DOCS / page).read_text())
    agreed = 0
    for (language, code), (after, shown) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if language != "python" or (without and without in code):
            continue
        printed = StringIO()
        with redirect_stdout(printed):
            exec(code, names)
        if after == "text":
            assert printed.getvalue().split() == shown.split(), f"{page} prints\n{printed.getvalue()}"
            agreed += 1
    return agreed
