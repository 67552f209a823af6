"""Lets `pytest --engine ...` work in a checkout that is not installed; an installation has an entry point for it."""

from whenabouts.conformance.options import pytest_addoption

__all__ = ["pytest_addoption"]
