"""The names of a job's operators, which are their uids: what is named twice is refused when it is built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyflink.datastream import DataStream, StreamExecutionEnvironment

from whenabouts.core.errors import Code, QueryError


def require_free(env: StreamExecutionEnvironment, name: str, streams: Iterable[DataStream]) -> None:
    """Refuse, as QueryError WA-2191, a name that another query of the job has, and different sources of one name.

    A job is everything that was built in its environment since the last one ran: `env.execute()` begins another.
    `streams` are
    the inputs, since Flink learns of a source from what reads it. Cost: some calls into the JVM for each operator.
    """
    sources: dict[str, int] = {}
    transformations = [*env._j_stream_execution_environment.getTransformations(), *map(_operator, streams)]
    for operator in _with_predecessors(transformations):
        uid = str(operator.getUid())
        if uid == name:
            raise QueryError(
                Code.OPERATOR_NAME_TAKEN,
                f"the job has a query called {name!r}",
                'give each query of a job a name="..." of its own: its state is found again by it',
            )
        # Of a Python operator PyFlink makes another one where it chains them; of a source it never does.
        number = int(operator.getId())
        if uid != "None" and operator.getInputs().isEmpty() and sources.setdefault(uid, number) != number:
            raise QueryError(
                Code.OPERATOR_NAME_TAKEN,
                f"the job has two sources called {uid!r}",
                'give each a name of its own: read_files(env, paths, name="...")',
            )


def _with_predecessors(operators: Iterable[Any]) -> Iterator[Any]:
    """Each operator once, and all those before it."""
    seen: set[int] = set()
    waiting = list(operators)
    while waiting:
        operator = waiting.pop()
        if operator.getId() not in seen:
            seen.add(operator.getId())
            yield operator
            waiting.extend(operator.getInputs())


def _operator(stream: DataStream) -> Any:
    return stream._j_data_stream.getTransformation()
