"""Runs the notebooks of docs/notebooks and writes them with their outputs to build/notebooks: `make notebooks`.

Each runs in an empty folder, as a reader may have it. It fails if a cell fails or warns, or if it takes too long.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError

ROOT = Path(__file__).parents[1]
SOURCES, TARGET = ROOT / "docs" / "notebooks", ROOT / "build" / "notebooks"
LONGEST_S = 60


def main() -> int:
    TARGET.mkdir(parents=True, exist_ok=True)
    failed = 0
    for file in sorted(SOURCES.glob("*.ipynb")):
        started = perf_counter()
        notebook = nbformat.read(file, as_version=4)
        fault = run(notebook)
        seconds = perf_counter() - started
        if not fault and seconds > LONGEST_S:
            fault = f"took longer than {LONGEST_S} s"
        nbformat.write(notebook, TARGET / file.name)
        print(f"{file.name:35} {seconds:5.1f} s  {fault or 'passed'}", flush=True)
        failed += bool(fault)
    return 1 if failed else 0


def run(notebook: Any) -> str:
    """Execute a notebook in place; what is wrong with it, or an empty text."""
    with TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=LONGEST_S,
            kernel_name="python3",
            record_timing=False,
            extra_arguments=["--log-level=ERROR"],
            resources={"metadata": {"path": folder}},
        )
        try:
            client.execute()
        except (CellExecutionError, CellTimeoutError) as error:
            return f"FAILED\n{error}"
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    warned = [output.text for output in outputs if output.get("name") == "stderr"]
    return "WARNED\n" + "".join(warned) if warned else ""


if __name__ == "__main__":
    sys.exit(main())
