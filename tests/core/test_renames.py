"""docs/renames.md lists every deprecated name: each works, warns, and means the same as the new one."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import whenabouts as wa
from whenabouts.core.hosting.host_options import renamed
from whenabouts.core.hosting.query_identity import identity_of
from whenabouts.core.runtime.protocol import Query

REPOSITORY = Path(__file__).parents[2]


def _table(title: str) -> list[tuple[str, str]]:
    """The rows of the table under a heading of the page."""
    page = (REPOSITORY / "docs" / "renames.md").read_text()
    section = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(.+?)` \| `(.+?)` \|$", section, flags=re.M)


def _found(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


@pytest.mark.parametrize(("old", "new"), _table("Names"))
def test_an_old_name_is_the_new_one_and_warns(old: str, new: str) -> None:
    for engine in ("spark", "flink"):
        if f"{engine}_plugin" in new and find_spec(f"py{engine}") is None:
            pytest.skip(f"py{engine} is not installed")
    expected = _found(new)  # engines emit warnings of their own when they are imported
    with pytest.warns(
        DeprecationWarning, match=re.escape(f"{old} is deprecated: use {new.rpartition('.')[2]}")
    ) as told:
        assert _found(old) is expected
    assert {warning.filename for warning in told} == {__file__}


def test_the_page_has_every_renamed_name() -> None:
    sources = [path.read_text() for path in REPOSITORY.glob("*/whenabouts/**/*.py") if path.name != "deprecation.py"]
    tables = [
        re.findall(r'"(\w+)": "\w+"', found) for text in sources for found in re.findall(r"renamed\(.*?\)", text, re.S)
    ]
    assert sorted(name for names in tables for name in names) == sorted(
        old.rpartition(".")[2] for old, _ in _table("Names")
    )


OPTIONS = [("bound", "state_limit", wa.StateLimit(5)), ("dedupe", "deduplicate_by", "k")]


def test_the_page_has_every_renamed_argument() -> None:
    assert _table("Arguments") == [(f"{old}=", f"{new}=") for old, new, _ in OPTIONS]


@pytest.mark.parametrize(("old", "new", "value"), OPTIONS)
def test_an_old_argument_does_what_the_new_one_does_and_warns(old: str, new: str, value: object) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old}= is deprecated: use {new}="):
        assert renamed({old: value}) == {new: value} == renamed({new: value})


QUERIES: dict[str, Callable[[str], Query]] = {
    "equivalence": lambda value: wa.Coalesce(time="t", group="k", values="v", equivalence=value),
    "strategy": lambda value: wa.WindowJoin(
        times={"a": wa.Point("t"), "b": wa.Point("t")}, windows={("a", "b"): "2 s"}, on="k", strategy=value
    ),
}
HOSTED = {"watermarks"}
"""Options of the host, not of a query."""

SCHEMA = pa.schema({"t": pa.int64(), "k": pa.int64(), "v": pa.float64()})


@pytest.mark.parametrize(("old", "new"), _table("Values of options"))
def test_an_old_value_makes_the_same_query_and_warns(old: str, new: str) -> None:
    (name, before), (_, after) = (re.findall(r'\((\w+)="(.+)"\)', call)[0] for call in (old, new))
    if name in HOSTED:
        with pytest.warns(DeprecationWarning, match="is deprecated"):
            assert renamed({name: before}) == renamed({name: after})
        return
    with pytest.warns(DeprecationWarning, match="is deprecated") as told:
        query = QUERIES[name](before)
    assert {warning.filename for warning in told} == {__file__}
    assert query == QUERIES[name](after)


@pytest.mark.parametrize(
    ("name", "value", "recorded"),
    [
        ("strategy", "auto", "'auto'"),
        ("strategy", "backward", "'bew'"),
        ("strategy", "forward", "'few'"),
        ("equivalence", "absolute_tolerance:0.5", "Equivalence(kind='within_value', bound=0.5, predicate=None)"),
        ("equivalence", "relative_tolerance:0.1", "Equivalence(kind='within_relative', bound=0.1, predicate=None)"),
    ],
)
def test_checkpoints_keep_the_names_of_before(name: str, value: str, recorded: str) -> None:
    """As release 0.1.0 wrote them at commit f13ac8d."""
    query = QUERIES[name](value)
    assert identity_of(query, [SCHEMA] * len(query.inputs), 4).settings[name] == recorded


@pytest.mark.parametrize(("old", "new"), _table("Modules"))
def test_an_old_module_has_what_the_new_one_has_and_warns(old: str, new: str) -> None:
    names = [name for name, value in vars(import_module(new)).items() if getattr(value, "__module__", None) == new]
    assert names
    for name in names:
        with pytest.warns(DeprecationWarning, match=f"{old} has moved: import {name} from {new}"):
            assert _found(f"{old}.{name}") is _found(f"{new}.{name}")


def test_the_page_has_every_moved_module() -> None:
    moved = [
        f"whenabouts.core.{path.stem}"
        for path in REPOSITORY.glob("core/whenabouts/core/*.py")
        if "= moved(" in path.read_text()
    ]
    assert sorted(moved) == sorted(old for old, _ in _table("Modules"))


def test_a_script_is_told_which_of_its_lines_to_change(tmp_path: Path) -> None:
    """Python shows a DeprecationWarning where `__main__` is to blame, and hides all others."""
    script = tmp_path / "script.py"
    script.write_text(
        "import whenabouts as wa\n\nwa.WindowJoin.of('ab', wa.Point('t'), windows={('a', 'b'): 1}, strategy='bew')\n"
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert f"{script}:3: DeprecationWarning: strategy='bew' is deprecated: use 'backward'" in ran.stderr


def test_what_is_new_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _, new in _table("Values of options"):
            ((name, value),) = re.findall(r'\((\w+)="(.+)"\)', new)
            if name not in HOSTED:
                QUERIES[name](value)
