"""Reads plan files: queries with windows and statistics, weights, costs and a budget, as YAML, JSON or SQL."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from whenabouts.core.costs.choices import Workload
from whenabouts.core.costs.eager_lazy_cost import Statistics
from whenabouts.core.costs.operation_costs import AtomicCosts, read_costs
from whenabouts.core.costs.prices import Sizes, Weights
from whenabouts.core.errors import Code, InputError, QueryError, WhenaboutsError
from whenabouts.core.runtime.option_checks import refused
from whenabouts.planner.calibration import Calibration
from whenabouts.planner.coalescing_queries import CoalescingQuery
from whenabouts.planner.plan_joins import (
    JOINS,
    STREAM_KEYS,
    stream_of,
)
from whenabouts.planner.plan_text import shown, values_of_text
from whenabouts.planner.registry import Registry
from whenabouts.planner.streams import Stream

Read = TypeVar("Read")

_NAME = re.compile(r"--\s*name:\s*(\S+)")
_COMMENT = re.compile(r"--[^\n]*")
_SKIPPED = re.compile(r"--[^\n]*|'[^']*'|\"[^\"]*\"|;")

_KNOWN = {
    "weights", "costs", "sizes", "memory_budget", "time_limit", "hysteresis", "streams", "every", "parallelism",
    "queries",
}  # fmt: skip
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


def read_plan_file(
    path: str | PathLike[str], calibrated: Calibration | None = None, streams: Mapping[str, Stream] | None = None
) -> Registry:
    """The registry that a file describes: YAML, JSON, or with the extension ``.sql`` queries as text.

    ``calibrated``: costs and sizes if the file gives none. ``streams``: descriptions of streams besides the file's.

    Raises: InputError WA-1008 for a file that cannot be read; QueryError WA-2006 for what is no path, WA-2075, with the
    position, for a file that is not a plan file; and what the values themselves raise.
    """
    if not isinstance(path, str | PathLike):
        raise refused("path", path, "give the path of a YAML, JSON or SQL file")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Code.UNREADABLE_FILE, f"{path}: {error}", "give a YAML, JSON or SQL file") from error
    if Path(path).suffix.lower() == ".sql":
        return _registry_of_text(text, calibrated, streams or {})
    return registry_of(values_of_text(text, str(path)), str(path), calibrated, streams)


def registry_of(
    found: Any,
    place: str = "plan",
    calibrated: Calibration | None = None,
    streams: Mapping[str, Stream] | None = None,
) -> Registry:
    """The registry that a parsed plan file describes. Raises: as `read_plan_file`.

    >>> registry_of({"queries": [{"name": "hot", "coalesce": ["t"], "window": {"rows": 9}}]}).plan().choices
    {'hot': 'eager'}
    """
    with _placed(place):
        return _registry_of(_mapping(found, place, _KNOWN), place, calibrated, streams)


def _registry_of(
    found: Mapping[str, Any], place: str, calibrated: Calibration | None, streams: Mapping[str, Stream] | None
) -> Registry:
    described = dict(streams or {})
    for name, told in _mapping(found.get("streams", {}), f"{place}: streams", None).items():
        at = f"{place}: streams: {name}"
        described[str(name)] = stream_of(_mapping(told, at, set(STREAM_KEYS)), at, described.get(str(name)))
    more = {name: found[name] for name in ("hysteresis", "every", "parallelism") if name in found}
    registry = Registry(
        weights=_built(Weights, found.get("weights", {}), f"{place}: weights"),
        costs=_costs(found, place, calibrated),
        sizes=_sizes(found, place, calibrated),
        memory_budget=found.get("memory_budget"),
        time_limit=found.get("time_limit"),
        streams=described,
        timing_prices=None if calibrated is None else calibrated.timing,
        **more,
    )
    queries = found.get("queries")
    if not isinstance(queries, list):
        raise _wrong(place, "queries", "a list of queries")
    for number, text in enumerate(queries):
        at = f"{place}: queries[{number}]"
        _register(registry, text, at, described)
    return registry


def _register(registry: Registry, text: Any, at: str, streams: Mapping[str, Stream]) -> None:
    if isinstance(text, Mapping):  # to YAML a bare `on` is the truth value
        text = {"on" if name is True else name: value for name, value in text.items()}
    kind = next((kind for kind in JOINS if isinstance(text, Mapping) and kind in text), None)
    query = _mapping(text, at, set(_KNOWN_OF_QUERY if kind is None else JOINS[kind][0]))
    if not isinstance(query.get("name"), str):
        raise _wrong(at, "name", "text")
    with _placed(at):
        asked = _registrable(query, at) if kind is None else JOINS[kind][1](query, at, streams)
        joins = kind is not None or (isinstance(asked, str) and _joins(asked))
        pin = query.get("pin")
        if not isinstance(pin, str | Mapping | None) or (isinstance(pin, str) and not joins and pin not in _SCHEMES):
            raise _wrong(at, "pin", "eager or lazy, a strategy, or values by option")
        statistics = _statistics(query, at, registry) if joins else _own_statistics(query, at)
        over = query[kind] if kind is not None else None
        scan = query.get("max_scan_time")
        registry.register(query["name"], asked, statistics, stream=over, max_scan_time=scan, pin=pin)


def _statistics(query: Mapping[str, Any], at: str, registry: Registry) -> Workload | None:
    """The workload of a join."""
    if "statistics" not in query:
        return None
    at = f"{at}: statistics"
    given = _mapping(query["statistics"], at, None)
    return _built(Workload, {"every": registry.every, "source": "declared"} | dict(given), at)


def _own_statistics(query: Mapping[str, Any], at: str) -> Statistics | None:
    """The statistics of a coalescing query."""
    return None if "statistics" not in query else _built(Statistics, query["statistics"], f"{at}: statistics")


@contextmanager
def _placed(at: str) -> Iterator[None]:
    """Prefix errors with their position in the file; errors in a query's text have line and column, too."""
    try:
        yield
    except WhenaboutsError as error:
        if error.problem.startswith(at):
            raise
        raise type(error)(error.code, f"{at}: {error.problem}", error.hint) from error
    except (TypeError, ValueError, AttributeError, OverflowError) as error:  # a value of an unexpected type
        raise QueryError(Code.BAD_PLAN_FILE, f"{at}: {error}", "see docs/planner.md for the format") from error


_SCHEMES = ("eager", "lazy")


def _joins(text: str) -> bool:
    from whenabouts.planner.text_queries import parse_query

    return parse_query(text).joins


def _costs(found: Mapping[str, Any], place: str, calibrated: Calibration | None) -> AtomicCosts:
    if "costs" not in found and calibrated is not None:
        return calibrated.costs
    return read_costs(_mapping(found.get("costs", {}), f"{place}: costs", None))


def _sizes(found: Mapping[str, Any], place: str, calibrated: Calibration | None) -> Sizes:
    if "sizes" not in found and "costs" not in found and calibrated is not None:
        return calibrated.sizes
    sizes = _built(Sizes, found.get("sizes", {}), f"{place}: sizes")
    for name in Sizes.__dataclass_fields__:
        if not isinstance(getattr(sizes, name), int | float):
            raise QueryError(
                Code.BAD_PLAN_FILE, f"{place}: sizes: {name} is {shown(getattr(sizes, name))}", "give a number of bytes"
            )
    return sizes


def _registry_of_text(text: str, calibrated: Calibration | None, streams: Mapping[str, Stream]) -> Registry:
    """Queries separated by semicolons; a comment ``-- name: hot`` names the next one."""
    costs, sizes = (None, None) if calibrated is None else (calibrated.costs, calibrated.sizes)
    registry = Registry(streams=streams, costs=costs, sizes=sizes)
    start = 0
    for end in _statement_ends(text):
        named = _NAME.findall(text[start:end])
        if _COMMENT.sub("", text[start:end]).strip():
            # Keep line ends and blanks before a query, so that error positions are those of the file.
            before = text[:start]
            query = "\n" * before.count("\n") + " " * (start - before.rfind("\n") - 1) + text[start:end]
            registry.register(named[-1], query) if named else registry.register(query)
        start = end + 1
    return registry


def _statement_ends(text: str) -> Iterator[int]:
    """Positions of semicolons outside quotes and comments, and the end of the text."""
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
        problem = f"query is given together with {', '.join(others)}" if others else "query is not text"
        raise QueryError(Code.BAD_PLAN_FILE, f"{at}: {problem}", "give either the text or the parts")
    return query["query"]


def _query(query: Mapping[str, Any], at: str) -> CoalescingQuery:
    window = _mapping(query.get("window"), f"{at}: window", {"rows", "range", "per_group", "closed"})
    columns = {name: _columns(query.get(name, ()), f"{at}: {name}") for name in ("coalesce", "group")}
    others = {name: query[name] for name in ("equivalence", "stream") if name in query}
    return _built(CoalescingQuery, {**columns, **window, **others}, at)


def _columns(value: Any, at: str) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise QueryError(Code.BAD_PLAN_FILE, f"{at} is {shown(value)}", "give a list of column names")
    return tuple(names)


def _mapping(value: Any, at: str, known: set[str] | None) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise QueryError(Code.BAD_PLAN_FILE, f"{at} is {shown(value)}", "give a mapping")
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
        raise QueryError(Code.BAD_PLAN_FILE, f"{at}: {error}", "see docs/planner.md for the format") from error


def _wrong(at: str, name: str, wanted: str) -> QueryError:
    return QueryError(Code.BAD_PLAN_FILE, f"{at}: {name} is missing or has the wrong type", f"give {wanted}")
