"""The columns of a join as text: what its streams' columns are called in the result, and those that SELECT names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from whenabouts.core.errors import Code, QueryError
from whenabouts.core.expressions.sql import from_sqlglot
from whenabouts.core.expressions.tree import Expression, rewritten
from whenabouts.core.expressions.tree import column as output_column
from whenabouts.core.timing_join.modes import Mode
from whenabouts.core.wrappers.select_project import Named
from whenabouts.planner.text_scope import Scope, no_column


@dataclass(frozen=True, slots=True)
class JoinColumns:
    """The result of a join. `names`: (alias, column) -> its name in the result. `computed`: columns of no stream.

    `absent`: by alias of a stream that may have no row in a combination, a condition on the result that says so. Its
    keys then have the values of the other stream, as after USING in SQL; written with its alias they are null.
    """

    names: Mapping[tuple[str, str], str]
    computed: Sequence[str]
    keys: Sequence[str]
    absent: Mapping[str, Expression]

    def of(self, node: Expression) -> Expression:
        """A column (alias, name) over the result. Raises QueryError WA-2092 for a stream that the result has not."""
        alias, own = node.value
        if node.value not in self.names:
            raise node.error(
                Code.SQL_COLUMN, f"the result has no columns of {alias}", "semi and anti joins have those of one stream"
            )
        found = replace(node, value=(None, self.names[node.value]))
        if own not in self.keys or alias not in self.absent:
            return found
        return Expression("if", (self.absent[alias], Expression("literal"), found), place=node.place)

    def over_result(self, condition: Expression) -> Expression:
        """A condition with its columns (alias, name) replaced by those of the result."""
        return rewritten(condition, self.of)


def join_columns(scope: Scope, on: Sequence[str], computed: Sequence[str], mode: Mode | None) -> JoinColumns:
    """The result's columns: keys appear once, names of several streams get the alias as a suffix.

    `mode`: that of a timing join. Semi and anti joins have the columns of the first stream, as they are.
    """
    streams = list(scope.streams.items())
    if mode is not None and mode.one_sided:
        alias, stream = streams[0]
        return JoinColumns({(alias, name): name for name in stream.schema.names}, (), (), {})
    owners = Counter(name for _, stream in streams for name in stream.schema.names if name not in on)
    names = {
        (alias, name): f"{name}_{alias}" if owners[name] > 1 else name
        for alias, stream in streams
        for name in stream.schema.names
    }
    preserved = mode.preserved if mode is not None else ()
    absent = {
        streams[1 - input][0]: Expression("is null", (output_column(_time_name(names, *streams[1 - input])),))
        for input in preserved
    }
    return JoinColumns(names, computed, on, absent)


def _time_name(names: Mapping[tuple[str, str], str], alias: str, stream: Any) -> str:
    """A time column of a stream in the result: null if and only if the result's row has no row of the stream."""
    return names[alias, stream.time.columns[0]]


def selected(scope: Scope, result: JoinColumns, items: Sequence[Any] = ()) -> Named | None:
    """The columns of SELECT, or of `items` in their place; None for ``*`` alone."""
    chosen = items or scope.query.clauses.select.expressions
    if len(chosen) == 1 and type(chosen[0]).__name__ == "Star":
        return None
    names, computed = result.names, result.computed
    called: dict[str, set[str]] = {}
    for (_, own_name), output_name in names.items():
        called.setdefault(own_name, set()).add(output_name)

    def over_output(node: Expression) -> Expression:
        table, name = node.value
        if table is None and name in computed:
            return replace(node, value=(None, name))
        try:
            of_all = called.get(name, set())
            if table is None and len(of_all) == 1 and name in of_all:  # a key, or a column of one stream
                return replace(node, value=(None, name))
            return result.of(scope.resolved(node))
        except QueryError as error:
            known = [*(own for _, own in names), *computed]
            raise no_column(node, name, known) if error.problem.endswith(f"{name!r}") else error from None

    found: list[tuple[str, Expression]] = []
    taken_names: set[str] = set()
    done = 0
    for node in chosen:
        inner = node.this if type(node).__name__ == "Alias" else node
        if type(inner).__name__ == "Star":
            found += [(name, output_column(name)) for name in [*dict.fromkeys(names.values()), *computed]]
        elif type(inner).__name__ == "Column" and type(inner.this).__name__ == "Star":
            alias = scope.alias(_as_column(inner))
            stars = [Expression("column", value=(alias, name)) for name in scope.streams[alias].schema.names]
            for each in stars:
                name = free_name(taken_names, [names.get(each.value, ""), f"{each.value[1]}_{alias}"])
                found.append((name, result.of(each)))
        else:
            expression = rewritten(from_sqlglot(inner, scope.query.text), over_output)
            usual = [inner.sql()]
            if type(inner).__name__ == "Column":
                in_result = [expression.value[1]] if expression.operation == "column" else []
                usual = [inner.name, *in_result, *([f"{inner.name}_{inner.table}"] if inner.table else [])]
            found.append((node.alias or free_name(taken_names, usual), expression))
        taken_names.update(name for name, _ in found[done:])
        done = len(found)
    return tuple(_distinct(scope, found))


def free_name(taken: Collection[str], names: Sequence[str]) -> str:
    """The first of these names that no column has yet; the first one if all are taken."""
    return next((name for name in names if name not in taken), names[0])


def _as_column(node: Any) -> Any:
    """``A`` of ``A.*``."""
    from sqlglot import exp

    named = exp.column(node.table)
    named.this.meta.update(node.args["table"].meta)
    return named


def _distinct(scope: Scope, columns: list[tuple[str, Expression]]) -> list[tuple[str, Expression]]:
    twice = [name for name, n in Counter(name for name, _ in columns).items() if n > 1]
    if twice:
        raise scope.query.clauses.place.wrong(
            f"two columns of the result are called {twice[0]!r}",
            f"another name: ... AS {twice[0]}_2",
            Code.COLUMN_CLASH,
        )
    return columns
