"""Parses the text of a plan file, YAML or JSON, within limits of size and depth."""

from __future__ import annotations

from reprlib import Repr
from typing import Any

import yaml

from whenabouts.core.errors import Code, QueryError

MOST_VALUES = 100_000
"""The most values of a file; those of an alias count at every use."""

_short = Repr()
_short.maxlist = _short.maxdict = _short.maxtuple = 3
_short.maxlevel = 3
_short.maxstring = _short.maxlong = _short.maxother = 80

DEEPEST = 64
"""The deepest nesting of lists and mappings."""


def values_of_text(text: str, place: str) -> Any:
    """The values of a YAML text.

    Raises: QueryError WA-2075 for invalid YAML, duplicate names in a mapping, values nested too deeply, an alias inside
    its own value, and aliases that expand to too many values.
    """
    try:
        loader = yaml.SafeLoader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return None
            _check(root, place)
            return loader.construct_document(root)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise QueryError(Code.BAD_PLAN_FILE, f"{place}: {' '.join(str(error).split())}", "correct the YAML") from error
    except RecursionError:
        raise _too_deep(place) from None
    except (ValueError, TypeError) as error:
        if isinstance(error, QueryError):
            raise
        raise QueryError(Code.BAD_PLAN_FILE, f"{place}: {error}", "correct the YAML") from error


def _check(root: yaml.Node, place: str) -> None:
    """Count values and levels of every node once, bottom up; aliases share nodes."""
    values: dict[int, int] = {}
    levels: dict[int, int] = {}
    open_: set[int] = set()
    waiting = [(root, False)]
    while waiting:
        node, complete = waiting.pop()
        if complete:
            open_.discard(id(node))
            parts = _parts(node)
            values[id(node)] = 1 + sum(values[id(part)] for part in parts)
            levels[id(node)] = 1 + max((levels[id(part)] for part in parts), default=0)
            if values[id(node)] > MOST_VALUES:
                raise _wrong(node, place, f"aliases expand to more than {MOST_VALUES:,} values", "use fewer aliases")
            if levels[id(node)] > DEEPEST:
                raise _too_deep(place)
        elif id(node) in open_:
            raise _wrong(node, place, "an alias refers to a value that contains it", "write the value out")
        elif id(node) not in values:
            open_.add(id(node))
            waiting.append((node, True))
            waiting += [(part, False) for part in _parts(node)]
            _check_names(node, place)


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _check_names(node: yaml.Node, place: str) -> None:
    seen = set()
    for name, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(name, yaml.ScalarNode) and name.tag != "tag:yaml.org,2002:merge":
            if (name.tag, name.value) in seen:
                raise _wrong(name, place, f"{name.value!r} is given twice", "one of the two would be lost")
            seen.add((name.tag, name.value))


def shown(value: object) -> str:
    """A value for an error message, shortened if it is long.

    >>> shown([["x"] * 9] * 9)
    "[['x', 'x', 'x', ...], ['x', 'x', 'x', ...], ['x', 'x', 'x', ...], ...]"
    """
    return _short.repr(value)


def _wrong(node: yaml.Node, place: str, problem: str, hint: str) -> QueryError:
    line = node.start_mark.line + 1
    return QueryError(Code.BAD_PLAN_FILE, f"{place}: line {line}: {problem}", hint)


def _too_deep(place: str) -> QueryError:
    return QueryError(Code.BAD_PLAN_FILE, f"{place}: values are nested more than {DEEPEST} deep", "a plan file is flat")
