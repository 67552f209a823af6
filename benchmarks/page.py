"""Render docs/performance.md and its appendix from the results of the benchmarks, without measuring anything.

    python benchmarks/page.py

Input: `results/*.json` (series, pyperf's format), `results/*.claims.json` (claims of the papers, and whether they
hold), `promises.toml` (ratios that users rely on), `peers.toml` (what peers cannot express), `costs.toml` (the largest
costs of each engine's path, before and after). A promise without its series is shown as not measured, never left out.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pyperf
from measuring import RESULTS, SEPARATOR
from ratio_chart import Ratio, draw_ratios
from tabulate import tabulate

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "performance.md"
APPENDIX = PAGE.with_name("performance-tables.md")
Series = Mapping[str, pyperf.Benchmark]

HEAD = """# Performance

What whenabouts costs, beside what others cost on the same rows, and whether that is what is promised. Every figure is
measured by a command of the repository; [all tables](performance-tables.md) are on a page of their own.

Times are CPU-seconds: of the process, or of the JVM and all its Python workers. Contenders take turns in one process
on the same rows, in another order in each round; if their answers (row count and an order-independent hash) differ,
the run fails and leaves no figure. A bar is the ratio of medians, the thin line goes from the least to the greatest
round, the black mark is what is promised.
"""
TAIL = """## Measure it yourself

`make bench` runs the quick part in under ten minutes, `make bench-full` everything, in hours; each script in
`benchmarks` also runs alone, and replaces its earlier results. Both pages are made from the results.
"""
APPENDIX_HEAD = """# All tables of the benchmarks

The appendix of [Performance](performance.md), which says how all this was measured. Medians; in brackets the least
and the greatest round.
"""


PEERS, COSTS = (
    (
        "What peers cannot express",
        HERE / "peers.toml",
        {
            "name": "Peer", "within": "within d", "uncertain": "uncertain times", "windows": "several windows",
            "coalescing": "coalescing, out of order too", "streams": "streams",
        },
    ),
    (
        "Where the time went",
        HERE / "costs.toml",
        {"path": "Path", "what": "Cost that the profile showed", "before": "before", "after": "after", "how": "How"},
    ),
)  # fmt: skip
"""Title, file and columns of the tables that are written by hand."""


@dataclass(frozen=True, eq=False)
class Promise:
    """A ratio that users rely on. `peer`: the fastest of these counts. `elsewhere`: the result on another machine.
    `obstacle`: why it is not met, if that is known."""

    says: str
    suite: str
    ours: str
    peer: Sequence[str]
    at_least: float | None = None
    at_most: float | None = None
    elsewhere: str = ""
    obstacle: str = ""

    def measured(self, suites: Mapping[str, Series]) -> tuple[float, float, float] | None:
        """Median, least and greatest ratio, or None where a series is missing."""
        series = suites.get(self.suite, {})
        if self.ours not in series or not set(self.peer) <= series.keys():
            return None
        mine = series[self.ours]
        peer = min((series[name] for name in self.peer), key=lambda of: of.median())
        pairs = list(zip(mine.get_values(), peer.get_values(), strict=False))
        ratios = [other / own if self.at_least is not None else own / other for own, other in pairs]
        middle = peer.median() / mine.median() if self.at_least is not None else mine.median() / peer.median()
        return middle, min(ratios), max(ratios)

    def machine(self, suites: Mapping[str, Series]) -> str:
        """The processor of the measurement."""
        return str(suites[self.suite][self.ours].get_metadata().get("cpu_model_name", "")).replace("(R)", "")

    def met(self, ratio: float) -> bool:
        """Whether a ratio meets it."""
        return ratio >= self.at_least if self.at_least is not None else ratio <= (self.at_most or 0)

    def wanted(self) -> str:
        """The bound in words."""
        return f"at least {self.at_least:g}" if self.at_least is not None else f"at most {self.at_most:g}"


def read_suites(folder: Path) -> dict[str, Series]:
    """The series of each suite by name."""
    suites: dict[str, Series] = {}
    for path in sorted(folder.glob("*.json")):
        if not path.name.endswith(".claims.json"):
            suites[path.stem] = {series.get_name(): series for series in pyperf.BenchmarkSuite.load(str(path))}
    return suites


def read_promises(path: Path) -> list[Promise]:
    """Raises TypeError for an entry with unknown fields or without a needed one."""
    return [Promise(**entry) for entry in tomllib.loads(path.read_text())["promise"]]


def promises_part(promises: Iterable[Promise], suites: Mapping[str, Series]) -> str:
    """The table of promises."""
    rows = []
    for promise in promises:
        found = promise.measured(suites)
        told = ("not measured", "", "")
        if found is not None:
            told = (_ratio(found), "yes" if promise.met(found[0]) else "**no**", promise.machine(suites))
        rows.append([promise.says, promise.wanted(), *told, promise.elsewhere])
    heads = ["Ratio of CPU-seconds", "wanted", "measured", "met", "processor", "on another"]
    table = tabulate(rows, heads, tablefmt="github")
    return f"## What is promised, and what was measured\n\n{table}\n"


def summary_part(promises: Sequence[Promise], suites: Mapping[str, Series]) -> str:
    """How many promises are met, and which are not."""
    found = {promise: promise.measured(suites) for promise in promises}
    met = [promise for promise, ratio in found.items() if ratio is not None and promise.met(ratio[0])]
    lines = [f"**{len(met)} of {len(promises)} promised ratios are met.** Those that are not:\n"]
    for promise, ratio in found.items():
        if promise not in met:
            said = "not measured" if ratio is None else _ratio(ratio)
            elsewhere = f" (on another machine, {promise.elsewhere})" if promise.elsewhere else ""
            obstacle = f" {promise.obstacle}" if promise.obstacle else ""
            lines.append(f"- {promise.says}: {said}, promised is {promise.wanted()}{elsewhere}.{obstacle}")
    return "\n".join(lines) + "\n" if len(lines) > 1 else lines[0].partition(" Those")[0] + "\n"


def charts_part(promises: Sequence[Promise], suites: Mapping[str, Series], folder: Path) -> str:
    """The measured ratios of each engine, as pictures, which it draws in a folder."""
    parts = []
    for engine, (title, says) in ENGINES.items():
        found = {one: ratio for one in promises if _engine(one) == engine and (ratio := one.measured(suites))}
        ratios = [Ratio(one.says, *ratio, one.at_least, one.at_most) for one, ratio in found.items()]
        if ratios:
            draw_ratios(ratios, folder / f"promises_{engine}.svg")
            machines = " and ".join(dict.fromkeys(one.machine(suites) for one in found))
            parts.append(f"## {title}\n\n{says} {machines}.\n\n![ratios]({_shown(f'promises_{engine}.svg')})\n")
    return "\n".join(parts)


ENGINES = {
    "local": ("In one process", "Beside DuckDB and Polars, whose conditions and buckets are written by hand."),
    "spark": ("On Spark", "Beside Spark's own joins, on the same stream or batch."),
    "flink": ("On Flink", "Beside Flink's own interval join."),
}


def _engine(promise: Promise) -> str:
    return next((engine for engine in ENGINES if engine in promise.says.lower()), "local")


ASOF, STATE = "As-of joins: ", "State: "


def findings_part(folder: Path) -> str:
    """How costs grow, what as-of joins and large state cost, and how long pairs wait; the last two with pictures."""
    claims = {claim["figure"]: claim for claim in _claims(folder)}
    grown = [f"- **{figure}.** {claim['why']}" for figure, claim in claims.items() if figure.startswith("Growth: ")]
    asof = [
        f"- {figure.partition(': ')[2]}: {claim['why']}" for figure, claim in claims.items() if figure.startswith(ASOF)
    ]
    waits = [_claim(claim) for figure, claim in claims.items() if figure.startswith("Latency ")]
    parts = ["## How costs grow\n", *grown, ""]
    if asof:
        parts += ["## As-of joins of uncertain times, and of streams\n", *asof, ""]
    heavy = [_claim(claim) for figure, claim in claims.items() if figure.startswith(STATE)]
    if heavy:
        parts += ["## Large state\n", *heavy]
    return "\n".join([*parts, "## How long pairs wait\n", *waits])


def doubts_part(folder: Path) -> str:
    """How many claims of the papers hold here, and which do not."""
    claims = [claim for claim in _claims(folder) if "claim" in claim]
    not_held = [claim for claim in claims if not claim["holds"]]
    lines = [
        "## What the papers claim\n",
        f"The benchmarks repeat {len(claims)} claims about figures of the [four papers](../README.md#read-on); "
        f"{len(claims) - len(not_held)} hold here. Those that do not, with the reasons in the "
        "[appendix](performance-tables.md#the-papers-figures):\n",
        *(f"- {claim['figure'].partition(': ')[0]}: *{claim['claim']}*" for claim in not_held),
    ]
    return "\n".join(lines) + "\n"


def _ratio(found: tuple[float, float, float]) -> str:
    return f"{found[0]:.3g} ({found[1]:.3g} to {found[2]:.3g})"


def claims_part(folder: Path) -> str:
    """The papers' claims about their figures and our results; then other findings."""
    claims = _claims(folder)
    papers = [_claim(claim) for claim in claims if "claim" in claim]
    findings = [_claim(claim) for claim in claims if "claim" not in claim]
    return "\n".join(["## The papers' figures\n", *papers, "## Growth and limits\n", *findings])


def _claims(folder: Path) -> list[dict[str, Any]]:
    return [claim for path in sorted(folder.glob("*.claims.json")) for claim in json.loads(path.read_text())]


def _claim(claim: Mapping[str, Any]) -> str:
    said = f"*{claim['claim']}* **{'Holds.' if claim['holds'] else 'Does not hold.'}** " if "claim" in claim else ""
    plots = [f"![{claim['figure']}]({_shown(plot)})\n" for plot in claim["plots"]]
    return "\n".join([f"### {claim['figure']}\n\n{said}{claim['why']}\n", *plots])


def table_part(title: str, path: Path, headers: Mapping[str, str]) -> str:
    """A table with a row for each entry of a file; `headers` by field."""
    (entries,) = tomllib.loads(path.read_text()).values()
    rows = [[entry[field] for field in headers] for entry in entries]
    return f"## {title}\n\n{tabulate(rows, list(headers.values()), tablefmt='github')}\n"


def suite_part(name: str, series: Series) -> str:
    """All measurements of one suite."""
    by_workload: dict[str, list[pyperf.Benchmark]] = {}
    for one in series.values():
        by_workload.setdefault(one.get_name().rpartition(SEPARATOR)[0], []).append(one)
    parts = [f"### {name}\n\n`python benchmarks/{name}.py`; {_machine(next(iter(series.values())))}.\n"]
    for workload, contenders in by_workload.items():
        first = contenders[0].median()
        rows = [_row(one, first) for one in contenders]
        head = [workload, "median", "least to greatest", "rounds", "ratio", "rows out"]
        parts.append(tabulate(rows, head, tablefmt="github", disable_numparse=True) + "\n")
    return "\n".join(parts)


def _row(one: pyperf.Benchmark, first: float) -> list[str]:
    values, about = one.get_values(), one.get_metadata()
    unit = {"second": " s", "byte": " B"}.get(about.get("unit", "second"), "")
    spread = f"{min(values):.4g} to {max(values):.4g}"
    rows = about.get("rows_out")
    name = one.get_name().rpartition(SEPARATOR)[2]
    told = "" if rows is None else f"{rows:,}"
    return [name, f"{one.median():.4g}{unit}", spread, str(len(values)), f"{one.median() / first:.2f}", told]


def _machine(one: pyperf.Benchmark) -> str:
    about: Mapping[str, Any] = one.get_metadata()
    versions = [
        f"{key.removesuffix('_version')} {value}"
        for key, value in about.items()
        if key.endswith("_version") and key != "perf_version"
    ]
    told = f"{about.get('date')}, {about.get('cpu_count')} cores of {about.get('cpu_model_name')}"
    return f"{told}, load {about.get('load', 0.0):.1f} when saved; {', '.join(versions)}"


def _shown(plot: str) -> str:
    return f"../benchmarks/results/{plot}"


@click.command()
def main() -> None:
    """Write both pages."""
    suites, promises = read_suites(RESULTS), read_promises(HERE / "promises.toml")
    parts = [HEAD, summary_part(promises, suites), charts_part(promises, suites, RESULTS), findings_part(RESULTS)]
    PAGE.write_text("\n".join([*parts, table_part(*PEERS), doubts_part(RESULTS), TAIL]))
    parts = [
        APPENDIX_HEAD,
        promises_part(promises, suites),
        table_part(*COSTS),
        claims_part(RESULTS),
        "## All series\n",
    ]
    APPENDIX.write_text("\n".join([*parts, *(suite_part(name, series) for name, series in suites.items())]))
    for page in (PAGE, APPENDIX):
        click.echo(f"wrote {page.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main()
