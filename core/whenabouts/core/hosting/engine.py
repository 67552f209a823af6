"""What the public functions need of an engine, and which engine a frame belongs to.

An adapter makes one `Engine` and offers it as `ENGINE`; `whenabouts.core.operations` has the functions. No engine is
imported for this: a frame's class says which package it is from, and that one the user has imported already.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from whenabouts.core.callers import users_level
from whenabouts.core.errors import Code, InputError, QueryError, SingleBucketWarning
from whenabouts.core.frames.kinds import Frame
from whenabouts.core.frames.scattered import Scattered
from whenabouts.core.hosting.host_options import HostSettings
from whenabouts.core.hosting.input_checks import check_inputs, check_query, not_an_input
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.wrappers.deduplication import deduplicated
from whenabouts.core.wrappers.payload_decoding import decoded

HOMES = {
    "pyspark": "whenabouts.spark_plugin",
    "pyflink": "whenabouts.flink_plugin",
    "whenabouts.flink_plugin": "whenabouts.flink_plugin",
}
"""By the package that a frame's class is from: the module whose `ENGINE` reads it. Other frames are read in process."""

_IN_PROCESS = "whenabouts.core.local"
_A_FRAME = "give a dataframe of pyarrow, pandas, Polars, DuckDB, Spark or Flink"


@dataclass(frozen=True)
class Engine:
    """An engine, as the public functions know it; a module of an adapter offers it as `ENGINE`.

    `home`: that module. `frames`: the classes of its inputs; `hint` says how to make one. `run`: the rows that a query
    gives over one frame for each of its inputs, in the form of the first. `rejects`: the rows that the query giving a
    result did not process. `lacks`: the host options that it has no meaning for, and why. `parallel`: whether it
    spreads buckets over cores. `pair_ranges`: the pairs of a timing join as ranges, in an engine that has all rows in
    one place. `scattered`: the rows of a frame in parts, None if they cannot be read so.
    """

    name: str
    home: str
    frames: tuple[type, ...]
    hint: str
    run: Callable[[Query, Sequence[Any], HostSettings], Any]
    rejects: Callable[[Any], Any]
    lacks: Mapping[str, str]
    parallel: bool = True
    pair_ranges: Callable[[Any, Sequence[Any], HostSettings], Any] | None = None
    scattered: Callable[[Any], Scattered] | None = None

    def __reduce__(self) -> tuple[Callable[[str], Engine], tuple[str]]:
        """By its home: functions that users call in workers travel there, and the results kept here do not."""
        return _engine_at, (self.home,)

    def check(self, query: Query, inputs: Sequence[Any], settings: HostSettings) -> None:
        """Raise InputError WA-1062 for objects that are not frames, QueryError WA-2006 for another number of them,
        WA-2007 for an option that the engine lacks. Warns (`SingleBucketWarning`, WA-2081) of a query that a parallel
        engine cannot spread."""
        check_query(query)
        check_inputs(query, inputs, self.frames, self.hint)
        settings.refuse(self.name, self.lacks)
        reason = getattr(query, "single_bucket", None) if self.parallel else None
        if reason is not None:
            warnings.warn(f"{Code.SINGLE_BUCKET}: {reason}", SingleBucketWarning, stacklevel=users_level())

    def result(self, query: Query, inputs: Sequence[Any], settings: HostSettings) -> Any:
        """The output of a query over one frame for each of its inputs; errors as `check`, and those of the query."""
        self.check(query, inputs, settings)
        return self.run(decoded(deduplicated(query, settings.deduplicate_by), settings.payloads), inputs, settings)

    def ranges(self, query: Query, inputs: Sequence[Any], settings: HostSettings) -> Any:
        """The pairs of a timing join of finite rows as ranges. Raises QueryError WA-2007 on an engine that spreads rows
        over workers."""
        if self.pair_ranges is None:
            raise QueryError(
                Code.NOT_AVAILABLE,
                f"{self.name} does not support pairs='ranges', which point into one table of all right rows",
                "ask join_aggregate for the numbers, which runs on every engine, or give tables of this process",
            )
        self.check(query, inputs, settings)
        return self.pair_ranges(query, inputs, settings)


def engine_of(frames: Iterable[tuple[str, Any]]) -> Engine:
    """The engine that the frames belong to; they come with the names of their inputs.

    Raises InputError WA-1062 for an object that is not a frame, and for frames of several engines.

    >>> import pyarrow as pa
    >>> engine_of([("left", pa.table({"t": [1]}))]).name
    'the local engine'
    """
    homes = {name: _home_of(name, frame) for name, frame in frames}
    if not homes:
        raise InputError(Code.NOT_AN_INPUT, "there is no input", _A_FRAME)
    engines = {home: _engine_at(home) for home in dict.fromkeys(homes.values())}
    if len(engines) > 1:
        belong = ", ".join(f"the {name} input belongs to {engines[home].name}" for name, home in homes.items())
        raise InputError(Code.NOT_AN_INPUT, belong, "read all inputs with one engine")
    return next(iter(engines.values()))


def _engine_at(home: str) -> Engine:
    engine: Engine = import_module(home).ENGINE
    return engine


def _home_of(name: str, frame: Any) -> str:
    for base in type(frame).__mro__:
        parts = base.__module__.split(".")
        for package in (parts[0], ".".join(parts[:2])):
            if package in HOMES:
                return HOMES[package]
    if isinstance(frame, Frame):
        return _IN_PROCESS
    raise not_an_input(name, frame, _A_FRAME)
