"""Inputs that take rows back or replace them: a query takes rows that stay, and says so before there is a job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyflink.datastream import DataStream

from whenabouts.core.errors import Code, InputError

_CHANGES = ("GroupAggregate", "GlobalGroupAggregate", "IncrementalGroupAggregate", "Rank", "ChangelogNormalize")
"""Operators of Flink's planner that change rows which they have given, by the beginning of their names."""

_SOME_CHANGE = {"Join": ("Outer", "Anti"), "Deduplicate": ("LastRow", "ROWTIME")}
"""Others that do so where their descriptions say one of these."""

_PASS_ON = ("TableToDataStream", "Calc", "Union", "ConstraintEnforcer", "DropUpdateBefore", "SinkMaterializer")


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


def require_rows_only(stream: DataStream, input: str) -> None:
    """Raise InputError WA-1065 for what `to_changelog_stream` made of a Table of changes.

    The stream says nothing of it; the operators that the Table was made of do. What a source changes by itself is not
    seen here: Flink ends the job at the first such row.
    """
    transformation = stream._j_data_stream.getTransformation()
    if transformation.getName().startswith("TableToDataStream") and _gives_changes(transformation):
        raise changes(input)


def _gives_changes(transformation: Any) -> bool:
    name, described = str(transformation.getName()), str(transformation.getDescription())
    if name.startswith(_CHANGES):
        return True
    for operator, words in _SOME_CHANGE.items():
        if name.startswith(operator):
            return any(word in described for word in words)
    return name.startswith(_PASS_ON) and any(map(_gives_changes, transformation.getInputs()))
