"""The output columns of an as-of join, and which rows come out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core import metrics
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.asof_join.answers import Partners
from whenabouts.core.asof_join.settings import AsofJoinSettings
from whenabouts.core.joins.output_columns import (
    EVENT_TIME,
    PROBABILITY,
    ROWS_PER_BATCH,
    Column,
    Extra,
    OwnColumns,
    PairColumns,
    event_times,
)
from whenabouts.core.runtime.key_names import shared
from whenabouts.core.runtime.output_memory import Growing
from whenabouts.core.runtime.protocol import Step

NONE_PROBABILITY = "none_probability"
"""The output column with the probability that no right row prevails."""


class AsofOutput:
    """Left columns, right columns, `probability` and `none_probability`, on streams `event_time`.

    `left_anti` has no right row.

    Raises QueryError WA-2009 if two columns would have the same name.
    """

    def __init__(self, query: AsofJoinSettings, left: pa.Schema, right: pa.Schema, *, streaming: bool) -> None:
        self._how, self._confidence = query.how, query.least_probability
        self._probability = query.probability
        none = [pa.field(NONE_PROBABILITY, pa.float64())] if query.probability else []
        event = [pa.field(EVENT_TIME, pa.timestamp("us", "UTC"))] if streaming else []
        both = [pa.field(PROBABILITY, pa.float64()), *none] if query.probability else []
        self._own = OwnColumns(left, [*none, *event]) if query.how == "left_anti" else None
        if self._own is None:
            keys = shared(query.key_columns)
            self._pairs = PairColumns(left, right, keys=keys, suffixes=query.suffixes, extra=[*both, *event])
        self.schema = self._pairs.schema if self._own is None else self._own.schema

    def rows(
        self, left: pa.Table, right: pa.Table, partners: Partners, event_us: IntArray | None, step: Step
    ) -> Iterator[pa.RecordBatch]:
        """The output rows; counts them. `event_us`: on streams, the event time of each left row."""
        if self._own is not None:
            none = partners.none
            at = np.flatnonzero(none >= self._confidence).astype(np.int32)
            of = at if partners.left is None else partners.left[at]
            step.metrics[metrics.MATCHED] += len(at)
            step.metrics[metrics.UNMATCHED] += len(at)
            extra: Extra = [none[at]] if self._probability else []
            return self._own.rows(left, of, [*extra, *_as_time(event_us, of)])
        alone = partners.right < 0
        if self._how == "inner" and alone.any():
            partners = partners.where(~alone)
        else:
            step.metrics[metrics.UNMATCHED] += int(np.count_nonzero(alone))
        step.metrics[metrics.MATCHED] += len(partners.right)
        computed = _probabilities(partners) if self._probability else []
        computed += _as_time(event_us, partners.left)
        found = self._pairs.with_partner(left, right, partners.left, partners.right, computed)
        return Growing.after(step.output, "rows").counted(found)


def _as_time(us: IntArray | None, at: NDArray[np.int32] | None) -> list[Column | None]:
    if us is None:
        return []
    return [event_times(us if at is None else us[at])]


def _probabilities(partners: Partners) -> list[Column | None]:
    none = _Alone(partners.right) if partners.none_probability is None else partners.none
    if partners.probability is None:
        return [_Certain(partners.right), none]
    alone = partners.right < 0
    return [pa.array(partners.probability, mask=alone) if alone.any() else partners.probability, none]


class _Certain:
    """The probability of exact partners: 1, and null where there is none. Most batches share one array."""

    def __init__(self, right: NDArray[np.int32]) -> None:
        self._right = right
        self._ones = np.ones(min(len(right), ROWS_PER_BATCH))

    def __getitem__(self, piece: slice) -> pa.Array:
        alone = self._right[piece] < 0
        return pa.array(self._ones[: len(alone)], mask=alone if alone.any() else None)


class _Alone:
    """The probability that an exact left row has no partner: 0 or 1."""

    def __init__(self, right: NDArray[np.int32]) -> None:
        self._right = right
        self._zeros = np.zeros(min(len(right), ROWS_PER_BATCH))

    def __getitem__(self, piece: slice) -> NDArray[np.float64]:
        alone = self._right[piece] < 0
        return alone.astype(np.float64) if alone.any() else self._zeros[: len(alone)]
