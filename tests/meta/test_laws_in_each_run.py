"""Which cases of the laws run on an engine that is slow to start: hosting and canaries always, others in longer
runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import pytest

from whenabouts.conformance.law_table import laws
from whenabouts.core.harness import Capabilities, LocalHarness

HERE = Path(__file__).parent
ENGINES = (
    "whenabouts.core.harness:LocalHarness", "test_laws_in_each_run:InProcess", "test_laws_in_each_run:StartsSlowly",
    "test_laws_in_each_run:AlsoStartsSlowly",
)  # fmt: skip
RUNS = {"exhaustive": "exhaustive", "full": "full", "slow": "test"}
"""The make target that runs the cases with a mark: the first mark counts."""

pytestmark = pytest.mark.slow

OPERATORS = {
    "timing join": "oracle_pairs_on_streams",
    "window join": "oracle_combinations_on_streams",
    "as-of join of streams": "oracle_asof_streams",
    "join aggregate": "oracle_aggregate_streams",
    "coalescing": "oracle_coalescing",
    "temporal join and aggregate": "differential_temporal_queries",
    "watched clocks": "oracle_watched_clocks",
    "shared coalescing": "differential_schemes_decided_in_the_job",
}
HOSTING = (
    "restart", "end_of_input", "late_rows", "event_time", "rejects", "accounting", "idle_side", "empty_inputs",
)  # fmt: skip


class InProcess(LocalHarness):
    """The local engine under another name."""

    name = "simulated"


class StartsSlowly(LocalHarness):
    """The local engine, declared as an engine that runs in other processes."""

    name = "slow"
    capabilities = Capabilities()


class AlsoStartsSlowly(StartsSlowly):
    """Another one."""

    name = "slow_too"


def pytest_collection_finish(session: pytest.Session) -> None:
    """This module is a plugin of the run that it starts: which engine, law and marks each case has."""
    for item in session.items:
        if hasattr(item, "callspec") and "engine" in item.callspec.params:
            marks = [mark.name for mark in item.iter_markers() if mark.name in ("slow", "full", "exhaustive")]
            print("case", item.callspec.id.partition("-")[0], item.originalname, *marks)  # type: ignore[attr-defined] # noqa: T201


@lru_cache
def _collected(*options: str) -> list[tuple[str, str, str]]:
    """The engine of each case, its law, and the first run that has it."""
    engines = [option for engine in ENGINES for option in ("--engine", engine)]
    collect = ["pytest", "--collect-only", "-qq", "-p", "test_laws_in_each_run"]
    done = subprocess.run(
        [sys.executable, "-m", *collect, *engines, *options, "conformance"],
        capture_output=True, text=True, cwd=HERE.parents[1], check=False, timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])},
    )  # fmt: skip
    cases = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("case ")]
    assert cases, done.stdout + done.stderr
    return [(engine, law.removeprefix("test_"), _first_run(marks)) for engine, law, *marks in cases]


def _first_run(marks: Sequence[str]) -> str:
    return next((run for mark, run in RUNS.items() if mark in marks), "fast")


def _laws(engine: str, *runs: str, options: Sequence[str] = ()) -> Counter[str]:
    runs = runs or ("fast", *RUNS.values())
    return Counter(law for of, law, run in _collected(*options) if of == engine and run in runs)


def test_every_law_runs_in_process_in_make_test_and_every_case_of_it_on_the_local_engine() -> None:
    assert _laws("local", "fast", "test") == _laws("simulated") == _laws("slow")
    assert set(_laws("local", "fast")) == set(_laws("local"))
    assert set(_laws("simulated", "fast", "test")) == set(_laws("local"))


def test_an_engine_in_process_runs_fast_what_others_run_in_make_test() -> None:
    assert _laws("simulated", "fast") == _laws("slow", "test")
    assert not _laws("slow", "fast")


def test_every_law_runs_on_every_engine_in_a_full_run() -> None:
    assert set(_laws("slow", "test", "full")) == {law.name for law in laws()}


def test_engines_take_turns_with_the_laws_of_the_core_if_asked_to() -> None:
    alone, shared = (
        [_laws(engine, "full", options=options) for engine in ("slow", "slow_too")]
        for options in ((), ["--laws-take-turns"])
    )
    assert alone[0] == alone[1]
    of_hosting = shared[0] & shared[1]
    of_core = [each - of_hosting for each in shared]
    assert sum(of_core, of_hosting) == alone[0], "each on one of them"
    assert abs(of_core[0].total() - of_core[1].total()) < 5
    assert of_core[0].total() > 50
    for engine in ("slow", "slow_too"):
        assert _laws(engine, "test", options=["--laws-take-turns"]) == _laws(engine, "test")


@pytest.mark.parametrize("operator", OPERATORS)
def test_each_operator_has_its_canary(operator: str) -> None:
    assert 1 <= _laws("slow", "test")[OPERATORS[operator]] <= 2


@pytest.mark.parametrize("law", HOSTING)
def test_what_hosting_decides_runs_always(law: str) -> None:
    found = _laws("slow", "test")
    assert 1 <= found[f"oracle_{law}"] + found[f"differential_{law}"] <= 4


def test_a_quick_run_is_quick() -> None:
    assert 15 < _laws("slow", "test").total() < 30
