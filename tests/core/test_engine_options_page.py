"""docs/engine-options.md lists every host option, and says the same about each engine as the code."""

from __future__ import annotations

import dataclasses
import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from whenabouts.core.hosting.engine import Engine
from whenabouts.core.hosting.host_options import HostSettings

PAGE = Path(__file__).parents[2] / "docs" / "engine-options.md"
ENGINES = ("whenabouts.core.local", "whenabouts.spark_plugin", "whenabouts.flink_plugin")


def cells() -> dict[str, list[str]]:
    """By option: its default, and its meaning on each engine."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].strip("`"): row[1:] for row in rows if len(row) == 2 + len(ENGINES)}


def test_every_host_option_has_a_row() -> None:
    shown = {name: row[0].strip("`") for name, row in cells().items()}
    defaults = {field.name: field.default for field in dataclasses.fields(HostSettings)}
    assert shown == {name: json.dumps(value) if value else str(value) for name, value in defaults.items()}


@pytest.mark.parametrize("place", range(len(ENGINES)))
def test_the_page_says_what_an_engine_lacks_and_why(place: int) -> None:
    if "flink" in ENGINES[place] and not find_spec("pyflink"):
        pytest.skip("there is no Flink for this Python")
    engine: Engine = import_module(ENGINES[place]).ENGINE
    for name, row in cells().items():
        answer, _, why = row[1 + place].partition(": ")
        assert (answer == "no") == (name in engine.lacks), f"{name} on {engine.name}"
        assert set(why.split()) <= set(engine.lacks.get(name, "").replace(",", "").replace(":", "").split())
