"""Does it answer better? Joins of streams whose true times are known, against ordinary interval joins.

    python benchmarks/answers.py [--quick] [--events 5000] [--runs 5] [--data FOLDER] [--out FOLDER]

Streams are simulated (`answer_streams.py`) for each kind of clock and for several densities of unrelated events. Two
questions are asked: which pairs truly lie within d of each other, and which are cause and effect. For each the true
pairs are known. Compared are

- `window d`: an ordinary join of the recorded times with the window that the question names;
- `window d, middles`: the same window on the middle of what is possible, instead of the recorded time;
- `best window`: the window (its two ends free) with the best F1, found with the truth, which no user has;
- `best window, middles`: the same for the middles;
- `confidence 0.5`: the timing join, nothing tuned;
- `best confidence`: the confidence with the best F1, found with the truth;
- `best partner`: with `best="both"`, the pairs whose rows are each other's most probable partner, and the best
  confidence; for picks, of which many belong to one earthquake, with `best="left"`.

`--data`: a folder with `s9_d1_ooo_events.parquet` (Weiss, Jimenez and Zeiner, IoTBDS 2017) and the Ridgecrest files
`ridgecrest_pal_picks.parquet`, `ridgecrest_catalogs.parquet` (Zhou et al., SRL 2021, doi 10.1785/0220210111), which
are not part of this project; without it that part keeps its earlier figures. The results are in
`benchmarks/results/answers/answers.json`, and with them the tables of docs/better-answers.md and its charts are
written. The seeds are 1, 2, and so on. `--quick` prints the tables and writes only to a folder given with `--out`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import answer_data
import answers_page
import click
import numpy as np
from answer_streams import SCENARIOS, Streams, simulate
from measuring import machine
from scoring import (
    Array,
    Score,
    best,
    best_window,
    by_confidence,
    calibration_error,
    pairs_within,
    pooled,
    reliability,
)

import whenabouts as wa

DENSITIES = (0.1, 1.0, 10.0)
CONFIDENCES = tuple(step / 100 for step in range(1, 101))
EDGES = np.linspace(0.005, 0.995, 80)
"""Quantiles of the true pairs' recorded differences, among which the ends of a best window are looked for."""
WIDTHS = np.geomspace(0.02, 3, 30)
"""Widths of the windows around the one that the question names, in units of its own."""
DECLARED = (0.5, 2.0)
MISDECLARED = ("truncated", "skewed clocks", "mixture")


@dataclass(frozen=True)
class Question:
    """What is asked of two streams: `right - left` between `low` and 1 times d; and which pairs are true."""

    name: str
    low: int
    truth: Callable[[Streams], tuple[Array, Array]]


def close(streams: Streams) -> tuple[Array, Array]:
    """The pairs whose true times are within d of each other."""
    return pairs_within(streams.left.true_us, streams.right.true_us, -streams.d_us, streams.d_us)


QUESTIONS = (Question("close", -1, close), Question("caused", 0, lambda streams: streams.related))


def compare(streams: Streams, low_us: int, high_us: int, truth: tuple[Array, Array]) -> dict[str, Any]:
    """Every contender's score for one pair of streams, the timing join by confidence, and its reliability."""
    width = len(streams.right.true_us)
    codes = np.sort(truth[0] * width + truth[1])
    found: dict[str, Any] = {}
    for name, times in (("window", "recorded_us"), ("middles", "middle_us")):
        left, right = getattr(streams.left, times), getattr(streams.right, times)
        edges = np.unique([*np.quantile(right[truth[1]] - left[truth[0]], EDGES), low_us, high_us])
        rows = pairs_within(left, right, edges[0], edges[-1])
        is_true = np.isin(rows[0] * width + rows[1], codes)
        difference = right[rows[1]] - left[rows[0]]
        chosen, low, high = best_window(difference, is_true, len(codes), edges)
        found[name] = _told(chosen, low / 1e6, high / 1e6)
        found[f"{name} d"] = _told(
            _windowed(difference, is_true, len(codes), low_us, high_us), low_us / 1e6, high_us / 1e6
        )
    probability, is_true = _joined(streams, low_us, high_us, codes, None)
    scores = by_confidence(probability, is_true, len(codes), CONFIDENCES)
    place, chosen = best(scores)
    found["join"] = _told(chosen, CONFIDENCES[place])
    found["half"] = _told(scores[CONFIDENCES.index(0.5)], 0.5)
    place, chosen = best(
        by_confidence(*_joined(streams, low_us, high_us, codes, streams.best), len(codes), CONFIDENCES)
    )
    found["both"] = _told(chosen, CONFIDENCES[place])
    return {
        "true": len(codes),
        "scores": found,
        "curve": scores,
        "widths": _by_width(streams, low_us, high_us, codes),
        "bins": reliability(probability, is_true),
    }


def _windowed(difference: Array, is_true: Array, true: int, low_us: float, high_us: float) -> Score:
    inside = (difference >= low_us) & (difference <= high_us)
    return Score(int(inside.sum()), int(is_true[inside].sum()), true)


def _by_width(streams: Streams, low_us: int, high_us: int, codes: Array) -> list[Score]:
    """The join of the middles with windows of several widths around the one that the question names."""
    left, right = streams.left.middle_us, streams.right.middle_us
    centre, half = (low_us + high_us) / 2, (high_us - low_us) / 2
    rows = pairs_within(left, right, centre - WIDTHS[-1] * half, centre + WIDTHS[-1] * half)
    is_true = np.isin(rows[0] * len(right) + rows[1], codes)
    difference = right[rows[1]] - left[rows[0]]
    return [_windowed(difference, is_true, len(codes), centre - w * half, centre + w * half) for w in WIDTHS]


def _told(score: Score, *settings: float) -> dict[str, Any]:
    return {"precision": score.precision, "recall": score.recall, "f1": score.f1, "settings": list(settings)}


def _joined(streams: Streams, low_us: int, high_us: int, codes: Array, best: str | None) -> tuple[Array, Array]:
    """Probability and truth of the timing join's pairs at the lowest confidence: a higher one only removes pairs, and
    never changes which partner is the best."""
    options = {} if best is None else {"best": best}
    pairs = wa.timing_join(
        streams.left.table("left"),
        streams.right.table("right"),
        left_time=streams.left.time,
        right_time=streams.right.time,
        condition=wa.between(f"{low_us}us", f"{high_us}us", confidence=CONFIDENCES[0]),
        **options,
    )
    left, right = pairs["left"].to_numpy(), pairs["right"].to_numpy()
    return pairs["probability"].to_numpy(), np.isin(left * len(streams.right.true_us) + right, codes)


def summed(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The runs of one case together: means, the pooled reliability, and the gain of each run."""
    bins = pooled([run["bins"] for run in runs])
    scores = {name: _mean([run["scores"][name] for run in runs]) for name in runs[0]["scores"]}
    gains = [run["scores"]["join"]["f1"] - run["scores"]["window"]["f1"] for run in runs]
    return {
        "true": sum(run["true"] for run in runs),
        "scores": scores,
        "gain": [min(gains), max(gains)],
        "curve": _curve([run["curve"] for run in runs]),
        "widths": _curve([run["widths"] for run in runs]),
        "bins": [{name: round(value, 5) for name, value in asdict(one).items()} for one in bins],
        "pairs": sum(one.pairs for one in bins),
        "calibration_error": calibration_error(bins),
    }


def _curve(runs: Sequence[Sequence[Score]]) -> list[list[float]]:
    """Precision and recall at each point, over the pairs of all runs."""
    points = [
        Score(*(sum(getattr(one, name) for one in at) for name in ("found", "right", "true")))
        for at in zip(*runs, strict=True)
    ]
    return [[round(one.precision, 5), round(one.recall, 5)] for one in points]


def _mean(told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: np.mean([one[name] for one in told], axis=0).round(5).tolist() for name in told[0]}


def _as_text(results: Mapping[str, Any]) -> str:
    """JSON with a line for each case, so that two runs can be compared."""
    lists = {name: "[\n" + ",\n".join(map(json.dumps, results[name])) + "\n]" for name in ("simulated", "real")}
    rest = {name: json.dumps(value) for name, value in results.items() if name not in lists}
    return "{\n" + ",\n".join(f'"{name}": {text}' for name, text in (rest | lists).items()) + "\n}\n"


def simulated(events: int, runs: int, densities: Sequence[float] = DENSITIES) -> list[dict[str, Any]]:
    """Every question, kind of clock and density; then some clocks whose declared uncertainty is wrong, for the first
    question and the greatest density."""
    cases = [(name, density, 1.0) for name in SCENARIOS for density in densities]
    cases += [(name, densities[-1], declared) for name in MISDECLARED for declared in DECLARED]
    results = []
    for name, density, declared in cases:
        streams = [simulate(SCENARIOS[name], events, density, seed, declared) for seed in range(1, runs + 1)]
        for question in QUESTIONS if declared == 1 else QUESTIONS[:1]:
            d = SCENARIOS[name].d_us
            answers = [compare(one, question.low * d, d, question.truth(one)) for one in streams]
            about = {"question": question.name, "scenario": name, "density": density, "declared": declared}
            results.append({**about, **summed(answers)})
    return results


def real(folder: Path) -> list[dict[str, Any]]:
    """The same for real rows with a known truth."""
    results = []
    for name, load in answer_data.SETS.items():
        streams, low_us, truth = load(folder)
        results.append({"set": name, "d_us": streams.d_us, **summed([compare(streams, low_us, streams.d_us, truth)])})
    return results


@click.command()
@click.option("--quick", is_flag=True, help="few events, one run")
@click.option("--events", default=5_000, show_default=True)
@click.option("--runs", default=5, show_default=True)
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="folder of the real data")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="where results and charts go")
def main(quick: bool, events: int, runs: int, data: Path | None, out: Path | None) -> None:
    """Print the tables; write results, charts and the tables of the page."""
    events, runs = (500, 1) if quick else (events, runs)
    folder = out or (None if quick else answers_page.FOLDER)
    earlier = answers_page.FOLDER / "answers.json"
    results: dict[str, Any] = {"events": events, "runs": runs, "confidences": CONFIDENCES, "machine": machine()}
    results["simulated"] = simulated(events, runs)
    if data is not None and all((data / name).exists() for name in answer_data.FILES):
        results["real"] = real(data)
    else:
        click.echo(f"no real data: --data needs a folder with {', '.join(answer_data.FILES)}", err=True)
        results["real"] = json.loads(earlier.read_text())["real"] if earlier.exists() and not quick else []
    for table in answers_page.tables(results).values():
        click.echo(table + "\n")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "answers.json").write_text(_as_text(results))
        if folder == answers_page.FOLDER:
            answers_page.write(results)
        else:
            answers_page.draw(results, folder)


if __name__ == "__main__":
    main()
