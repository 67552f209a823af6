"""What `how` of a join is called: our names, and those that Spark, pandas and Polars have for the same."""

from __future__ import annotations

from collections.abc import Sequence

from whenabouts.core.errors import Code, QueryError

_OTHER_NAMES = {
    "left": "left_outer", "right": "right_outer", "outer": "full_outer", "full": "full_outer", "semi": "left_semi",
    "anti": "left_anti",
}  # fmt: skip
"""Spark also accepts any case, and names without the underscore."""

_NO_GAPS = str.maketrans("", "", "_- ")


def how_of(value: object, known: Sequence[str]) -> str:
    """The one of the `known` names that is meant. Raises QueryError WA-2006 if none is.

    >>> how_of("LEFT OUTER", ("inner", "left_outer")), how_of("left", ("inner", "left_outer"))
    ('left_outer', 'left_outer')
    """
    names = {name: own for name, own in _OTHER_NAMES.items() if own in known}
    names |= {name.replace("_", ""): name for name in known}
    how = names.get(str(value).lower().translate(_NO_GAPS))
    if how is None:
        raise QueryError(Code.BAD_OPTION, f"how is {value!r}", f"choose one of {', '.join(known)}")
    return how
