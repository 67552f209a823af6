"""Reads a plan file: queries with their windows and statistics, weights, costs and a budget, as YAML or JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.planner.atomic_costs import read_costs
from whenabouts.planner.cost_model import Sizes, Statistics, Weights
from whenabouts.planner.registry import CoalescingQuery, Registry

Read = TypeVar("Read")

_KNOWN = {"weights", "costs", "sizes", "memory_budget", "time_limit", "queries"}
_KNOWN_OF_QUERY = {"name", "stream", "coalesce", "group", "window", "equivalence", "statistics", "max_scan_time", "pin"}


def read_plan_file(path: str | Path) -> Registry:
    """The registry that a file describes. JSON is read as YAML, of which it is a part.

    Raises: InputError WA-1008 for a file that cannot be read; QueryError WA-2075 for one that is no plan file, with the
    place; and what the values themselves raise.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Code.UNREADABLE_FILE, f"{path}: {error}", "give a YAML or JSON file") from error
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise QueryError(Code.BAD_PLAN_FILE, f"{path}: {' '.join(str(error).split())}", "mend the YAML") from error
    return registry_of(found, str(path))


def registry_of(found: Any, place: str = "plan") -> Registry:
    """The registry that a plan, read already, describes. Raises: as `read_plan_file`.

    >>> registry_of({"queries": [{"name": "hot", "coalesce": ["t"], "window": {"rows": 9}}]}).plan().choices
    {'hot': 'eager'}
    """
    found = _mapping(found, place, _KNOWN)
    registry = Registry(
        weights=_built(Weights, found.get("weights", {}), f"{place}: weights"),
        costs=read_costs(_mapping(found.get("costs", {}), f"{place}: costs", None)),
        sizes=_built(Sizes, found.get("sizes", {}), f"{place}: sizes"),
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
            _query(query, at),
            None if known is None else _built(Statistics, known, f"{at}: statistics"),
            max_scan_time=query.get("max_scan_time"),
            pin=query.get("pin"),
        )
    return registry


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
