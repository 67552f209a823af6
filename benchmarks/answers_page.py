"""The tables and charts of docs/better-answers.md from the results of `answers.py`, without measuring anything.

python benchmarks/answers_page.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from answer_streams import SCENARIOS
from measuring import RESULTS
from tabulate import tabulate

FOLDER = RESULTS / "answers"
PAGE = Path(__file__).parent.parent / "docs" / "better-answers.md"
CONTENDERS = {
    "window d": "window d",
    "middles d": "window d, middles",
    "window": "best window",
    "middles": "best window, middles",
    "half": "confidence 0.5",
    "join": "best confidence",
    "both": "best partner",
}
MARKS = {
    "window d": ("s", "tab:orange"),
    "middles d": ("X", "tab:green"),
    "window": ("*", "tab:red"),
    "middles": ("P", "tab:purple"),
    "half": ("o", "tab:blue"),
    "both": ("D", "tab:pink"),
}
SHOWN_DENSITY, DECLARED_DENSITY = 1.0, 10.0
SHOWN_CONFIDENCES = (0.1, 0.3, 0.5, 0.7, 0.9)
QUESTIONS = {"close": "truly within d", "caused": "cause and effect"}

Case = Mapping[str, Any]
Results = Mapping[str, Any]


def cases(results: Results, question: str, **wanted: Any) -> list[Case]:
    """The simulated cases of a question, with the uncertainty declared as it is unless `wanted` says otherwise."""
    wanted = {"question": question, "declared": 1.0} | wanted
    return [case for case in results["simulated"] if all(case[name] == value for name, value in wanted.items())]


def tables(results: Results) -> dict[str, str]:
    """Every table of the page by its name."""
    about = [[name, one.about, f"{one.d_us / 1e6:g} s"] for name, one in SCENARIOS.items()]
    found = {"scenarios": _table(["clocks", "recorded times", "d"], about)}
    for question in QUESTIONS:
        found[question] = _scores(("clocks", "unrelated"), cases(results, question), _named)
        found[f"{question} by confidence"] = _by_confidence(results, cases(results, question, density=SHOWN_DENSITY))
        found[f"{question} reliability"] = _reliability(cases(results, question, density=SHOWN_DENSITY))
    found["declared"] = _declared(results)
    if results["real"]:
        found["real"] = _scores(("rows",), results["real"], lambda case: [case["set"]])
        found["real reliability"] = _reliability(results["real"], "set")
    return found


def _named(case: Case) -> list[str]:
    return [case["scenario"], f"{case['density']:g}"]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return str(tabulate(list(rows), list(heads), tablefmt="github", disable_numparse=True))


def _scores(heads: Sequence[str], chosen: Iterable[Case], named: Any) -> str:
    """F1 of each contender, the gain, and the calibration error with the pairs that it is over."""
    rows = []
    for case in chosen:
        gain = " to ".join(f"{each:+.3f}" for each in dict.fromkeys(case["gain"]))
        f1 = [f"{case['scores'][name]['f1']:.3f}" for name in CONTENDERS]
        rows.append([*named(case), *f1, gain, f"{case['calibration_error']:.3f} ({case['pairs']:,})"])
    return _table([*heads, *CONTENDERS.values(), "gain", "calibration error (pairs)"], rows)


def _by_confidence(results: Results, chosen: Iterable[Case]) -> str:
    places = [results["confidences"].index(each) for each in SHOWN_CONFIDENCES]
    rows = []
    for case in chosen:
        told = [f"{p:.2f} / {r:.2f}" if r else "no pair" for p, r in (case["curve"][at] for at in places)]
        window = case["scores"]["window"]
        rows.append([case["scenario"], *told, f"{window['precision']:.2f} / {window['recall']:.2f}"])
    return _table(["clocks", *(f"{each:g}" for each in SHOWN_CONFIDENCES), "best window"], rows)


def _reliability(chosen: Iterable[Case], name: str = "scenario") -> str:
    """Mean probability, share of true pairs and number of pairs for each tenth."""
    rows = []
    for case in chosen:
        cells = [""] * 10
        for one in case["bins"]:
            at = min(int(one["probability"] * 10), 9)
            cells[at] = f"{one['probability']:.2f}: {one['share']:.2f} ({one['pairs']:,})"
        rows.append([case[name], *cells])
    return _table(["given: true (pairs)", *(f"{at / 10:g} to {(at + 1) / 10:g}" for at in range(10))], rows)


def _declared(results: Results) -> str:
    """The first question, among many unrelated events, where right declarations are calibrated best."""
    here = [case for case in results["simulated"] if (case["question"], case["density"]) == ("close", DECLARED_DENSITY)]
    wrong = {case["scenario"] for case in here if case["declared"] != 1}
    chosen = [case for case in here if case["scenario"] in wrong]
    rows = []
    for case in sorted(chosen, key=lambda case: ([*SCENARIOS].index(case["scenario"]), case["declared"])):
        f1 = [f"{case['scores'][each]['f1']:.3f}" for each in ("window", "half", "join")]
        at, error = case["scores"]["join"]["settings"][0], case["calibration_error"]
        rows.append([case["scenario"], f"{case['declared']:g} times", *f1, f"{at:.2f}", f"{error:.3f}"])
    heads = ["clocks", "declared", "best window", "confidence 0.5", "best confidence", "which is", "calibration error"]
    return _table(heads, rows)


def filled(page: str, results: Results) -> str:
    """The page with every table between its marks replaced. Raises KeyError for a mark without a table."""
    found = tables(results)

    def table(match: re.Match[str]) -> str:
        return f"{match[1]}\n\n{found[match[2]]}\n\n{match[3]}"

    return re.sub(r"(<!-- table: ([^>]+) -->)\n.*?(<!-- end -->)", table, page, flags=re.DOTALL)


def write(results: Results) -> None:
    """Draw the charts, and put the tables into the page."""
    draw(results, FOLDER)
    PAGE.write_text(filled(PAGE.read_text(), results))
    click.echo(f"wrote {PAGE.relative_to(PAGE.parents[1])}")


def draw(results: Results, folder: Path) -> None:
    """The charts, the same bytes for the same results."""
    import matplotlib as mpl

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "answers", "font.size": 8}):
        for question in QUESTIONS:
            _save(_precision_recall(results, question), folder / f"answers_{question}.svg")
        _save(_diagrams(results), folder / "answers_reliability.svg")


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None})


def _precision_recall(results: Results, question: str) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.6), layout="constrained")
    grid = figure.subplots(2, 3, sharex=True, sharey=True)
    for axes, case in zip(grid.flat, cases(results, question, density=SHOWN_DENSITY), strict=True):
        points = [(recall, precision) for precision, recall in case["curve"] if recall]
        axes.plot(*zip(*points, strict=True), label="timing join by confidence")
        points = [(recall, precision) for precision, recall in case["widths"] if recall]
        axes.plot(*zip(*points, strict=True), color="gray", ls="--", label="windows on middles by width")
        for name, (mark, color) in MARKS.items():
            one = case["scores"][name]
            if not one["recall"]:
                continue
            axes.plot(
                one["recall"], one["precision"], mark, color=color, ms=9 if mark == "*" else 6, label=CONTENDERS[name]
            )
        axes.set(title=case["scenario"], xlim=(0, 1.02), ylim=(0, 1.02))
        axes.grid(alpha=0.3)
    for axes in grid[1]:
        axes.set_xlabel("recall")
    figure.supylabel("precision")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _diagrams(results: Results) -> Any:
    from matplotlib.figure import Figure

    names = [name for name in SCENARIOS if name != "exact"]
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    grid = figure.subplots(2, len(names), sharex=True, sharey=True)
    for row, (question, asked) in zip(grid, QUESTIONS.items(), strict=True):
        for axes, name in zip(row, names, strict=True):
            axes.plot([0, 1], [0, 1], color="black", lw=0.8, ls="--")
            for case in cases(results, question, scenario=name):
                points = [(one["probability"], one["share"]) for one in case["bins"]]
                axes.plot(*zip(*points, strict=True), ".-", label=f"{case['density']:g} unrelated events within d")
            axes.set(title=f"{asked}: {name}", xlim=(0, 1), ylim=(0, 1.02), aspect="equal")
            axes.grid(alpha=0.3)
    for axes in grid[1]:
        axes.set_xlabel("mean probability of the pairs")
    figure.supylabel("share that is true")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


@click.command()
def main() -> None:
    """Render the page and its charts."""
    write(json.loads((FOLDER / "answers.json").read_text()))


if __name__ == "__main__":
    main()
