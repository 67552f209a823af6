"""What the conformance suite asks of an engine: open, source, collect.

An adapter's harness is a class with these methods; it is found by name through the entry point group
`whenabouts.conformance.engines` and needs nothing from the suite. `LocalHarness` is the local engine's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import pyarrow as pa

from whenabouts.core.local import Outcome, run, run_stream
from whenabouts.core.runtime.protocol import Query


@dataclass(frozen=True, slots=True)
class Variant:
    """How a law runs a query; every engine gives the same rows for each of them.

    `streaming`: as a streaming query over the files (else batch). `parallelism`: buckets or partitions.
    `restart_after`: make the engine lose its work in the middle of step number n (0-based) after that step has run
    but before it is committed, restart it from the last commit, and continue; None: no restart (streaming only).
    `restarted_as`: the query that continues over the same state after that restart, if it is another one.
    """

    streaming: bool = False
    parallelism: int = 1
    restart_after: int | None = None
    restarted_as: Query | None = None


class Gap(NamedTuple):
    """A capability that an engine does not have: whose gap it is, why, and the issue that follows it."""

    kind: str  # "notimpl" (ours), "notyet" (the engine's), "never"
    reason: str
    issue: str


class Run(Protocol):
    """One query being run."""

    def source(self, input: str, files: Sequence[pa.Table]) -> None:
        """Give an input its files, in the order in which they arrive (file n of every input is in step n)."""

    def collect(self) -> Outcome:
        """Run to the end of the input (the watermark reaches infinity) and return all output and rejects."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do; a gap has its reason, and an unexpected pass of a gap fails the suite.

    `in_process`: it starts nothing and runs a query in milliseconds, so that every law is quick on it.
    """

    gaps: Mapping[str, Gap] = field(default_factory=dict)
    in_process: bool = False


class Harness(Protocol):
    """An engine under test."""

    name: str
    capabilities: Capabilities

    def start(self) -> None:
        """Start the engine, once for the whole suite."""

    def stop(self) -> None:
        """Stop it."""

    def open(self, query: Query, variant: Variant) -> Run:
        """Prepare a run of `query`."""


class LocalHarness:
    """The local engine: operators over dict stores in this process."""

    name = "local"
    capabilities = Capabilities(in_process=True)

    def start(self) -> None:
        """Nothing to start."""

    def stop(self) -> None:
        """Nothing to stop."""

    def open(self, query: Query, variant: Variant) -> Run:
        """Prepare a run of `query`."""
        return _LocalRun(query, variant)


class _LocalRun:
    def __init__(self, query: Query, variant: Variant) -> None:
        self._query, self._variant = query, variant
        self._files: dict[str, Sequence[pa.Table]] = {}

    def source(self, input: str, files: Sequence[pa.Table]) -> None:
        self._files[input] = files

    def collect(self) -> Outcome:
        files = [self._files[name] for name in self._query.inputs]
        if self._variant.streaming:
            step, other = self._variant.restart_after, self._variant.restarted_as
            changes = {} if step is None or other is None else {step: other}
            return run_stream(
                self._query, files, buckets=self._variant.parallelism, restart_after=step, changes=changes
            )
        return run(self._query, [pa.concat_tables(tables) for tables in files], buckets=self._variant.parallelism)
