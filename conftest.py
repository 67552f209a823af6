"""Lets `pytest --engine ...` work in a checkout that is not installed; an installation has an entry point for it."""

from pathlib import Path

import pytest

from whenabouts.conformance.options import pytest_addoption

__all__ = ["pytest_addoption"]

_OF_AN_ENGINE = {"tests/spark": "spark", "tests/faults": "spark", "tests/flink": "flink"}
_HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "xdist_group(name): pytest-xdist runs tests of one group in one process")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one engine stay in one process, which starts it once."""
    for item in items:
        folder = item.path.parent.relative_to(_HERE).as_posix() if item.path.is_relative_to(_HERE) else ""
        if folder in _OF_AN_ENGINE:
            item.add_marker(pytest.mark.xdist_group(_OF_AN_ENGINE[folder]))
