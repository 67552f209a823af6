"""The notebooks of the gallery: their form. `make notebooks` runs them."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

import whenabouts as wa

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))
LINK = re.compile(r"\]\(([^)#]+)(?:#([^)]*))?\)")


def _cells(name: str, kind: str) -> list[dict[str, Any]]:
    cells = json.loads((FOLDER / name).read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == kind]


def _text(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_committed_without_outputs(name: str) -> None:
    for cell in _cells(name, "code"):
        assert (cell["outputs"], cell["execution_count"]) == ([], None)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_has_one_title_and_a_picture(name: str) -> None:
    prose = [_text(cell) for cell in _cells(name, "markdown")]
    assert prose[0].startswith("# ")
    assert sum(text.startswith("# ") for text in prose) == 1
    assert "plt.show()" in "".join(map(_text, _cells(name, "code")))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_uses_public_names_and_no_path_of_its_author(name: str) -> None:
    code = "\n".join(map(_text, _cells(name, "code")))
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            assert not str(node.module).startswith("whenabouts")
        if isinstance(node, ast.Import):
            assert all(alias.name == "whenabouts" or "whenabouts" not in alias.name for alias in node.names)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "wa":
            assert node.attr in wa.__all__
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert not node.value.startswith(("/", "~"))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_links_of_a_notebook_lead_somewhere(name: str) -> None:
    for text in map(_text, _cells(name, "markdown")):
        for target, anchor in LINK.findall(text):
            page = (FOLDER / target).read_text()
            headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
            anchors = [re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings]
            assert not anchor or anchor in anchors


def test_the_index_has_a_line_for_each_notebook() -> None:
    index = (FOLDER / "README.md").read_text()
    assert sorted(re.findall(r"^- \[[^\]]+\]\(([^)]+)\): ", index, re.MULTILINE)) == NOTEBOOKS
    assert len(NOTEBOOKS) == 11
