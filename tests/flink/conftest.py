"""Tests of the Flink adapter are collected only if Flink is installed (it has no release for every Python)."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("pyflink") else ["*.py"]


@pytest.fixture(autouse=True, scope="session")
def _flink() -> Iterator[None]:
    """The JVM, started once. Objects that Flink's client leaves to the garbage collector are not reported."""
    from whenabouts.flink_plugin.harness import FlinkHarness

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        FlinkHarness().start()
        yield
        gc.collect()


@pytest.fixture(autouse=True)
def _no_workers() -> Iterator[None]:
    """No worker of a test's jobs outlives the test."""
    from whenabouts.flink_plugin.harness import forget_workers

    before = dict(os.environ)
    yield
    forget_workers(before)
