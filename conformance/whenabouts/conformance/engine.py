"""An engine under test, as the laws use it: it runs a query once and remembers the outcome."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

import pyarrow as pa

from whenabouts.conformance.case_tables import dataset, finite, stream
from whenabouts.core.harness import Capabilities, Harness, Variant
from whenabouts.core.local import Outcome
from whenabouts.core.runtime.protocol import Query

GROUP = "whenabouts.conformance.engines"
"""Entry point group in which an adapter names its harness."""

BATCH = Variant()


class UnknownEngineError(LookupError):
    """No harness of this name is installed."""


def load(name: str) -> type[Harness]:
    """The harness class of an engine: by the name of its entry point, or as `module:Class`.

    Raises UnknownEngineError with the names there are.
    """
    if ":" in name:
        module, _, attribute = name.partition(":")
        loaded: Any = getattr(importlib.import_module(module), attribute)
        return loaded  # type: ignore[no-any-return]  # whatever the user named
    found = {point.name: point for point in entry_points(group=GROUP)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none is installed"
        raise UnknownEngineError(
            f"no engine is called {name!r} (known: {known}); `--engine module:Class` names a class"
        )
    return found[name].load()  # type: ignore[no-any-return]  # as above


class Engine:
    """A started engine. Equal runs are run once: several laws look at different sides of one outcome."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.name = harness.name
        self._outcomes: dict[tuple[object, ...], tuple[Outcome, object]] = {}
        self._seconds: dict[bool, float] = {}

    @property
    def capabilities(self) -> Capabilities:
        """The engine's declared capabilities."""
        return self.harness.capabilities

    def seconds_per_run(self, variant: Variant) -> float:
        """The cost of a small run of this kind, by which laws choose their number of examples."""
        if variant.streaming not in self._seconds:
            source, streaming = dataset("points"), variant.streaming
            self.run(
                source.query, stream("points", (3, 3)) if streaming else finite("points"), Variant(streaming=streaming)
            )
        return self._seconds[variant.streaming]

    def run(
        self, query: Query, inputs: Mapping[str, Sequence[pa.Table]], variant: Variant = BATCH, *, remember: bool = True
    ) -> Outcome:
        """The outcome of `query` over files of each input, under `variant`."""
        if not remember:
            return self._run(query, inputs, variant)
        tables = tuple((name, tuple(id(table) for table in files)) for name, files in inputs.items())
        key = (repr(query), variant, tables)
        if key not in self._outcomes:  # the inputs are kept with it, so that an id is not used again
            self._outcomes[key] = (self._run(query, inputs, variant), inputs)
        return self._outcomes[key][0]

    def _run(self, query: Query, inputs: Mapping[str, Sequence[pa.Table]], variant: Variant) -> Outcome:
        run = self.harness.open(query, variant)
        for name, files in inputs.items():
            run.source(name, files)
        started = time.perf_counter()
        outcome = run.collect()
        seconds = time.perf_counter() - started
        self._seconds[variant.streaming] = min(seconds, self._seconds.get(variant.streaming, seconds))
        return outcome
