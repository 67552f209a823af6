"""The documentation site: every public name and every page has its place, and no link leads nowhere."""

from __future__ import annotations

import base64
import doctest
import importlib
import inspect
import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import whenabouts as wa
from whenabouts.core.hosting.operation_names import OPERATION_NAMES

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(find_spec("pyflink") is None, reason="the reference of Flink needs Flink")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Each Markdown page of the site by its path."""
    folder, notebooks = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("notebooks")
    for path in (ROOT / "docs" / "notebooks").glob("*.ipynb"):
        notebook = json.loads(path.read_text())
        drawn = {"output_type": "display_data", "data": {"image/svg+xml": "<svg/>"}}
        notebook["cells"].append(_cell("code", "draw()", drawn))
        (notebooks / path.name).write_text(json.dumps(notebook))
    _module("site_pages").gather(folder, notebooks)
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.md")} | {
        "llms.txt": (folder / "llms.txt").read_text()
    }


def _module(name: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / ".ci"))
        return importlib.import_module(name)


def _headings(pages: dict[str, str], *names: str) -> set[str]:
    return {name for page in names for name in re.findall(r"^## (\w+)$", pages[page], re.MULTILINE)}


def test_every_public_name_is_on_a_reference_page(pages: dict[str, str]) -> None:
    """A new name gets its place in PAGES of .ci/reference_pages.py."""
    modules = _module("reference_pages").PARTS
    found = _headings(pages, *(name for name in pages if name.startswith("reference/")))
    assert set(wa.__all__) == (found & set(wa.__all__)) | set(modules)
    for name, page in modules.items():
        own = set(getattr(wa, name).__all__) - set(OPERATION_NAMES)
        on_it = _headings(pages, f"reference/{page}", "reference/planner-parts.md", "reference/streams.md")
        assert own <= on_it, f"{name} has names that are not on {page}"


@pytest.mark.parametrize("operation", OPERATION_NAMES)
def test_the_signature_of_an_operation_has_all_options(operation: str, pages: dict[str, str]) -> None:
    text = pages["reference/operations.md"]
    signature = re.search(rf"^```python\n{operation}\(.*?^```$", text, re.MULTILINE | re.DOTALL)
    assert signature
    options = set(inspect.signature(getattr(wa, operation)).parameters)
    assert options == set(re.findall(r"[(\s](\w+): ", signature[0]))


def test_every_command_and_every_code_is_in_the_reference(pages: dict[str, str]) -> None:
    commands = re.findall(r"^## whenabouts (\S+)$", pages["reference/command-line.md"], re.MULTILINE)
    assert {"join", "coalesce", "doctor"} < set(commands)
    assert set(re.findall(r"`(WA-\d{4})`", pages["reference/errors.md"])) >= set(wa.Code)


def test_every_page_of_docs_is_in_the_navigation_and_in_llms_txt(pages: dict[str, str]) -> None:
    """A new page gets its place in `nav` of mkdocs.yml."""
    listed = set(re.findall(r"\]\(([^)]+\.md)\)", pages["llms.txt"]))
    assert listed <= set(pages)
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= listed
    assert {f"notebooks/{path.stem}.md" for path in (ROOT / "docs" / "notebooks").glob("*.ipynb")} <= listed
    assert {name for name in pages if name.startswith("reference/")} <= listed


def test_links_lead_to_pages_of_the_site(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        for link in re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", text):
            target = (Path("/") / name).parent.joinpath(link).resolve().relative_to("/").as_posix()
            assert target in pages, f"{name} links to {link}"
    assert "docs/" not in "".join(re.findall(r"\]\([^)]+\)", pages["index.md"]))


def test_the_page_of_decisions_lists_them(pages: dict[str, str]) -> None:
    assert "- [1. Operators" in pages["decisions/README.md"]
    for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md"):
        assert f"]({path.name})" in pages["decisions/README.md"]


def test_a_link_to_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = _module("site_pages")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n\n```\n[no](link.md)\n```\n\n![a picture](missing.svg)\n")
    monkeypatch.setattr(site, "ROOT", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"docs/missing\.svg"):
        site.Pages(tmp_path / "out", tmp_path).add(site.PurePosixPath("docs/a.md"))


def test_the_examples_in_its_code_are_true() -> None:
    assert doctest.testmod(_module("site_pages")) == (0, 2)


def _cell(kind: str, source: str, *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": kind, "source": source.splitlines(keepends=True), "outputs": list(outputs)}


def _page(folder: Path, *cells: dict[str, Any]) -> dict[str, bytes]:
    notebook = folder / "n.ipynb"
    notebook.write_text(json.dumps({"cells": cells}))
    return dict(_module("notebook_pages").notebook_page(notebook))


def test_a_notebook_is_a_page_with_its_outputs(tmp_path: Path) -> None:
    printed = {"output_type": "stream", "text": ["a line\n"]}
    drawn = {"output_type": "display_data", "data": {"image/png": base64.b64encode(b"png").decode(), "text/plain": "x"}}
    shown = {
        "output_type": "execute_result",
        "data": {"text/html": ['<table border="1">\n', "  1</table>"], "text/plain": "1"},
    }
    page = _page(tmp_path, _cell("markdown", "# Title\ntext"), _cell("code", "a = 1\nb", printed, drawn, shown))
    assert page["n-3.png"] == b"png"
    assert page["n.md"].decode().split("\n\n") == [
        "# Title\ntext", "``````python\na = 1\nb\n``````", "``````text\na line\n``````",
        "![output of the code above](n-3.png)", '<div class="output"><table>1</table></div>\n',
    ]  # fmt: skip


def test_a_notebook_that_failed_or_was_not_executed_is_no_page(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="execute it first"):
        _page(tmp_path, _cell("code", "1"))
    with pytest.raises(ValueError, match="a cell failed: KeyError: 'k'"):
        _page(tmp_path, _cell("code", "1", {"output_type": "error", "ename": "KeyError", "evalue": "'k'"}))
