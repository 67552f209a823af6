"""The capabilities that engines declare, as a table: `python -m whenabouts.conformance.capabilities FILE`.

A gap is a law that does not hold on an engine. The suite runs it anyway and fails if it passes, as it fails if any
other law does not hold: the declarations are checked, and no engine has to be started for the table.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from whenabouts.conformance.engine import load
from whenabouts.core.harness import Harness

BEGIN, END = "<!-- generated: capabilities -->", "<!-- end of generated text -->"

ENGINES = (
    "whenabouts.core.harness:LocalHarness",
    "whenabouts.spark_plugin.harness:SparkHarness",
    "whenabouts.flink_plugin.harness:FlinkHarness",
    "whenabouts.conformance.simulated_spark:SimulatedSparkHarness",
    "whenabouts.conformance.simulated_flink:SimulatedFlinkHarness",
)
"""The engines of this project, and the simulated ones."""


def law_groups() -> dict[str, list[str]]:
    """Laws by subject (the first line of their file), read from the source.

    >>> [len(laws) > 5 for about, laws in law_groups().items() if "finite inputs" in about]
    [True]
    """
    found = {}
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        about = (ast.get_docstring(module) or path.stem).partition("\n")[0]
        found[about] = [
            node.name.removeprefix("test_")
            for node in module.body
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        ]
    return found


def lines(harnesses: Sequence[type[Harness]]) -> Iterator[str]:
    """The table, and the gaps with their reasons below it."""
    yield f"| laws | how many | {' | '.join(harness.name for harness in harnesses)} |"
    yield "| --- | --- |" + " --- |" * len(harnesses)
    for about, laws in law_groups().items():
        cells = [_cell(laws, [law for law in laws if law in harness.capabilities.gaps]) for harness in harnesses]
        yield f"| {about} | {len(laws)} | {' | '.join(cells)} |"
    yield ""
    for harness in harnesses:
        for law, gap in sorted(harness.capabilities.gaps.items()):
            yield f"- {harness.name} lacks `{law}`: {gap.kind}, {gap.reason}."


def _cell(laws: list[str], lacking: list[str]) -> str:
    if not lacking:
        return "yes"
    return "no" if len(lacking) == len(laws) else f"all but {len(lacking)}"


def written(text: str, harnesses: Sequence[type[Harness]]) -> str:
    """A document with the table between its markers."""
    before, found, rest = text.partition(BEGIN)
    if not found:
        raise ValueError(f"there is no {BEGIN} in it")
    return "\n".join([before + BEGIN, "", *lines(harnesses), "", END]) + rest.partition(END)[2]


def main(arguments: Sequence[str]) -> None:
    """Write the table of this project's engines into a file that has its markers."""
    (path,) = map(Path, arguments)
    path.write_text(written(path.read_text(encoding="utf-8"), [load(name) for name in ENGINES]), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
