"""The reference pages of the site, from the objects themselves: signatures, docstrings, help texts, codes.

The functions of whenabouts show the options of a query and of the host in signatures that exist at run time only
(`whenabouts.core.hosting.signatures`), so pages are made from imported objects, not from parsed source.
"""

from __future__ import annotations

import ast
import enum
import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import click

import whenabouts as wa
from whenabouts.cli.app import main as command_line
from whenabouts.core.hosting.operation_names import OPERATION_NAMES
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.times.time_specs import TimeSpec

DOCS = Path(__file__).resolve().parent.parent / "docs"
LONG_LINE = 92


@dataclass(frozen=True)
class Page:
    """A page of names of one module."""

    file: str
    title: str
    says: str
    names: tuple[str, ...]
    module: ModuleType = wa


PAGES = (
    Page(
        "operations.md",
        "Operations",
        "What users call. Each takes dataframes of any kind and returns one of the kind of the first "
        "([dataframes](../dataframes.md)); options from `buckets` on are [those of the host](../engine-options.md).",
        (
            "timing_join", "asof_join", "join_aggregate", "window_join", "coalesce", "temporal_aggregate",
            "temporal_join", "watch_clock", "rejects", "run",
        ),
    ),
    Page(
        "times.md",
        "Times",
        "Where the true time of an event lies, given the values in its row ([which one for which data]"
        "(../timestamps.md)), and how late rows may come. A duration is text (`500ms`, `2s`, `1h30m`, `0.5 s`, "
        "`PT1.5S`), a `timedelta`, or a whole number of microseconds.",
        (
            "Point", "Interval", "Histogram", "Template", "from_granularity", "from_polling", "from_latency",
            "from_distribution", "from_clock", "normal", "uniform", "triangular", "exponential", "empirical",
            "Learned", "Lateness",
        ),
    ),
    Page(
        "clocks.md",
        "Clocks",
        "What the clocks of two streams do, read off their rows ([guide](../clocks.md)).",
        (
            "profile", "Profile", "GroupProfile", "Finding", "learn_delay", "learn_clock", "LearnedClock",
            "LearnedClocks",
        ),
    ),
    Page(
        "conditions.md",
        "Conditions",
        "What must hold between the times of two rows: a bound on right minus left, and the least probability.",
        ("within", "deadline", "delay", "between", "overlaps", "possibly", "Condition"),
    ),
    Page(
        "queries.md",
        "Queries",
        "An operation as a value: it is checked when it is made, can be compared and stored, and runs by "
        "[`run`](operations.md#run). Its fields are the options of the operation of the same name.",
        (
            "TimingJoin", "AsofJoin", "JoinAggregate", "WindowJoin", "Coalesce", "TemporalAggregate", "TemporalJoin",
            "WatchClock", "Equivalence", "absolute_tolerance", "relative_tolerance", "WindowExtent",
        ),
    ),
    Page(
        "explaining.md",
        "Explaining results",
        "Why a pair is in the result, how many are accidental, and what was rejected "
        "([with examples](../why-and-chance.md)).",
        (
            "why_not", "PairAnswer", "Reason", "chance_matches", "ChanceMatches", "timeline", "summarise_rejects",
            "RejectsSummary",
        ),
    ),
    Page(
        "streams.md",
        "Streams and clusters",
        "Payloads of messages, limits of state, and what workers need.",
        ("JsonPayload", "AvroPayload", "StateLimit", "build_worker_archive"),
    ),
    Page(
        "planner.md",
        "Planner",
        "Many queries together: see [the planner](../planner.md) and [queries as text](../queries-as-text.md).",
        (
            "Registry", "Plan", "CoalescingQuery", "Statistics", "Workload", "TextQuery", "parse_query",
            "read_plan_file", "PlanChangedWarning",
        ),
    ),
    Page(
        "planner-parts.md",
        "Parts of the planner",
        "What else `whenabouts.planner` has: costs, prices and choices.",
        tuple(name for name in wa.planner.__all__ if name not in wa.__all__),
        wa.planner,
    ),
    Page(
        "spark.md",
        "Spark",
        "What only Spark has, in `whenabouts.spark_plugin` ([Spark](../spark.md)). The operations are those of "
        "[every engine](operations.md).",
        tuple(name for name in wa.spark_plugin.__all__ if name not in OPERATION_NAMES),
        wa.spark_plugin,
    ),
    Page(
        "flink.md",
        "Flink",
        "What only Flink has, in `whenabouts.flink_plugin` ([Flink](../flink.md)). The operations are those of "
        "[every engine](operations.md).",
        tuple(name for name in wa.flink_plugin.__all__ if name not in OPERATION_NAMES),
        wa.flink_plugin,
    ),
    Page(
        "errors.md",
        "Errors, warnings and codes",
        "What to do about each code is on the page [for operators](../operations.md#codes).",
        (
            "WhenaboutsError", "InputError", "QueryError", "EngineError", "RejectedRowsWarning", "EmptyInputWarning",
            "DigitsCutWarning", "DoubtfulTimesWarning", "AtLeastOnceWarning", "LossyQueryWarning", "NotFiniteWarning",
            "MixedZonesWarning",
            "SingleBucketWarning", "Code",
        ),
    ),
)  # fmt: skip
PARTS = {"planner": "planner.md", "spark_plugin": "spark.md", "flink_plugin": "flink.md"}
"""Public names that are modules, and their pages."""


def reference_pages() -> Iterator[tuple[str, str]]:
    """Name and text of each page of the reference that is made from objects."""
    homes = {name: page.file for page in reversed(PAGES) for name in page.names}
    for page in PAGES:
        parts = [f"# {page.title}\n\n{page.says}\n"]
        if page.module is wa.flink_plugin and not find_spec("pyflink"):
            yield page.file, parts[0] + "\nThere is no Flink for the Python that made this site.\n"
            continue
        for name in page.names:
            parts += described(name, getattr(page.module, name), homes, page.file)
        yield page.file, "\n".join(parts)
    yield "command-line.md", "\n".join(_commands())


def described(name: str, thing: Any, homes: dict[str, str], file: str) -> Iterator[str]:
    """Heading, signature, docstring and members of a public name."""
    yield f"## {name}\n"
    if isinstance(thing, type) and issubclass(thing, enum.StrEnum):
        yield _prose(thing.__doc__, homes, file, without=name)
        yield _members(thing)
        return
    exception = isinstance(thing, type) and issubclass(thing, Exception)
    if not exception:
        yield _signature(name, thing)
    yield _prose(thing.__doc__, homes, file, without=name)
    if isinstance(thing, type):
        attributes = [
            [f"`{member}`", " ".join(str(of.__doc__).split())]
            for member, of in _public_members(thing)
            if isinstance(of, property)
        ]
        if attributes:
            yield _table(attributes, ["attribute", "meaning"])
        for member, of in _public_members(thing):
            if not isinstance(of, property):
                yield f"### {name}.{member} {{ #{name.lower()}.{member.lower()} }}\n"
                yield _signature(member, of)
                yield _prose(of.__doc__, homes, file, without=name)


def _public_members(thing: type) -> Iterator[tuple[str, Any]]:
    """The documented methods and properties that users call: not fields, nor what operators ask of their query."""
    others = {field.name for field in fields(thing)} if is_dataclass(thing) else set()
    for protocol in (TimeSpec, Query):
        if all(hasattr(thing, name) for name in vars(protocol) if not name.startswith("_")):
            others |= set(vars(protocol))
    for name, raw in inspect.getmembers_static(thing):
        home = next((of for of in thing.__mro__ if name in vars(of)), object)
        of = raw.__func__ if isinstance(raw, (classmethod, staticmethod)) else raw
        ours = home.__module__.startswith("whenabouts") and not name.startswith("_") and name not in others
        if ours and (isinstance(of, property) or callable(of)) and of.__doc__:
            yield name, of


def _members(thing: type[enum.StrEnum]) -> str:
    """A table of the values of an enumeration, with what the source says of each, of codes the page for operators."""
    notes = _meanings_of_codes() if thing is wa.Code else _notes(thing)
    rows = sorted([f"`{of.value}`", f"`{of.name}`", notes.get(of.name, notes.get(of.value, ""))] for of in thing)
    return _table(rows, ["value", "name", "meaning"])


def _notes(thing: type) -> dict[str, str]:
    """The strings that follow the assignments of a class."""
    (tree,) = ast.parse(dedent(inspect.getsource(thing))).body
    assert isinstance(tree, ast.ClassDef)
    return {
        ast.unparse(before.targets[0]): str(after.value.value)
        for before, after in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(before, ast.Assign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    }


def _meanings_of_codes() -> dict[str, str]:
    rows = [line.split("|") for line in (DOCS / "operations.md").read_text().splitlines() if line.startswith("| WA-")]
    return {code: row[2].strip() for row in rows for code in re.findall(r"WA-\d{4}", row[1])}


def _table(rows: Iterable[Iterable[str]], heads: Iterable[str]) -> str:
    lines = [heads, ["---" for _ in heads], *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _signature(name: str, thing: Any) -> str:
    """A call with its types and defaults, on one line if it fits."""
    try:
        shown = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    options = _options(thing)
    parts: list[str] = []
    kinds = [parameter.kind for parameter in shown.parameters.values()]
    for place, parameter in enumerate(shown.parameters.values()):
        if parameter.name in ("self", "cls") and place == 0:
            continue
        keyword = parameter.kind is parameter.KEYWORD_ONLY
        if keyword and parameter.KEYWORD_ONLY not in kinds[:place] and parameter.VAR_POSITIONAL not in kinds:
            parts.append("*")
        parts.append(_parameter(parameter.replace(annotation=options.get(parameter.name, parameter.annotation))))
    result = (
        ""
        if shown.return_annotation in (shown.empty, None, "None") or isinstance(thing, type)
        else (f" -> {_type(shown.return_annotation)}")
    )
    line = f"{name}({', '.join(parts)}){result}"
    if len(line) > LONG_LINE:
        line = f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){result}"
    return f"```python\n{line}\n```\n"


def _options(thing: Any) -> dict[str, str]:
    """The types of options that a function takes as `**options: Unpack[SomeTypedDict]`."""
    written = getattr(thing, "__annotations__", {}).get("options", "") if inspect.isroutine(thing) else ""
    found = re.fullmatch(r"Unpack\[(\w+)\]", str(written))
    if found is None:
        return {}
    types = inspect.unwrap(getattr(thing, "__func__", thing)).__globals__[found[1]].__annotations__
    return {name: re.sub(r"^Required\[(.*)\]$", r"\1", of.__forward_arg__) for name, of in types.items()}


def _parameter(parameter: inspect.Parameter) -> str:
    stars = "*" * (parameter.kind is parameter.VAR_POSITIONAL) + "**" * (parameter.kind is parameter.VAR_KEYWORD)
    kind = "" if parameter.annotation is parameter.empty else f": {_type(parameter.annotation)}"
    default = parameter.default
    if default is parameter.empty:
        return f"{stars}{parameter.name}{kind}"
    shown = (
        "..."
        if default is MISSING or " object at 0x" in repr(default) or "<factory>" in repr(default)
        else repr(default)
    )
    if isinstance(default, enum.Enum):
        shown = repr(default.value)
    return f"{parameter.name}{kind} = {shown}" if kind else f"{parameter.name}={shown}"


def _type(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _prose(doc: str | None, homes: dict[str, str], file: str, without: str) -> str:
    """A docstring as Markdown: examples become blocks, public names links, the last words of a paragraph stand out."""
    if not doc:
        return ""
    lines: list[str] = []
    inside = False
    for line in inspect.cleandoc(doc).splitlines():
        if line.startswith(">>>") and not inside:
            lines.append("```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line if inside else _linked(line, homes, file, without))
    return "\n".join([*lines, *["```"] * inside, ""])


def _linked(line: str, homes: dict[str, str], file: str, without: str) -> str:
    line = re.sub(r"(^|(?<=\. ))(Raises|Cost|Source|Columns|Warns):", r"**\2:**", line)

    def link(match: re.Match[str]) -> str:
        name = match[1].rpartition(".")[2]
        if name == without or name not in homes or not set(match[1].split(".")[:-1]) <= {"wa", "whenabouts"}:
            return match[0]
        return f"[`{match[1]}`]({'' if homes[name] == file else homes[name]}#{name.lower()})"

    return re.sub(r"`([A-Za-z_][\w.]*)(?:\(\))?`", link, line)


def _commands() -> Iterable[str]:
    """What `--help` says of each command."""
    yield "# Command line\n\nWhat `--help` prints. [With explanations](../command-line.md).\n"
    with click.Context(command_line, info_name="whenabouts", max_content_width=100, terminal_width=100) as root:
        yield f"```text\n{command_line.get_help(root)}\n```\n"
        for name in command_line.list_commands(root):
            command = command_line.get_command(root, name)
            assert command is not None
            with click.Context(command, info_name=name, parent=root, max_content_width=100, terminal_width=100) as of:
                yield f"## whenabouts {name}\n\n```text\n{command.get_help(of)}\n```\n"
