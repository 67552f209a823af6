"""Lets `pytest --engine ...` work in a checkout that is not installed; an installation has an entry point for it.

Under pytest-xdist each worker keeps to one engine while that engine has tests: it starts it once, and both are busy.
A test that hangs there is run once more, in a new worker.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Collection, Iterable
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import settings

from whenabouts.conformance.options import pytest_addoption

__all__ = ["pytest_addoption"]

# How long an example takes depends on the machine and on what else it does.
settings.register_profile("whenabouts", deadline=None)
settings.register_profile("fast", deadline=None, max_examples=20)  # make test-fast
settings.load_profile("whenabouts")

# A program that a test starts ends by Ctrl-C even where these tests ignore it (nohup, a shell's background): a program
# inherits what is ignored, not what is handled.
for _signal in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, lambda *_: None)

# What only newer Sparks have cannot be imported under older ones, and has no doctests to lose.
_NEWER_SPARK = bool(find_spec("pyspark")) and bool(find_spec("pyspark.sql.streaming.datasource"))
collect_ignore_glob = [] if _NEWER_SPARK else ["spark_plugin/whenabouts/spark_plugin/admitted_replay.py"]

_ENGINE = re.compile(r"(?<!simulated)[\[-](spark|flink)[-\]]|tests/(spark|flink|faults)/")

_LONGEST_FIRST = ("tests/spark", "conformance", "tests/meta", "tests/core", "tests", "")


def group_of(nodeid: str) -> str:
    """The tests that run in one worker, in order: those of a file that need the same engine, or none.

    >>> group_of("tests/cli/test_engines.py::test_a[spark-x]"), group_of("tests/core/test_keys.py::test_b")
    ('spark: tests/cli/test_engines.py', 'tests/core/test_keys.py')
    >>> group_of("conformance/test_modes.py::test_c[simulated-spark-x]")
    'conformance/test_modes.py'
    """
    file, found = nodeid.partition("::")[0], _ENGINE.search(nodeid)
    return f"{(found[1] or found[2]).replace('faults', 'spark')}: {file}" if found else file


def next_group(waiting: Iterable[str], own: Collection[str], others: Collection[str]) -> str:
    """What a worker takes on: its engine's tests, an engine that no worker has, tests without one, another's engine.

    `own` and `others`: the groups that it and the other workers have had. Longest first, as far as paths tell.

    >>> next_group(["spark: a", "spark: b", "flink: a", "c"], own=[], others=["spark: d"])
    'flink: a'
    >>> next_group(["spark: a", "c"], own=["flink: a"], others=["spark: d"])
    'c'
    """
    mine, theirs = ({group.partition(": ")[0] for group in groups if ": " in group} for groups in (own, others))

    def rank(group: str) -> tuple[int, int]:
        engine, _, file = group.rpartition(": ")
        turn = 2 if not engine else 0 if engine in mine else 1 if engine not in theirs else 3
        return turn, next(place for place, start in enumerate(_LONGEST_FIRST) if file.startswith(start))

    return min(waiting, key=rank)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a fast run no test looks at more examples than the profile says, whatever it says itself."""
    if config.getoption("--hypothesis-profile", None) != "fast":
        return
    for item in items:
        test = getattr(getattr(item, "obj", None), "__func__", getattr(item, "obj", None))
        own = getattr(test, "_hypothesis_internal_use_settings", None)
        if own is not None:
            fewer = min(own.max_examples, settings().max_examples)
            test._hypothesis_internal_use_settings = settings(own, max_examples=fewer)


class Hangs:
    """Lets a test that hung run once more; one that breaks its worker in any other way fails.

    The worker of a test that hangs prints the stacks of its threads and ends. pytest-xdist starts a new one, as often
    as `--max-worker-restart` says, and hands out again what was not done. The result of the second run counts.
    """

    def __init__(self, config: pytest.Config) -> None:
        ends = config.pluginmanager.hasplugin("faulthandler") and config.getini("faulthandler_exit_on_timeout")
        self._seconds = float(config.getini("faulthandler_timeout")) if ends else 0.0
        self._most = int(config.getoption("maxworkerrestart", None) or 0)
        self._begun, self._ended, self._to_run = dict[str, float](), 0, set[str]()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._begun[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._to_run.discard(nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object | None) -> None:
        self._ended += error is not None

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> None:
        taken = time.monotonic() - self._begun.pop(crashitem, time.monotonic())
        # Messages take a while, so that a test seems to begin later than it did.
        if 0 < 0.9 * self._seconds <= taken and self._ended <= self._most:
            self._to_run.add(crashitem)
            report.outcome = "hung"

    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        return ("hung once", "H", "HUNG") if report.outcome == "hung" else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._to_run:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for report in terminalreporter.stats.get("hung once", ()):
            then = "did not run" if report.nodeid in self._to_run else "ran"
            terminalreporter.write_line(f"HUNG {report.nodeid}, and {then} once more: its stacks are above")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Hangs(config), "whenabouts-hangs")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class ByEngine(LoadScopeScheduling):  # type: ignore[misc,unused-ignore]  # not typed
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            others = [group for other, groups in self.assigned_work.items() if other is not node for group in groups]
            group = next_group(self.workqueue, self.assigned_work[node], others)
            self.workqueue.move_to_end(group, last=False)
            super()._assign_work_unit(node)

        def _reschedule(self, node: Any) -> None:
            # A worker runs a test when it has the next one too. It would wait forever where its only new group has one
            # test, or none to do: all groups of a worker that ended are handed out again, also those that are done.
            super()._reschedule(node)
            while self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
                self._assign_work_unit(node)

    config.option.loadscopereorder = False
    return ByEngine(config, log)
