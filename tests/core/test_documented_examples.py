"""The examples of the pages that show what a call prints."""

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


PAGES = (
    "asof-join.md", "clock-bounds.md", "clocks.md", "coalescing.md", "coming-from-merge-asof.md",
    "coming-from-pyranges.md", "join-aggregate.md", "modes.md", "ntp-bounds.md", "profile.md", "tutorial.md",
    "why-and-chance.md",
)  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_a_page_prints_what_it_shows(page: str) -> None:
    failures, tried = doctest.testfile(
        str(DOCS / page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert (failures, tried > 0) == (0, True)
