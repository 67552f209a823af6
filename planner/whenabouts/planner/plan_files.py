"""Reads a plan file: queries with their windows and statistics, weights, costs and a budget, as YAML or JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.planner.atomic_costs import AtomicCosts, read_costs
from whenabouts.planner.calibration import Calibration
from whenabouts.planner.cost_model import Sizes, Statistics, Weights
from whenabouts.planner.registry import CoalescingQuery, Registry

Read = TypeVar("Read")

_NAME = re.compile(r"--\s*name:\s*(\S+)")
_COMMENT = re.compile(r"--[^\n]*")
_SKIPPED = re.compile(r"--[^\n]*|'[^']*'|\"[^\"]*\"|;")

_KNOWN = {"weights", "costs", "sizes", "memory_budget", "time_limit", "queries"}
_KNOWN_OF_QUERY = {
    "name",
    "query",
    "stream",
    "coalesce",
    "group",
    "window",
    "equivalence",
    "statistics",
    "max_scan_time",
    "pin",
}


def read_plan_file(path: str | Path, calibrated: Calibration | None = None) -> Registry:
    """The registry that a file describes: YAML, JSON, or with the extension ``.sql`` queries as text.

    ``calibrated``: costs and sizes where the file gives none.

    Raises: InputError WA-1008 for a file that cannot be read; QueryError WA-2075 for one that is no plan file, with the
    place; and what the values themselves raise.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Code.UNREADABLE_FILE, f"{path}: {error}", "give a YAML, JSON or SQL file") from error
    if Path(path).suffix.lower() == ".sql":
        return _registry_of_text(text, calibrated)
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise QueryError(Code.BAD_PLAN_FILE, f"{path}: {' '.join(str(error).split())}", "mend the YAML") from error
    return registry_of(found, str(path), calibrated)


def registry_of(found: Any, place: str = "plan", calibrated: Calibration | None = None) -> Registry:
    """The registry that a plan, read already, describes. Raises: as `read_plan_file`.

    >>> registry_of({"queries": [{"name": "hot", "coalesce": ["t"], "window": {"rows": 9}}]}).plan().choices
    {'hot': 'eager'}
    """
    found = _mapping(found, place, _KNOWN)
    registry = Registry(
        weights=_built(Weights, found.get("weights", {}), f"{place}: weights"),
        costs=_costs(found, place, calibrated),
        sizes=_sizes(found, place, calibrated),
        memory_budget=found.get("memory_budget"),
        time_limit=found.get("time_limit"),
    )
    queries = found.get("queries")
    if not isinstance(queries, list):
        raise _wrong(place, "queries", "a list of queries")
    for number, text in enumerate(queries):
        at = f"{place}: queries[{number}]"
        query = _mapping(text, at, _KNOWN_OF_QUERY)
        if not isinstance(query.get("name"), str):
            raise _wrong(at, "name", "text")
        if query.get("pin") not in (None, "eager", "lazy"):
            raise _wrong(at, "pin", "eager or lazy")
        known = query.get("statistics")
        registry.register(
            query["name"],
            _registrable(query, at),
            None if known is None else _built(Statistics, known, f"{at}: statistics"),
            max_scan_time=query.get("max_scan_time"),
            pin=query.get("pin"),
        )
    return registry


def _costs(found: Mapping[str, Any], place: str, calibrated: Calibration | None) -> AtomicCosts:
    if "costs" not in found and calibrated is not None:
        return calibrated.costs
    return read_costs(_mapping(found.get("costs", {}), f"{place}: costs", None))


def _sizes(found: Mapping[str, Any], place: str, calibrated: Calibration | None) -> Sizes:
    if "sizes" not in found and "costs" not in found and calibrated is not None:
        return calibrated.sizes
    return _built(Sizes, found.get("sizes", {}), f"{place}: sizes")


def _registry_of_text(text: str, calibrated: Calibration | None) -> Registry:
    """Queries with semicolons between them; a name stands in a comment, ``-- name: hot``."""
    registry = Registry(costs=calibrated.costs, sizes=calibrated.sizes) if calibrated is not None else Registry()
    start = 0
    for end in _statement_ends(text):
        named = _NAME.findall(text[start:end])
        # What stands before a query stays, as blanks: places are those of the file.
        query = re.sub(r"[^\n]", " ", text[:start]) + text[start:end]
        if query.strip() and _COMMENT.sub("", text[start:end]).strip():
            registry.register(named[-1], query) if named else registry.register(query)
        start = end + 1
    return registry


def _statement_ends(text: str) -> Iterator[int]:
    """Where semicolons stand outside of quotes and comments, and where the text ends."""
    for found in _SKIPPED.finditer(text):
        if found[0] == ";":
            yield found.start()
    yield len(text)


def _registrable(query: Mapping[str, Any], at: str) -> CoalescingQuery | str:
    """The query's text, or the query that its parts describe."""
    if "query" not in query:
        return _query(query, at)
    others = sorted({"coalesce", "group", "window", "equivalence", "stream"} & set(query))
    if others or not isinstance(query["query"], str):
        told = f"query stands beside {', '.join(others)}" if others else "query is no text"
        raise QueryError(Code.BAD_PLAN_FILE, f"{at}: {told}", "give the text, or the parts")
    return query["query"]


def _query(query: Mapping[str, Any], at: str) -> CoalescingQuery:
    window = _mapping(query.get("window"), f"{at}: window", {"rows", "range"})
    columns = {name: _columns(query.get(name, ()), f"{at}: {name}") for name in ("coalesce", "group")}
    others = {name: query[name] for name in ("equivalence", "stream") if name in query}
    return _built(CoalescingQuery, {**columns, **window, **others}, at)


def _columns(value: Any, at: str) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise QueryError(Code.BAD_PLAN_FILE, f"{at} is {value!r}", "give a list of column names")
    return tuple(names)


def _mapping(value: Any, at: str, known: set[str] | None) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise QueryError(Code.BAD_PLAN_FILE, f"{at} is {value!r}", "give names with values")
    unknown = [] if known is None else [str(name) for name in value if name not in known]
    if unknown:
        raise QueryError(
            Code.BAD_PLAN_FILE, f"{at}: unknown {', '.join(unknown)}", f"known are {', '.join(sorted(known or ()))}"
        )
    return value


def _built(kind: Callable[..., Read], values: Any, at: str) -> Read:
    try:
        return kind(**_mapping(values, at, None)) if not isinstance(values, list) else kind(*values)
    except TypeError as error:
        raise QueryError(Code.BAD_PLAN_FILE, f"{at}: {error}", "see the plan file's form in the docs") from error


def _wrong(at: str, name: str, wanted: str) -> QueryError:
    return QueryError(Code.BAD_PLAN_FILE, f"{at}: {name} is missing or of another kind", f"give {wanted}")
