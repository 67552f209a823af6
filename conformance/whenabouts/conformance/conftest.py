"""Makes the suite's options and fixtures known wherever it is collected from."""

from whenabouts.conformance.options import pytest_addoption
from whenabouts.conformance.plugin import (
    engine,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_generate_tests,
)

__all__ = [
    "engine",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_generate_tests",
]
