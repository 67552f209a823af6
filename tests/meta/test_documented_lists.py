"""Lists in the documentation are complete: what has a name in the code has a row or a word on its page."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
import pytest

import whenabouts as wa
from whenabouts.cli.app import main
from whenabouts.core.clocks.profile.findings import Kind
from whenabouts.core.expressions import sql
from whenabouts.core.hosting.operation_names import OPERATION_NAMES
from whenabouts.core.join_aggregate import functions
from whenabouts.core.sources import replay_options

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
COMMANDS = main.list_commands(click.Context(main))


def _page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def _section(page: str, heading: str) -> str:
    """The text under a heading, to the next one of its level or above."""
    after = f"\n{_page(page)}".partition(f"\n{heading}\n")[2]
    return re.split(rf"^#{{1,{heading.index(' ')}}} ", after, maxsplit=1, flags=re.MULTILINE)[0]


def _named(text: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", text))


def _rows(text: str) -> set[str]:
    """The names in backticks that the first cells of a table have."""
    return {name for cell in re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE) for name in _named(cell)}


def test_every_public_function_is_on_a_page_of_the_documentation() -> None:
    """The reference has all names, by their docstrings; but a function that no page explains is not found."""
    pages = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("*.md"))
    functions = {name for name in wa.__all__ if inspect.isroutine(getattr(wa, name))}
    assert len(functions) > 30
    assert {name for name in functions if not re.search(rf"\b{name}\b", pages)} == set()


def test_every_kind_of_finding_has_a_row() -> None:
    assert _rows(_section("profile.md", "## What it looks for")) == set(get_args(Kind))


def test_every_reason_has_a_row() -> None:
    assert _rows(_section("why-and-chance.md", "## Why, or why not")) == set(wa.Reason)


def test_every_environment_variable_has_a_row() -> None:
    sources = [path.read_text(encoding="utf-8") for path in REPOSITORY.glob("*/whenabouts/**/*.py")]
    of_tests = {"WHENABOUTS_FULL"}
    named = {name for text in sources for name in re.findall(r"\bWHENABOUTS_[A-Z_]+\b", text)} - of_tests
    assert _rows(_section("operations.md", "## Environment variables")) == named


def _options(command: str) -> Iterator[click.Option]:
    found = main.get_command(click.Context(main), command)
    assert found is not None
    for param in found.params:
        if isinstance(param, click.Option) and not param.hidden:
            yield param


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_of_the_command_line_names_every_option(command: str) -> None:
    written = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", _page("command-line.md") + _page("demo.md")))
    missing = [param.opts for param in _options(command) if not written & {*param.opts, *param.secondary_opts}]
    assert missing == []


def test_the_page_of_the_command_line_names_no_other_option() -> None:
    known = {name for command in COMMANDS for option in _options(command) for name in option.opts}
    written = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", _page("command-line.md")))
    assert written - known == {"--help"}


def test_the_page_of_host_options_names_every_operation() -> None:
    begin = _section("engine-options.md", "# Host options").partition(")")[0]
    assert _named(begin) - {"run"} == set(OPERATION_NAMES) - {"rejects"}


def _changeable() -> Iterator[tuple[str, str]]:
    point: Any = {"left_time": wa.Point("t"), "right_time": wa.Point("t")}
    near: Any = {"condition": wa.within("1 s", confidence=1)}
    queries = (
        wa.TimingJoin(**point, **near),
        wa.AsofJoin(**point),
        wa.JoinAggregate(**point, **near, aggregates={"n": "count"}),
        wa.Coalesce(time="t", values="v"),
    )
    for query in queries:
        yield from ((type(query).__name__, option) for option in sorted(query.changeable))


@pytest.mark.parametrize(("query", "option"), list(_changeable()))
def test_what_may_change_at_a_restart_is_on_its_page(query: str, option: str) -> None:
    assert option in _named(_page("changing-a-query.md")) | {"condition", "confidence"}  # these two are words there


@pytest.mark.parametrize(
    ("heading", "known"), [("## Decided functions", functions._DECIDED), ("## Chance functions", functions._CHANCE)]
)
def test_every_function_of_join_aggregates_has_a_row(heading: str, known: dict[str, int]) -> None:
    assert {name.partition(":")[0] for name in _rows(_section("join-aggregate.md", heading))} == set(known)


def test_every_function_of_sql_conditions_is_named() -> None:
    expressions = pytest.importorskip("sqlglot").exp
    classes = {name: getattr(expressions, name) for name in sql._OPERATIONS}
    known = {name.upper() for name, of in classes.items() if issubclass(of, expressions.Func)} - {"AND", "OR"}
    sentence = _section("window-join.md", "## Predicates").partition("and the functions")[2].partition(".")[0]
    assert _named(sentence) == known


def test_every_option_of_the_replay_has_a_row() -> None:
    source = pytest.importorskip("whenabouts.spark_plugin.replay_source")
    known = {*replay_options.KNOWN, source.MOST_ROWS, source.PUSHDOWN, source.END_OF_INPUT} - {"path"}
    rows = re.findall(r"^\| (.*?) \|", _section("spark.md", "## Replaying event files"), re.MULTILINE)
    assert {name for row in rows for name in _named(row)} == known


def test_every_argument_of_the_table_function_is_named() -> None:
    function = pytest.importorskip("whenabouts.spark_plugin.sql_functions")
    section = _section("spark.md", "## SQL")
    written = set(re.findall(r"(\w+) =>", section)) | {word for name in _named(section) for word in name.split()}
    assert set(function._OPTIONS) - written == set()
