"""Tests of the suite itself: an engine with one fault must fail the law about it."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent

pytestmark = [pytest.mark.slow, pytest.mark.full]

# Broken engine -> the law that must fail, and the parameters under which it must.
MUST_FAIL = {
    "DropsLateRows": ("test_streams", "oracle_late_rows", "wide-auto"),
    "NeverCallsARowLate": ("test_streams", "oracle_late_rows", "malformed-lazy"),
    "EvictsTooEarly": ("test_streams", "oracle_latest_partners", "half-auto-intervals"),
    "NeverEvicts": ("test_streams", "oracle_bounded_state", "auto-intervals"),
    "PairsTwice": ("test_timing_join", "oracle_pairs", "ties-simple"),
    "GivesFewRows": ("test_timing_join", "differential_lower_confidence", "ties"),
    "ReplaysTwice": ("test_streams", "differential_restart", "malformed-auto-2"),
    "LosesState": ("test_streams", "differential_restart", "malformed-lazy-1"),
    "ForgetsDuplicates": ("test_timing_join", "oracle_pairs", "wide-auto"),
    "RoundsProbability": ("test_timing_join", "oracle_probability", "realistic"),
    "LosesABit": ("test_streams", "differential_batch_and_stream", "wide"),
    "NullsMeet": ("test_timing_join", "oracle_pairs", "narrow-eager"),
    "NaNsDoNotMeet": ("test_timing_join", "oracle_pairs", "certain-auto"),
    "OneStrategy": ("test_counters", "oracle_five_strategies", ""),
    "WaitsForNoBlock": ("test_counters", "oracle_blocks_on_streams", "130-lazy"),
    "WaitsForWholeInput": ("test_counters", "oracle_blocks_on_streams", "90-lazy_lookup"),
    "WaitsTooLong": ("test_counters", "oracle_time_ends_a_block", "8 s-False"),
    "ForgetsWaitingRows": ("test_streams", "oracle_end_of_input", ""),
    "RejectsUnderOneCode": ("test_rejects", "oracle_rejects", "batch-malformed"),
    "LosesRejects": ("test_rejects", "oracle_accounting", "stream-malformed"),
    "PartsKeys": ("test_timing_join", "differential_parallelism", "ties"),
    "IgnoresLaterFiles": ("test_timing_join", "differential_files", "ties-5-1"),
    "EarlierEventTime": ("test_streams", "oracle_event_time", "wide"),
    "DropsAColumn": ("test_timing_join", "oracle_columns", "ties"),
    "EvictsHistogramsTooEarly": ("test_streams", "oracle_latest_partners", "half-auto-histograms"),
    "KnowsOneTemplate": ("test_timing_join", "oracle_pairs", "histograms-auto"),
    "SwapsTemplatesOnRestart": ("test_streams", "differential_restart", "malformed histograms-lazy-1"),
    "TakesUnknownTemplates": ("test_rejects", "oracle_rejects", "stream-malformed histograms"),
    "ProbesWhatIsKnown": ("test_few_shapes", "oracle_probes_of_few_shapes", "histograms-eager"),
    "ProbesOnStreams": ("test_few_shapes", "oracle_no_probe_on_streams", "histograms-auto"),
    "SparesProbes": ("test_few_shapes", "oracle_probes_without_times", "many templates-ssort"),
    "RoundsHistograms": ("test_timing_join", "oracle_probability", "realistic histograms"),
    "LosesABitOfBuckets": ("test_few_shapes", "differential_one_bucket", "False"),
    "CallsRowsAloneEarly": ("test_modes", "oracle_modes_of_latest_partners", "half-left_anti"),
    "IgnoresWhere": ("test_where", "oracle_where", "left_outer-one side"),
    "WidensPossibly": ("test_possibly", "oracle_possibly", "microseconds-full_outer"),
    "ForgetsMatches": ("test_modes", "oracle_modes_on_streams", "ties-full_outer"),
    "TakesTheFirstOfEquals": ("test_modes", "oracle_modes", "ties-inner best left"),
    "FillsNulls": ("test_modes", "oracle_modes", "ties-left_outer"),
    "TakesNothingBack": ("test_coalescing", "oracle_early_answers", "all-stream"),
    "EndsRunsEarly": ("test_coalescing", "oracle_coalescing", "all-stream"),
    "DropsMembersTooEarly": ("test_window_join", "oracle_latest_members", "path-backward"),
    "KeepsMembersForEver": ("test_window_join", "oracle_bounded_state_of_combinations", "forward"),
    "FindsCombinationsTwice": ("test_window_join", "oracle_combinations_on_streams", "directed path-backward"),
    "RefinesNothing": ("test_window_join", "oracle_combinations", "graph-backward-gca-hash"),
    "HasOneAlgorithm": ("test_window_join", "oracle_combination_counters", "uniform clique-forward-none-hash"),
    "ForgetsItsPeriod": ("test_forward_evaluation", "oracle_counters_of_forward_evaluation", "one slow stream-0"),
    "TakesBlocksForTheWhole": ("test_forward_evaluation", "oracle_counters_of_forward_evaluation", "even-1"),
    "LosesBuffers": ("test_forward_evaluation", "differential_restart_of_forward_evaluation", "silent in turn-2"),
    "MultipliesWindows": ("test_window_join", "oracle_joint_probability", "uncertain clique"),
    "OffsetsOfStreamsOneByOne": ("test_window_join", "oracle_joint_probability", "shared clock"),
    "TakesOffsetsOneByOne": ("test_shared_clocks", "oracle_chance_of_one_clock", "points"),
    "IgnoresTheOrderOfAnInstant": ("test_asof_join", "oracle_asof_points", "backward strict-left_outer"),
    "PrefersTheEarlier": ("test_asof_join", "oracle_asof_best", "ties-backward"),
    "RoundsWhatPrevails": ("test_asof_join", "oracle_asof_worlds", "ties-nearest"),
    "RoundsThatNonePrevails": ("test_asof_join", "oracle_asof_sum", "point and interval-forward strict"),
    "HalvesTheConfidence": ("test_asof_join", "oracle_asof_all_is_bounded", "ties-forward"),
    "CopiesTooFew": ("test_asof_join", "differential_asof_time_slots", "points-backward tolerance"),
    "RoundsEqualChances": ("test_asof_invariants", "oracle_asof_equal_intervals", "backward"),
    "NudgesForward": ("test_asof_invariants", "differential_asof_mirror", "histogram and interval- tolerance"),
    "NudgesOddTimes": ("test_asof_invariants", "differential_asof_shift", "ties-backward strict"),
    "NudgesByFarRows": ("test_asof_invariants", "differential_asof_rows_out_of_reach", "nearest"),
    "AnswersLate": ("test_asof_streams", "oracle_asof_settled_in_the_first_step", "nearest"),
    "KeepsRightRows": ("test_asof_streams", "oracle_asof_bounded_state", "5 s"),
    "MultipliesChances": ("test_join_aggregate", "oracle_worked_numbers", ""),
    "ForgetsRowsBeside": ("test_join_aggregate", "oracle_aggregates", "ties"),
    "ForgetsFoldedRows": ("test_join_aggregate_streams", "differential_folding", "ties"),
    "WatchesLessClosely": ("test_watched_clocks", "oracle_watched_clocks", "a learned clock-stream"),
    "ReadsLearnedTimesLate": ("test_derived_times", "oracle_learned_times", "timing-5000-77777777"),
    "NeverFolds": ("test_join_aggregate_streams", "oracle_folded_state_is_bounded", ""),
    "KnowsOneBucket": ("test_coalescing", "oracle_coalescing", "last window-batch, 3 buckets"),
}


def _names() -> dict[str, str]:
    sys.path.insert(0, str(HERE))
    try:
        import broken_engines
    finally:
        sys.path.remove(str(HERE))
    return {name: value.name for name, value in vars(broken_engines).items() if hasattr(value, "capabilities")}


def _suite(*arguments: str) -> subprocess.CompletedProcess[str]:
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=HERE.parents[1], check=False, timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip


def _node(engine: str, module: str, law: str, parameters: str) -> str:
    return f"whenabouts.conformance.{module}::test_{law}[{'-'.join(filter(None, [engine, parameters]))}]"


HONEST = ("HonestGap", "test_timing_join", "oracle_probability", "realistic")
CLOSED = ("ClosedGap", "test_streams", "oracle_end_of_input", "")


class Report(NamedTuple):
    """The results of one run of the suite: the outcome and reason of each test, and the table that it wrote."""

    outcomes: dict[str, str]
    table: list[str]

    def of(self, engine: str, module: str, law: str, parameters: str) -> str:
        return self.outcomes[_node(_names()[engine], module, law, parameters).partition("conformance.")[2]]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """One run of the suite: the tested laws, each for its broken engine and for the correct one."""
    folder = tmp_path_factory.mktemp("report")
    table, xml = folder / "laws.md", folder / "report.xml"
    table.write_text(
        "Before.\n\n<!-- generated: laws -->xyzzy<!-- end of generated text -->\n\nAfter.\n", encoding="utf-8"
    )
    names, engines = _names(), [*MUST_FAIL, "Spoilt", "HonestGap", "ClosedGap"]
    cases = [(engine, *law) for engine, law in MUST_FAIL.items()]
    cases += [("Spoilt", *law) for law in sorted(set(MUST_FAIL.values()))] + [HONEST, CLOSED]
    nodes = [_node(names[engine], *law) for engine, *law in cases]
    options = [option for engine in engines for option in ("--engine", f"broken_engines:{engine}")]
    done = _suite(*nodes, *options, f"--junitxml={xml}", f"--conformance-table={table}")
    found = {}
    for case in ElementTree.parse(xml).iter("testcase") if xml.exists() else ():
        bad = [part for part in case if part.tag in ("failure", "error", "skipped")]
        told = "".join(f"{part.tag}\n{part.get('message')}\n{part.text}" for part in bad) or "passed"
        found[f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"] = told
    assert len(found) == len(nodes), done.stdout + done.stderr
    return Report(found, table.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("engine", MUST_FAIL)
def test_a_broken_engine_fails_the_law_that_speaks_of_it(engine: str, report: Report) -> None:
    told = report.of(engine, *MUST_FAIL[engine])
    assert told.startswith("failure")
    assert "AssertionError" in told, "it fails by the law, not by an accident"


@pytest.mark.parametrize("law", sorted(set(MUST_FAIL.values())))
def test_the_whole_engine_keeps_it(law: tuple[str, str, str], report: Report) -> None:
    assert report.of("Spoilt", *law) == "passed"


def test_a_gap_that_is_there_is_expected_and_a_closed_one_fails(report: Report) -> None:
    assert report.of(*HONEST).startswith("skipped\nnotimpl: rounds to 15 digits (issue 0)")
    closed = report.of(*CLOSED)
    assert closed.startswith("failure")
    assert "[XPASS(strict)] notyet: has been mended since (issue 0)" in closed


@pytest.mark.parametrize(
    ("engine", "told"), [("broken_engines:GapInNoLaw", "oracle_of_delphi"), ("nosuch", "'nosuch'")]
)
def test_an_engine_or_a_law_that_does_not_exist_is_a_usage_error(engine: str, told: str) -> None:
    done = _suite("whenabouts.conformance.test_rejects", "--engine", engine)
    assert told in done.stdout + done.stderr
    assert "passed" not in done.stdout
    assert done.returncode != 0


def test_the_table_says_what_holds_fails_and_was_not_run(report: Report) -> None:
    assert (report.table[0], report.table[-1]) == ("Before.", "After.")
    assert not any("xyzzy" in line for line in report.table)
    head = next(line for line in report.table if line.startswith("| law")).strip("| ").split(" | ")
    rows = {line.split("`")[1]: line.strip("| ").split(" | ") for line in report.table if line.startswith("| `")}
    at = {name: head.index(name) for name in ("whole", "gives one pair twice", "declares its gap")}
    assert rows["oracle_pairs"][at["whole"]] == "holds"
    assert rows["oracle_pairs"][at["gives one pair twice"]] == "**fails**"
    assert rows["oracle_probability"][at["declares its gap"]] == "gap"
    assert rows["oracle_bounded_state"][at["declares its gap"]] == "not run"
    assert "- declares its gap, `oracle_probability`: notimpl, rounds to 15 digits (issue 0)" in report.table
