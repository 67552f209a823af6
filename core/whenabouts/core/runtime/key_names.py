"""Key columns as `on` names them, with the same or different names in the inputs.

A key is a name if all inputs use the same one, and otherwise a tuple of names, one for each input in order. Checkpoints
contain the plain form, so it must not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from whenabouts.core.errors import Code, QueryError

Key: TypeAlias = str | tuple[str, ...]
"""A key column: one name for all inputs, or one for each."""

On: TypeAlias = str | Sequence[str | Sequence[str]] | Mapping[str, str | Sequence[str]] | None
"""What users write: a name, a list of names and of tuples (one name for each input), or names by input."""


def key_names(on: Any, inputs: Sequence[str]) -> tuple[Key, ...]:
    """The keys that `on` names. Raises QueryError WA-2006 for anything else.

    >>> key_names("k", ("left", "right")), key_names(["k", ("region", "reg")], ("left", "right"))
    (('k',), ('k', ('region', 'reg')))
    >>> key_names({"left": ["k", "region"], "right": ["k", "reg"]}, ("left", "right"))
    ('k', ('region', 'reg'))
    """
    if on is None:
        return ()
    if isinstance(on, str):
        return (_key(on, on, inputs),)
    if isinstance(on, Mapping):
        return _by_input(on, inputs)
    if not isinstance(on, Sequence) or isinstance(on, bytes):
        raise _bad(on, inputs)
    return tuple(_key(each, on, inputs) for each in on)


def of_input(keys: Sequence[Key], input: int) -> tuple[str, ...]:
    """The names of the keys in an input.

    >>> of_input(("k", ("region", "reg")), 1)
    ('k', 'reg')
    """
    return tuple(key if isinstance(key, str) else key[input] for key in keys)


def shared(keys: Sequence[Key]) -> tuple[str, ...]:
    """The keys with the same name in all inputs: a join's output has them once."""
    return tuple(key for key in keys if isinstance(key, str))


def described_keys(keys: Sequence[Key]) -> str:
    """The keys in words; empty without keys.

    >>> described_keys(("k", ("region", "reg"))), described_keys(())
    (' on k, region = reg', '')
    """
    return f" on {', '.join(key if isinstance(key, str) else ' = '.join(key) for key in keys)}" if keys else ""


def _by_input(on: Mapping[Any, Any], inputs: Sequence[str]) -> tuple[Key, ...]:
    if set(on) != set(inputs):
        raise _bad(on, inputs)
    named = [[on[name]] if isinstance(on[name], str) else on[name] for name in inputs]
    if not all(isinstance(each, Sequence) for each in named) or len({len(each) for each in named}) != 1:
        raise _bad(on, inputs)
    return tuple(_key(names, on, inputs) for names in zip(*named, strict=True))


def _key(given: Any, on: Any, inputs: Sequence[str]) -> Key:
    names = (given,) * len(inputs) if isinstance(given, str) else given
    if not isinstance(names, Sequence) or len(names) != len(inputs):
        raise _bad(on, inputs)
    if not all(isinstance(name, str) and name for name in names):
        raise _bad(on, inputs)
    return tuple(names) if len(set(names)) > 1 else str(names[0])


def _bad(on: Any, inputs: Sequence[str]) -> QueryError:
    by_input = ", ".join(f'"{name}": [...]' for name in inputs)
    return QueryError(
        Code.BAD_OPTION,
        f"on is {on!r}",
        f"give a column, a list of columns, tuples with the column of each of {', '.join(inputs)}, or {{{by_input}}} "
        "with equally many for each",
    )
