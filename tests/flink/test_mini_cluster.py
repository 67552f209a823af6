"""The JVM of a process runs any number of jobs."""

from __future__ import annotations

import os

import pytest
from pyflink.common import Types
from pyflink.java_gateway import get_gateway

from whenabouts.flink_plugin import mini_cluster
from whenabouts.flink_plugin.mini_cluster import THREAD, local_environment, start_jvm


def _run_a_job() -> None:
    rows = local_environment(1, mode=THREAD).from_collection([1, 2], Types.LONG())
    with rows.execute_and_collect() as found:
        assert list(found) == [1, 2]


@pytest.mark.slow
def test_jobs_leave_no_threads_behind_that_keep_their_classes() -> None:
    for _ in range(4):
        _run_a_job()
    threads = get_gateway().jvm.java.lang.Thread.getAllStackTraces().keySet()
    names = [thread.getName() for thread in threads.toArray()]
    assert sum(name.startswith("Log4j2") for name in names) <= 1, names


@pytest.mark.parametrize("own", [None, "", "-Xmx1g -Dlog4j2.contextSelector=mine"])
def test_options_of_the_user_are_kept_and_come_last(monkeypatch: pytest.MonkeyPatch, own: str | None) -> None:
    if own is None:
        monkeypatch.delenv("JVM_ARGS", raising=False)
    else:
        monkeypatch.setenv("JVM_ARGS", own)
    given: list[str] = []
    monkeypatch.setattr(mini_cluster, "get_gateway", lambda: given.append(os.environ["JVM_ARGS"]))
    start_jvm()
    (options,) = given
    assert options.startswith("-Dlog4j2.contextSelector=org.apache.logging.log4j.core.selector.BasicContextSelector ")
    assert options.endswith(own or " ")
    assert os.environ.get("JVM_ARGS") == own


def test_the_variable_is_as_before_if_the_jvm_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JVM_ARGS", "-Xmx1g")

    def fails() -> None:
        raise RuntimeError("no JVM")

    monkeypatch.setattr(mini_cluster, "get_gateway", fails)
    with pytest.raises(RuntimeError, match="no JVM"):
        start_jvm()
    assert os.environ["JVM_ARGS"] == "-Xmx1g"
