"""Trials of `learn_clock`: how often unrelated streams get a clock, and how well clocks of related ones are known.

    nice python benchmarks/clock_trials.py run null [--trials 200] [--cells 4194304]
    nice python benchmarks/clock_trials.py run power [--trials 100]
    python benchmarks/clock_trials.py summary

Trials are appended to `--log`, one line each; those that are there already are not repeated, so that a run may be
stopped at any time. `summary` stores what they show.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import pyarrow as pa
from clock_streams import DAY_US, START_US, Linked, Stream, Times, bursts, daily, every, linked, poisson, whole_seconds
from measuring import Suite

import whenabouts as wa

LOG = Path("build/clock_trials.jsonl")
SMALL = 1 << 22
"""Cells with which a day is searched down to 1 s; the default, 2**26, goes to 62 ms at 200 ppm."""

NULL: dict[str, tuple[Stream, Stream, int]] = {
    "Poisson": (poisson, poisson, 3_000),
    "Poisson, dense": (poisson, poisson, 20_000),
    "bursts": (bursts, bursts, 3_000),
    "bursts, dense": (bursts, bursts, 20_000),
    "daily, common cycle": (daily, daily, 10_000),
    "daily x bursts": (daily, bursts, 3_000),
    "cron x Poisson": (every(60), poisson, 3_000),
    "crons, 60 s each": (every(60), every(60), 0),
    "crons, 60 s x 30 s": (every(60), every(30), 0),
    "crons, 60 s x 61 s": (every(60), every(61), 0),
    "ticks of 1 s": (whole_seconds, whole_seconds, 10_000),
}


class Case(NamedTuple):
    """Related streams: the kind, rows a side, the share of left rows with a partner, the deviation of delays."""

    stream: Stream
    rows: int
    share: float
    jitter_us: float


POWER: dict[str, Case] = {
    "100,000 rows, 30 %, 50 ms": Case(poisson, 100_000, 0.3, 5e4),
    "100,000 rows, 30 %, 0.2 s": Case(poisson, 100_000, 0.3, 2e5),
    "100,000 rows, 30 %, 1 s": Case(poisson, 100_000, 0.3, 1e6),
    "100,000 rows, 5 %, 50 ms": Case(poisson, 100_000, 0.05, 5e4),
    "20,000 rows, 30 %, 0.2 s": Case(poisson, 20_000, 0.3, 2e5),
    "2,000 rows, 30 %, 0.5 s": Case(poisson, 2_000, 0.3, 5e5),
    "1,000 rows, 30 %, 50 ms": Case(poisson, 1_000, 0.3, 5e4),
    "1,000 rows, 30 %, 1 s": Case(poisson, 1_000, 0.3, 1e6),
    "1,000 rows, 5 %, 50 ms": Case(poisson, 1_000, 0.05, 5e4),
    "daily, 20,000 rows, 30 %, 0.2 s": Case(daily, 20_000, 0.3, 2e5),
    "bursts, 20,000 rows, 30 %, 0.2 s": Case(bursts, 20_000, 0.3, 2e5),
    "bursts, 1,000 rows, 30 %, 50 ms": Case(bursts, 1_000, 0.3, 5e4),
}
MOST_JOINED = 30_000
"""Rows a side up to which the join is made, too."""


def null_trial(kind: str, seed: int, cells: int) -> dict[str, Any]:
    """What is said of two unrelated streams."""
    left, right, rows = NULL[kind]
    rng = np.random.default_rng([seed, list(NULL).index(kind)])
    clock = learn(left(rng, rows), right(rng, rows), max_cells=cells)
    found = clock.evidence
    return {"reason": clock.reason, "fap": None if found is None else found.fap}


def power_trial(kind: str, seed: int) -> dict[str, Any]:
    """How far what is learned is from the truth."""
    case = POWER[kind]
    rng = np.random.default_rng([seed, list(POWER).index(kind)])
    truth = linked(rng, case.stream, case.rows, case.share, case.jitter_us)
    clock = learn(truth.left, truth.right, max_drift="3000 ppm")
    if not clock.found:
        return {"reason": clock.reason, "sentence": clock.sentence}
    assert clock.evidence is not None
    # D has median 0 in what is learned; the median of the delays drawn belongs to the offset.
    offset = truth.offset + truth.drift * (clock.t_ref_us - START_US - DAY_US / 2)
    result = {
        "reason": None,
        "offset_us": clock.offset_us - offset,
        "offset_pull": (clock.offset_us - offset) / clock.offset_error_us,
        "drift_pull": (clock.drift_ppb - truth.drift * 1e9) / clock.drift_error_ppb,
        "share_error": clock.evidence.share - len(truth.partners) / len(truth.left),
        "share_allowed": 0.05 + 3 * clock.evidence.share_error,
    }
    if clock.delay is not None:
        edges = np.array(clock.delay.edges) + clock.delay.end_us + clock.offset_us - offset
        below = np.searchsorted(np.sort(truth.delays), edges) / len(truth.delays)
        learned = np.concatenate([[0.0], np.cumsum(clock.delay.masses)])
        result |= {"delay_error": float(np.abs(below - learned).max()), "delay_bound": clock.delay_error}
        if case.rows <= MOST_JOINED:
            result["joined"] = joined(truth, clock)
    return result


def joined(truth: Linked, clock: wa.LearnedClock) -> float:
    """The share of true pairs that a join with `.condition(0.9)` finds."""
    partner = np.full(len(truth.right), -1)
    partner[truth.partner_at] = truth.partners
    pairs = wa.timing_join(
        pa.table({"t": START_US + truth.left, "row": np.arange(len(truth.left))}),
        pa.table({"u": START_US + truth.right, "partner": partner}),
        left_time=wa.Point("t"), right_time=clock.spec(), condition=clock.condition(0.9),
    )  # fmt: skip
    return float(np.sum(pairs["row"].to_numpy() == pairs["partner"].to_numpy())) / len(truth.partners)


def learn(left: Times, right: Times, **asked: Any) -> wa.LearnedClock:
    """The clock, of columns as they are: `profile` may call bursts a wrong column."""
    tables = pa.table({"t": START_US + left}), pa.table({"u": START_US + right})
    return wa.learn_clock(*tables, left_time="t", right_time="u", unchecked=True, **asked)


def done(log: Path) -> Iterator[dict[str, Any]]:
    """The trials of earlier runs; a line that was cut off does not count."""
    if log.is_file():
        for line in log.read_text().splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue


@click.group()
def main() -> None:
    """Trials of learn_clock."""


@main.command()
@click.argument("part", type=click.Choice(["null", "power"]))
@click.option("--trials", default=100, show_default=True)
@click.option("--first", default=0, show_default=True, help="The first seed.")
@click.option("--cells", default=SMALL, show_default=True, help="The budget of null trials.")
@click.option("--only", multiple=True, help="These kinds alone.")
@click.option("--log", type=click.Path(path_type=Path), default=LOG, show_default=True)
def run(part: str, trials: int, first: int, cells: int, only: tuple[str, ...], log: Path) -> None:
    """Make the trials that the log does not have."""
    log.parent.mkdir(parents=True, exist_ok=True)
    cells = cells if part == "null" else 0
    earlier = {(each["part"], each["kind"], each["seed"], each["cells"]) for each in done(log)}
    kinds = [kind for kind in (NULL if part == "null" else POWER) if not only or kind in only]
    for seed in range(first, first + trials):
        for kind in kinds:
            if (part, kind, seed, cells) in earlier:
                continue
            begun = time.process_time()
            found = null_trial(kind, seed, cells) if part == "null" else power_trial(kind, seed)
            seconds = round(time.process_time() - begun, 2)
            with log.open("a") as file:
                line = {"part": part, "kind": kind, "seed": seed, "cells": cells, "seconds": seconds, **found}
                file.write(json.dumps(line) + "\n")
            click.echo(f"{part} {seed - first + 1} of {trials}: {kind}, {seconds} s", err=True)


@main.command()
@click.option("--log", type=click.Path(path_type=Path), default=LOG, show_default=True)
def summary(log: Path) -> None:
    """Print the trials of a log by kind, and store what they show."""
    # Several runs may have shared the work, and a log may hold a trial twice.
    trials = list({(each["part"], each["kind"], each["seed"], each["cells"]): each for each in done(log)}.values())
    suite = Suite("clock_trials")
    null = [each for each in trials if each["part"] == "null"]
    if null:
        suite.finding("Clocks: unrelated streams", null_sentence(null))
    power = [each for each in trials if each["part"] == "power"]
    if power:
        suite.finding("Clocks: related streams", power_table(power))
    suite.save()


def by_kind(trials: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The trials of each kind."""
    kinds = defaultdict(list)
    for each in trials:
        kinds[each["kind"]].append(each)
    return kinds


def null_sentence(trials: list[dict[str, Any]]) -> str:
    """How many were accepted, and a table by kind."""
    accepted = sum(each["reason"] is None for each in trials)
    judged = [each for each in trials if not each["kind"].startswith("crons")]
    near = {bound: np.mean([(each["fap"] or 0) <= bound for each in judged]) for bound in (0.1, 0.01, 0.001)}
    rows = [
        "| streams | trials | accepted | ambiguous | chance <= 0.1 | <= 0.01 |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for kind, each in by_kind(trials).items():
        reasons = [one["reason"] for one in each]
        low = [np.mean([one["fap"] is not None and one["fap"] <= bound for one in each]) for bound in (0.1, 0.01)]
        told = [kind, len(each), reasons.count(None), reasons.count("ambiguous"), f"{low[0]:.1%}", f"{low[1]:.1%}"]
        rows.append("| " + " | ".join(map(str, told)) + " |")
    return (
        f"`learn_clock` gave {accepted} of {len(trials):,} pairs of unrelated streams a clock (a day, 1,440 to 20,000 "
        "rows a side, +-1 h, 200 ppm, searched down to cells of 1 s); the bound is 1 in 200. But for "
        f"pairs of crons, it gave chance a probability of at most 0.1 in {near[0.1]:.1%} of them, of at most 0.01 in "
        f"{near[0.01]:.2%}, of at most 0.001 in {near[0.001]:.2%}.\n\n" + "\n".join(rows)
    )


def power_table(trials: list[dict[str, Any]]) -> str:
    """Found, errors in units of the standard error, and coverage by case."""
    head = [
        "streams", "trials", "found", "median error of the offset", "pulls of offset and drift (sd)",
        "within 1.96 errors", "share within its bound", "delay within its bound", "true pairs joined",
    ]  # fmt: skip
    rows = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for kind, each in by_kind(trials).items():
        found = [one for one in each if one["reason"] is None]
        if not found:
            rows.append(f"| {kind} | {len(each)} | 0 |" + " |" * 6)
            continue
        pulls = np.array([[one["offset_pull"], one["drift_pull"]] for one in found])
        inside = np.mean(np.abs(pulls) < 1.96, axis=0)
        shapes = [one for one in found if "delay_error" in one]
        joins = [one["joined"] for one in found if "joined" in one]
        error = np.median([abs(one["offset_us"]) for one in found])
        cells = [
            kind, str(len(each)), f"{len(found) / len(each):.0%}", f"{error / 1000:.3g} ms",
            f"{pulls[:, 0].std():.2f}, {pulls[:, 1].std():.2f}", f"{inside[0]:.0%}, {inside[1]:.0%}",
            f"{np.mean([abs(one['share_error']) <= one['share_allowed'] for one in found]):.0%}",
            f"{np.mean([one['delay_error'] <= one['delay_bound'] for one in shapes]):.0%} of {len(shapes)}"
            if shapes else "",
            f"{np.mean(joins):.1%} ({min(joins):.1%} to {max(joins):.1%})" if joins else "",
        ]  # fmt: skip
        rows.append("| " + " | ".join(cells) + " |")
    return "A day, +-1 h, drifts up to 3000 ppm, offset and drift at random; normal delays.\n\n" + "\n".join(rows)


if __name__ == "__main__":
    main()
