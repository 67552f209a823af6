"""Tests of the Flink adapter are collected where there is a Flink (it has no release for every Python)."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("pyflink") else ["test_*.py"]


@pytest.fixture(autouse=True, scope="session")
def _flink() -> Iterator[None]:
    """The JVM, started once; what Flink's client leaves to the garbage collector is nobody's fault here."""
    from whenabouts.flink_plugin.harness import FlinkHarness

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        FlinkHarness().start()
        yield
        gc.collect()


@pytest.fixture(autouse=True)
def _no_workers() -> Iterator[None]:
    """A test leaves nothing of its jobs behind."""
    from whenabouts.flink_plugin.harness import forget_workers

    yield
    forget_workers()
