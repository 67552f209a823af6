"""Which cases of the laws run on an engine that is slow to start: hosting and canaries always, the others in time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import lru_cache
from pathlib import Path

import pytest

from whenabouts.conformance.law_table import laws
from whenabouts.core.harness import Capabilities, LocalHarness

HERE = Path(__file__).parent
ENGINES = ("whenabouts.core.harness:LocalHarness", "test_laws_in_each_run:StartsSlowly")
RUNS = {"test": "not full and not exhaustive", "rest": "full and not exhaustive", "exhaustive": "exhaustive"}

OPERATORS = {
    "timing join": "oracle_pairs_on_streams",
    "window join": "oracle_combinations_on_streams",
    "coalescing": "oracle_coalescing",
    "temporal join and aggregate": "differential_temporal_queries",
    "shared coalescing": "differential_schemes_decided_in_the_job",
}
HOSTING = (
    "batch_and_stream", "parallelism_on_streams", "arrival_orders", "block_sizes", "restart", "end_of_input",
    "late_rows", "event_time", "bounded_state", "rejects", "accounting", "idle_side", "repeats", "empty_inputs",
    "restart_of_combinations", "late_rows_of_combinations", "modes_restarted", "time_slots_on_streams",
)  # fmt: skip


class StartsSlowly(LocalHarness):
    """The local engine, as an engine of the kind that runs in other processes."""

    name = "slow"
    capabilities = Capabilities()


@lru_cache
def _collected(run: str) -> list[tuple[str, str]]:
    """The engine and the law of each case in a run."""
    engines = [option for engine in ENGINES for option in ("--engine", engine)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", RUNS[run], *engines, "conformance"],
        capture_output=True, text=True, cwd=HERE.parents[1], check=False, timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])},
    )  # fmt: skip
    nodes = [line.partition("::test_")[2].partition("[") for line in done.stdout.splitlines() if "::test_" in line]
    found = [(case.partition("-")[0].rstrip("]"), law) for law, _, case in nodes]
    return [(engine, law) for engine, law in found if engine in ("local", "slow")]


def _laws(engine: str, *runs: str) -> Counter[str]:
    return Counter(law for run in runs for of, law in _collected(run) if of == engine)


def test_an_engine_in_process_runs_every_case_of_every_law_in_every_run() -> None:
    assert _laws("local", "test") == _laws("slow", *RUNS)
    assert not _laws("local", "rest", "exhaustive")


def test_every_law_runs_on_every_engine_in_a_full_run() -> None:
    assert set(_laws("slow", "test", "rest")) == {law.name for law in laws()}


@pytest.mark.parametrize("operator", OPERATORS)
def test_each_operator_has_its_canary(operator: str) -> None:
    assert 1 <= _laws("slow", "test")[OPERATORS[operator]] <= 2


@pytest.mark.parametrize("law", HOSTING)
def test_what_hosting_decides_runs_always(law: str) -> None:
    found = _laws("slow", "test")
    assert 1 <= found[f"oracle_{law}"] + found[f"differential_{law}"] <= 4


def test_a_quick_run_is_quick() -> None:
    assert 20 < _laws("slow", "test").total() < 50
