"""The suite's command line options, and nothing else: pytest loads this module in every session (entry point)."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--engine` and the others, once, however this module was found."""
    group = parser.getgroup("whenabouts.conformance")
    try:
        group.addoption(
            "--engine", action="append", metavar="NAME",
            help="engine to test (repeatable): its entry point in whenabouts.conformance.engines, or module:Class",
        )  # fmt: skip
    except ValueError:  # a conftest in the checkout and the entry point of an installation may both load it
        return
    group.addoption(
        "--laws-take-turns", action="store_true",
        help="run each law of the core on only one of the engines that are in other processes",
    )  # fmt: skip
    group.addoption("--conformance-table", metavar="PATH", help="write the table of laws x engines to a Markdown file")
