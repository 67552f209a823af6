"""Options that name an input: `NAME=PATH`, `[NAME=]SPEC`, and one duration for all inputs or for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from whenabouts.cli.given_files import input_path
from whenabouts.cli.options import names, time_spec
from whenabouts.cli.say import say

if TYPE_CHECKING:
    from whenabouts.core.times.time_specs import TimeSpec


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


def times_by_name(inputs: Sequence[str], arguments: dict[str, Any], aliases: Sequence[str] = ()) -> dict[str, TimeSpec]:
    """Times by name, from `--time [NAME=]SPEC`: a time without a name is for all `inputs` that have none of their own.

    `aliases`: further names that a time may be given for.
    """
    specs: dict[str, TimeSpec] = {}
    for text in arguments["times"]:
        name, equals, rest = text.partition("=")
        one = bool(equals) and name in (*inputs, *aliases)
        spec = time_spec(rest if one else text, "--time", arguments["max_uncertainty"], arguments["min_uncertainty"])
        specs |= {name: spec} if one else {each: spec for each in inputs if each not in specs}
    return specs


def lateness_by_name(inputs: Sequence[str], text: str | None) -> dict[str, str]:
    """Lateness by input, from `--lateness D` or `--lateness D,D,...`; none without the option.

    >>> lateness_by_name(["a", "b"], "5s"), lateness_by_name(["a", "b"], "5s,1m")
    ({'a': '5s', 'b': '5s'}, {'a': '5s', 'b': '1m'})
    """
    given = names(text) or ("0s",)
    if len(given) not in (1, len(inputs)):
        raise click.BadParameter(f"{text!r} is not one duration, or one for each input", param_hint="--lateness")
    return dict(zip(inputs, given * len(inputs) if len(given) == 1 else given, strict=True))
