"""Options that name an input: `NAME=PATH`, `[NAME=]SPEC`, and one duration for all inputs or for each."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from whenabouts.cli.given_files import input_path
from whenabouts.cli.options import GRANULARITY, HISTOGRAM, LEARNED, POLLING, lateness_of_inputs, time_spec
from whenabouts.cli.say import say
from whenabouts.core.errors import Code, QueryError

if TYPE_CHECKING:
    import pyarrow as pa

    from whenabouts.core.times.time_specs import TimeSpec


_WITH_PATHS = (GRANULARITY, HISTOGRAM, LEARNED, POLLING)
"""Beginnings of times that may have `=` in a path."""


def paths_by_name(texts: Sequence[str], option: str) -> dict[str, str]:
    """Paths by name, from `NAME=PATH`.

    >>> paths_by_name(["gate=gate.csv", "hall=hall/*.csv"], "--input")
    {'gate': 'gate.csv', 'hall': 'hall/*.csv'}
    """
    paths: dict[str, str] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not (name and equals and path):
            raise click.BadParameter(f"{text!r} is not NAME=PATH", param_hint=option)
        if name in paths:
            raise click.BadParameter(f"two inputs are called {name!r}", param_hint=option)
        paths[name] = path
    return paths


def stream_paths(inputs: Sequence[str], streams: Sequence[str]) -> dict[str, str]:
    """Paths by the names of streams, from `--input NAME=PATH` and its former name `--stream NAME=PATH`, which prints a
    note. Stdin is put into a file."""
    if streams:
        say("note: --stream NAME=PATH is deprecated, write --input NAME=PATH", err=True)
    paths = paths_by_name([*inputs, *streams], "--input")
    return {name: input_path(path, f"the stream {name}") for name, path in paths.items()}


def check_names(given: Collection[str], known: Collection[str], option: str, what: str) -> None:
    """Refuse names that nothing has (QueryError WA-2006). `what`: those who have the known names.

    >>> check_names(["hal"], ["gate", "hall"], "--time", "inputs")
    Traceback (most recent call last):
    whenabouts.core.errors.QueryError: WA-2006: --time names 'hal', and the inputs are gate, hall (hint: did you mean \
'hall'?)
    """
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise QueryError(
                Code.BAD_OPTION,
                f"{option} names {name!r}, and the {what} are {', '.join(known) or 'none'}",
                f"did you mean {near[0]!r}?" if near else "give one of these names, or leave it out",
            )


def times_by_name(inputs: Sequence[str], arguments: dict[str, Any], aliases: Sequence[str] = ()) -> dict[str, TimeSpec]:
    """Times by name, from `--time [NAME=]SPEC`: a time without a name is for all `inputs` that have none of their own.

    `aliases`: further names that a time may be given for.

    Raises: QueryError WA-2006 for an unknown name, and for a time that is of no input; what `time_spec` raises.
    """
    known = list(dict.fromkeys((*aliases, *inputs)))
    named: dict[str, TimeSpec] = {}
    general: list[tuple[str, TimeSpec]] = []
    for text in arguments["times"]:
        name, equals, rest = text.partition("=")
        own = bool(equals) and (name in known or not text.startswith(_WITH_PATHS))
        if own:
            check_names([name], known, "--time", "inputs")
        if own and name in named:
            raise QueryError(Code.BAD_OPTION, f"--time {text} is the second one of {name!r}", "leave one of them out")
        spec = time_spec(rest if own else text, "--time", arguments["max_uncertainty"], arguments["min_uncertainty"])
        if own:
            named[name] = spec
        else:
            general.append((text, spec))
    others = [each for each in inputs if each not in named]
    taken = bool(others) and not (aliases and named.keys() >= set(aliases))
    for text, _ in general[taken:]:
        why = "another one is of all inputs" if taken else "each has its own" if inputs else "none is given"
        raise QueryError(Code.BAD_OPTION, f"--time {text} is of no input: {why}", "say of which: --time NAME=SPEC")
    return {each: spec for each in others for _, spec in general} | named


def time_found(stream: str, schema: pa.Schema, arguments: dict[str, Any]) -> TimeSpec:
    """The time of a stream without `--time`, from its columns; an interval has the lengths that are given.

    Raises: QueryError WA-2114 if the columns do not determine it.
    """
    from whenabouts.core.times.time_specs import Interval
    from whenabouts.planner.text_queries import time_of

    found = time_of(stream, schema)
    if not isinstance(found, Interval):
        return found
    longest, shortest = arguments["max_uncertainty"], arguments["min_uncertainty"]
    return replace(found, max_uncertainty=longest, min_uncertainty=shortest or 0)


def lateness_by_name(inputs: Sequence[str], text: str | None) -> dict[str, str]:
    """Lateness by input.

    >>> lateness_by_name(["a", "b"], "5s,1m")
    {'a': '5s', 'b': '1m'}
    """
    return dict(zip(inputs, lateness_of_inputs(len(inputs), text), strict=True))
