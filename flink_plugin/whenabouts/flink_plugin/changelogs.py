"""Inputs that take rows back or replace them: a query takes rows that stay, and says so before there is a job."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyflink.datastream import DataStream

from whenabouts.core.errors import Code, InputError
from whenabouts.flink_plugin.java_operators import followed_by

_CHANGING = ("Rank", "SortLimit", "ChangelogNormalize")
"""Kinds of operators of Flink's planner that change rows which they have given; so do aggregates without windows."""

_CHANGES_IF = {
    "Join": ("OuterJoin", "AntiJoin"),
    "MultiJoin": ("LEFT",),
    "Deduplicate": ("outputInsertOnly=[false]",),
}
"""Others that do so if their descriptions say one of these."""


def changes(input: str) -> InputError:
    """The error of such an input."""
    return InputError(
        Code.CHANGES,
        f"the {input} input has updates of rows, not only new rows",
        "aggregate in windows (TUMBLE, HOP) instead of GROUP BY, or after the query",
    )


@contextmanager
def of_rows_only(input: str) -> Iterator[None]:
    """Where a Table becomes a stream: raises InputError WA-1065 for one of changes."""
    try:
        yield
    except Exception as error:  # the planner's, which has no class or code of its own
        if "consuming update" not in str(error):
            raise
        raise changes(input) from error


def rows_only(stream: DataStream, input: str) -> DataStream:
    """A stream of rows that stay. Raises InputError WA-1065 for what `to_changelog_stream` made of a Table of changes.

    The stream says nothing of it; the operators that the Table was made of do, in most cases. What they do not show,
    as of a source that changes rows itself, is seen in the rows: the job ends at the first change, with the same error.
    So it is if functions or unions are in between, which may have left the changes out.
    """
    transformation = stream._j_data_stream.getTransformation()
    if not any(map(_was_table, transformation.getTransitivePredecessors())):
        return stream
    if _was_table(transformation) and _gives_changes(transformation):
        raise changes(input)
    uid, parallelism = f"{input}-rows-only", transformation.getParallelism()
    return followed_by(stream._j_data_stream, "RowsOnly", [str(changes(input))], uid, parallelism=parallelism)


def _was_table(transformation: Any) -> bool:
    return str(transformation.getName()).startswith("TableToDataStream")


def _gives_changes(transformation: Any) -> bool:
    kind, text = _described(transformation)
    if kind in _CHANGING or kind.endswith(("GroupAggregate", "GroupTableAggregate")):
        return True
    if any(word in text for word in _CHANGES_IF.get(kind, ())):
        return True
    if kind.endswith("WindowAggregate"):  # whatever comes in, a window is given once
        return False
    return any(map(_gives_changes, transformation.getInputs()))


def _described(transformation: Any) -> tuple[str, str]:
    """The kind of an operator of the planner, and what it says of itself. (Its name may be that of a table.)

    The description is `[8]:GroupAggregate(groupBy=[k], ...)`, the number left out if names are not simplified.
    """
    text = str(transformation.getDescription())
    found = re.match(r"(?:\[\d+\]:)?(\w+)[(\[]", text)
    return found[1] if found else "", text
