"""Lets `pytest --engine ...` work in a checkout that is not installed; an installation has an entry point for it.

Under pytest-xdist the laws of one engine stay in one process, which starts it once, and its own tests in another.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import settings

from whenabouts.conformance.options import pytest_addoption

__all__ = ["pytest_addoption"]

# How long an example takes hangs on the machine and on what else it does.
settings.register_profile("whenabouts", deadline=None)
settings.register_profile("fast", deadline=None, max_examples=20)  # make test-fast
settings.load_profile("whenabouts")

# What only newer Sparks have cannot be imported under older ones, and has no doctests to lose.
_NEWER_SPARK = bool(find_spec("pyspark")) and bool(find_spec("pyspark.sql.streaming.datasource"))
collect_ignore_glob = [] if _NEWER_SPARK else ["spark_plugin/whenabouts/spark_plugin/admitted_replay.py"]

_OF_AN_ENGINE = re.compile(r"[\[-](spark|flink)[-\]]|tests/(spark|flink|faults)/")


def group_of(nodeid: str) -> str:
    """What shares a process: the laws, or the other tests, of the engine that a test needs, by its folder or parameter;
    a test that needs none is a group of its own."""
    found = _OF_AN_ENGINE.search(nodeid)
    if found is None:
        return nodeid
    engine = (found[1] or found[2]).replace("faults", "spark")
    return f"{engine}, {'laws' if nodeid.startswith('conformance/') else 'tests'}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class ByEngine(LoadScopeScheduling):  # type: ignore[misc,unused-ignore]  # not typed
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByEngine(config, log)
