"""The table of laws x engines, generated from a run of the suite into a Markdown file."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from whenabouts.core.harness import Gap

BEGIN, END = "<!-- generated: laws -->", "<!-- end of generated text -->"

Results = Mapping[tuple[str, str], set[str]]


class Law(NamedTuple):
    """A law: its name, and what it says."""

    name: str
    text: str


def laws() -> list[Law]:
    """All laws of the suite, in the order of the files: read from the source, so that nothing is run for it."""
    found = []
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                text = (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
                found.append(Law(node.name.removeprefix("test_"), text))
    return found


def _lines(results: Results, engines: Sequence[str], gaps: Mapping[str, Mapping[str, Gap]]) -> Iterator[str]:
    yield f"| law | says | {' | '.join(engines)} |"
    yield "| --- | --- |" + " --- |" * len(engines)
    for law in laws():
        cells = [_cell(results.get((law.name, engine), set())) for engine in engines]
        yield f"| `{law.name}` | {law.text.replace('|', chr(92) + '|')} | {' | '.join(cells)} |"
    yield ""
    told = [(engine, law, gap) for engine in engines for law, gap in sorted(gaps[engine].items())]
    if not told:
        yield "No engine declares a gap."
    for engine, name, gap in told:
        yield f"- {engine}, `{name}`: {gap.kind}, {gap.reason} ({gap.issue})"


def _cell(words: set[str]) -> str:
    if not words:
        return "not run"
    if "failed" in words:
        return "**fails**"
    return "gap" if "gap" in words else "holds"


def write(path: Path, results: Results, engines: Sequence[str], gaps: Mapping[str, Mapping[str, Gap]]) -> None:
    """Put the table between the markers of `path`, or make the file if there is none."""
    table = "\n".join([BEGIN, "", *_lines(results, engines, gaps), "", END])
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    before, found, rest = text.partition(BEGIN)
    if not found:
        path.write_text(f"{text}{table}\n", encoding="utf-8")
        return
    path.write_text(before + table + rest.partition(END)[2], encoding="utf-8")
