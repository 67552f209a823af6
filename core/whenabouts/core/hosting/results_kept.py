"""Facts about results besides their rows, kept as long as the result object lives."""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar

from whenabouts.core.errors import Code, QueryError

Known = TypeVar("Known")


class ResultsKept(Generic[Known]):
    """One fact about each result. No cost remains once the result is gone.

    >>> class Rows: ...
    >>> kept, rows = ResultsKept[str](), Rows()
    >>> kept.keep(rows, "two rows were rejected")
    >>> kept.of(rows)
    'two rows were rejected'
    """

    def __init__(self) -> None:
        self._known: dict[int, Known] = {}

    def keep(self, result: Any, known: Known) -> None:
        """Keep a fact about a result until the result is garbage; it need not be hashable."""
        key = id(result)
        if key not in self._known:
            weakref.finalize(result, self._known.pop, key, None)
        self._known[key] = known

    def of(self, result: Any) -> Known:
        """The fact about a result. Raises QueryError WA-2006 for any other object."""
        if id(result) not in self._known:
            raise QueryError(
                Code.BAD_OPTION,
                f"this {type(result).__name__} is not a result of whenabouts",
                "give the object that a function of whenabouts returned, not a copy or a part of it",
            )
        return self._known[id(result)]
