"""Checks of the inputs of a query: the right number, each of a kind that the engine can read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.runtime.option_checks import counted, refused, shown, whole_number
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.wrappers.state_limit import StateLimit

MOST_BUCKETS = 1 << 20
"""Each costs a host memory, work in every step and, on the engines, a label that is searched for."""


def check_query(query: Any) -> None:
    """Raise QueryError WA-2006 for an object that is not a query."""
    if isinstance(query, type) or not all(hasattr(query, part) for part in ("inputs", "lateness_us", "operator")):
        raise refused("the query", query, "give a query, as TimingJoin(...)")


def check_inputs(query: Query, inputs: Any, kinds: tuple[type, ...], hint: str) -> None:
    """Refuse another number of inputs than the query has, and objects of other classes than `kinds`.

    Raises QueryError WA-2006 for the number, InputError WA-1062 for an object; `hint` says what an input is.
    """
    if not isinstance(inputs, Sequence) or isinstance(inputs, (str, bytes)):
        raise refused("the list of inputs", inputs, f"give a list with one input for each of {', '.join(query.inputs)}")
    if len(inputs) != len(query.inputs):
        problem = f"the query has {counted(len(query.inputs), 'input')} ({', '.join(query.inputs)}), {len(inputs)} "
        problem += "was given" if len(inputs) == 1 else "were given"
        raise QueryError(Code.BAD_OPTION, problem, "give one for each")
    for name, given in zip(query.inputs, inputs, strict=True):
        check_input(name, given, kinds, hint)


def check_input(name: str, given: Any, kinds: tuple[type, ...], hint: str) -> None:
    """Raise InputError WA-1062 for an object that is not an input."""
    if not isinstance(given, kinds):
        raise not_an_input(name, given, hint)


def not_an_input(name: str, given: Any, hint: str) -> InputError:
    """The error for an object that no query can read."""
    kind = f"{type(given).__module__}.{type(given).__qualname__}".removeprefix("builtins.")
    what = shown(given) if isinstance(given, (str, int, float, type(None))) else f"an object of type {kind}"
    return InputError(Code.NOT_AN_INPUT, f"the {name} input is {what}", hint)


def check_streams(streams: Any, kinds: tuple[type, ...], hint: str) -> None:
    """As `check_inputs`, for inputs by name."""
    hint = 'give inputs by name, as {"a": ..., "b": ...}'
    if not isinstance(streams, Mapping):
        raise refused("the mapping of inputs", streams, hint)
    for name in streams:
        if not isinstance(name, str):
            raise refused("the name of an input", name, hint)
    for name, given in streams.items():
        check_input(name, given, kinds, hint)


def check_hosting(buckets: Any, state_limit: Any = None, threads: Any = None) -> tuple[int | None, int | None]:
    """The numbers of buckets and threads (None: the engine's). Raises QueryError WA-2006 for invalid ones, or for an
    invalid limit on state."""
    numbers = (("buckets", buckets, MOST_BUCKETS), ("threads", threads, None))
    found = [None if number is None else whole_number(name, number, most=most) for name, number, most in numbers]
    if state_limit is not None and not isinstance(state_limit, StateLimit):
        raise refused("state_limit", state_limit, "give StateLimit(rows)")
    return found[0], found[1]
