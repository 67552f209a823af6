"""The output of a step: when rows are final, and the columns of a mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core import metrics
from whenabouts.core.arrays.typing import BoolArray, FloatArray, IntArray
from whenabouts.core.joins.output_columns import (
    EVENT_TIME,
    PROBABILITY,
    Column,
    OfRows,
    OwnColumns,
    PairColumns,
    event_times,
)
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Step
from whenabouts.core.timing_join.modes import Mode


class FinalTimes(NamedTuple):
    """When no future row can match a row, by input: `obsolete_before(input, watermark)` is the operator's bound.

    The bound is the watermark plus a constant. In batch there are no instants, and everything is final at the end.
    """

    obsolete_before: Callable[[int, int], int]
    streaming: bool

    def before(self, input: int, until_us: int) -> int:
        """The bound at the watermark `until_us`: rows with a lesser `t_max` are final."""
        if until_us in (NO_WATERMARK, END_OF_TIME):
            return until_us
        return self.obsolete_before(input, until_us)

    def instants(self, input: int, t_max: IntArray) -> IntArray:
        """The least watermark at which each row is final."""
        return t_max + (1 - self.obsolete_before(input, 0)) if self.streaming else np.zeros_like(t_max)


class JoinOutput:
    """The output columns of a mode; counts emitted rows.

    Inner and outer modes: `PairColumns`, with key columns in their common type if a right row alone can fill them. Semi
    and anti: the left columns. Then `probability` (pairs only), and on streams `event_time`.
    """

    def __init__(
        self,
        mode: Mode,
        schemas: tuple[pa.Schema, pa.Schema],
        *,
        keys: tuple[str, ...],
        key_types: tuple[pa.DataType, ...],
        suffixes: tuple[str, str],
        probability: bool,
        streaming: bool,
    ) -> None:
        self._probability, self._streaming = probability and not mode.one_sided, streaming
        extra = [pa.field(PROBABILITY, pa.float64())] if self._probability else []
        extra += [pa.field(EVENT_TIME, pa.timestamp("us", "UTC"))] if streaming else []
        self._own = OwnColumns(schemas[0], extra) if mode.one_sided else None
        shared = None if 1 not in mode.preserved else _shared_types(schemas, keys, key_types)
        if self._own is None:
            self._pairs = PairColumns(*schemas, keys=keys, suffixes=suffixes, extra=extra, key_types=shared)
        self.schema = self._pairs.schema if self._own is None else self._own.schema

    def pairs(
        self,
        left: pa.Table,
        right: pa.Table,
        pairs: tuple[NDArray[np.int32], NDArray[np.int32]],
        probability: FloatArray | OfRows | None,
        event_us: IntArray | None,
        step: Step,
    ) -> Iterator[pa.RecordBatch]:
        """Pairs of rows; `probability` and `event_us` are needed if the schema has them."""
        extra: list[Column | OfRows | None] = [probability] if self._probability else []
        extra += [_as_time(event_us)] if self._streaming else []
        step.metrics[metrics.MATCHED] += len(pairs[0])
        return self._pairs.batches(left, right, pairs, extra)

    def alone(
        self, input: int, rows: pa.Table, at: IntArray | NDArray[np.int32], event_us: IntArray, step: Step
    ) -> Iterator[pa.RecordBatch]:
        """Rows `at` of one input without a partner; `event_us`: their event times."""
        extra: list[NDArray[np.generic] | None] = [None] if self._probability else []
        extra += [_as_time(event_us)] if self._streaming else []
        step.metrics[metrics.MATCHED] += len(at)
        positions = at.astype(np.int32)
        if self._own is not None:
            return self._own.rows(rows, positions, extra)
        return self._pairs.unmatched(input, rows, positions, extra)

    def unmatched(
        self, input: int, rows: pa.Table, alone: BoolArray, event_us: IntArray, step: Step
    ) -> Iterator[pa.RecordBatch]:
        """The rows where `alone` is true, which found no partner."""
        at = np.flatnonzero(alone)
        step.metrics[metrics.UNMATCHED] += len(at)
        return self.alone(input, rows, at, event_us[at], step)


def _as_time(us: IntArray | None) -> NDArray[np.generic] | None:
    return None if us is None else event_times(us)


def _shared_types(
    schemas: tuple[pa.Schema, pa.Schema], keys: tuple[str, ...], compared: tuple[pa.DataType, ...]
) -> list[pa.DataType]:
    """The types of key columns that either side can fill: the type of both, or if they differ the common type."""
    types = [[schema.field(name).type for schema in schemas] for name in keys]
    return [left if left == right else both for (left, right), both in zip(types, compared, strict=True)]
