"""The suite as a pytest plugin: laws for every engine, gaps as strict xfail, the table of laws x engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from whenabouts.conformance import engine as engines
from whenabouts.conformance import law_table
from whenabouts.conformance.engine import Engine
from whenabouts.core.harness import Harness, LocalHarness

_DEFAULT = "whenabouts.core.harness:LocalHarness"
_HERE = Path(__file__).parent
_LAW = "whenabouts.law"
"""The user property of a report that names the law and the engine: reports come from other processes under xdist."""
_HARNESSES = pytest.StashKey[dict[str, type[Harness]]]()


def _harnesses(config: pytest.Config) -> dict[str, type[Harness]]:
    """The harness classes under test, by the name that the user gave."""
    if _HARNESSES not in config.stash:
        try:
            names = config.getoption("--engine", None) or [_DEFAULT]
            config.stash[_HARNESSES] = {name: engines.load(name) for name in names}
        except engines.UnknownEngineError as error:
            raise pytest.UsageError(str(error)) from error
    return config.stash[_HARNESSES]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every law runs for every engine."""
    if "engine" in metafunc.fixturenames:
        harnesses = _harnesses(metafunc.config)
        ids = [harness.name for harness in harnesses.values()]
        metafunc.parametrize("engine", list(harnesses), ids=ids, indirect=True, scope="session")


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine, started once."""
    harness = _harnesses(request.config)[request.param]()
    harness.start()
    yield Engine(harness)
    harness.stop()


def pytest_configure(config: pytest.Config) -> None:
    """Make the suite's markers known where its options are not read from this project."""
    config.addinivalue_line("markers", "slow: needs an engine that takes long to start")
    config.addinivalue_line("markers", "full: run where there is an hour")
    config.addinivalue_line("markers", "exhaustive: run where there are hours")
    config.addinivalue_line("markers", "hosting: its truth depends on how the engine hosts operators")
    config.addinivalue_line("markers", "canary: one case of its operator, for engines that are slow to start")
    config.addinivalue_line("markers", "similar: one of many like cases; `full` or `exhaustive` on such an engine")
    config.pluginmanager.register(_Results(config))


CASES_OF_A_LAW = 1
"""Of a law that depends on the core only, an engine in other processes runs so many cases in `make test-full`."""

FAST_CASES_OF_A_LAW = 4
"""Of the similar cases of a law, the local engine runs so many in `make test-fast`, and all in `make test`."""


def law_of(item: pytest.Item) -> str:
    """The law that a test item checks: its function's name without `test_`."""
    return getattr(item, "originalname", item.name).removeprefix("test_")


def _when(item: pytest.Item) -> str | None:
    """The marker of a law's case on an engine with slow job starts; None: it always runs.

    Laws of hosting and one case of each operator run every time. The other laws depend on the core, which is the same
    on all engines.
    """
    hosting, similar, canary = (item.get_closest_marker(name) for name in ("hosting", "similar", "canary"))
    if canary or (hosting and not similar):
        return None
    return "full" if hosting or not similar else "exhaustive"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Declared gaps are strict expected failures: a gap that has closed fails until it is removed."""
    often: Counter[tuple[str, str]] = Counter()
    harnesses = _harnesses(config).values()
    simulated = [each for each in harnesses if each.capabilities.in_process and each is not LocalHarness]
    elsewhere = [each for each in harnesses if not each.capabilities.in_process]
    takes_turns, turns = config.getoption("--laws-take-turns", False), dict[str, int]()
    for item in items:
        spec = getattr(item, "callspec", None)
        if item.path.parent != _HERE or spec is None or "engine" not in spec.params:
            continue
        harness = _harnesses(config)[spec.params["engine"]]
        item.user_properties.append((_LAW, (law_of(item), harness.name)))
        when = _when(item)
        if when == "full" and not harness.capabilities.in_process:
            often[harness.name, law_of(item)] += 1
            turn = turns.setdefault(law_of(item), len(turns)) % len(elsewhere)
            is_anothers = takes_turns and not item.get_closest_marker("hosting") and elsewhere[turn] is not harness
            if often[harness.name, law_of(item)] > CASES_OF_A_LAW or is_anothers:
                when = "exhaustive"
        if harness is LocalHarness and item.get_closest_marker("similar"):
            often[harness.name, law_of(item)] += 1
            if often[harness.name, law_of(item)] > FAST_CASES_OF_A_LAW:
                item.add_marker("slow")
        elif when == "exhaustive" and harness in simulated:
            # Simulated engines take turns: of the similar cases, each runs on one of them in `make test-full`.
            turn = often[harness.name, law_of(item)] % len(simulated)
            often[harness.name, law_of(item)] += 1
            item.add_marker("full" if simulated[turn] is harness else "exhaustive")
        elif when is not None and harness is not LocalHarness:
            item.add_marker("slow" if harness in simulated else when)
        if not harness.capabilities.in_process:
            item.add_marker("slow")
            # Sockets to an engine are closed when its process ends; that warning breaks no law.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))
            # A failure that a law causes may happen in a thread of the engine; the law checks its effect.
            item.add_marker(
                pytest.mark.filterwarnings("ignore:Exception in thread:pytest.PytestUnhandledThreadExceptionWarning")
            )
        gap = harness.capabilities.gaps.get(law_of(item))
        if gap is not None:
            item.add_marker(pytest.mark.xfail(strict=True, reason=f"{gap.kind}: {gap.reason} ({gap.issue})"))
    _refuse_gaps_in_no_law(config)


def _refuse_gaps_in_no_law(config: pytest.Config) -> None:
    known = {law.name for law in law_table.laws()}
    for harness in _harnesses(config).values():
        unknown = sorted(set(harness.capabilities.gaps) - known)
        if unknown:
            raise pytest.UsageError(f"{harness.name} declares gaps in laws that do not exist: {', '.join(unknown)}")


class _Results:
    """The results of each law on each engine, and their table if it is asked for."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._found: dict[tuple[str, str], set[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a test's outcome, from whichever process."""
        laws = [
            tuple(value) for name, value in report.user_properties if name == _LAW and isinstance(value, list | tuple)
        ]
        if laws and (report.when == "call" or report.failed):
            word = "gap" if report.skipped and hasattr(report, "wasxfail") else report.outcome
            self._found.setdefault(laws[0], set()).add(word)

    def pytest_sessionfinish(self) -> None:
        """Write the table."""
        path = self._config.getoption("--conformance-table", None)
        if path and not hasattr(self._config, "workerinput"):  # under xdist, the process that receives all results
            harnesses = _harnesses(self._config).values()
            gaps = {harness.name: harness.capabilities.gaps for harness in harnesses}
            law_table.write(Path(path), self._found, [harness.name for harness in harnesses], gaps)
