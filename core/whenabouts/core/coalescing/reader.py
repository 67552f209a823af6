"""How rows enter a coalescing operator: the checked reader of an input, and blocks without their late rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from whenabouts.core.coalescing.equivalence import check_comparable
from whenabouts.core.coalescing.settings import CoalescingSpec
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.runtime.option_checks import columns_shown
from whenabouts.core.runtime.protocol import Arrival, Step
from whenabouts.core.runtime.watermarks import drop_late
from whenabouts.core.times.time_specs import Point


def coalescing_reader(input: int, name: str, schema: pa.Schema, time: Point, spec: CoalescingSpec) -> EventReader:
    """The reader of an input, once its group and value columns are known to exist and to be comparable.

    Raises InputError WA-1001 for a missing column, WA-1023 for one that cannot be compared, QueryError WA-2009 for one
    that is named twice.
    """
    names, existing = (*spec.group, *spec.values), frozenset(schema.names)
    occurrences = Counter(names)
    for column in names:
        if column not in existing:
            raise InputError(
                Code.MISSING_COLUMN,
                f"the {name} input has no column {column!r}",
                columns_shown(schema),
            )
        if occurrences[column] > 1:
            raise QueryError(
                Code.COLUMN_CLASH, f"column {column!r} is named twice", "a column is either a group or a value"
            )
    reader = EventReader(input, name, schema, time, groups=spec.group)
    check_comparable(spec.equivalence, reader.schema, spec.values)
    return reader


def timely_blocks(
    readers: Sequence[EventReader], arrivals: Sequence[Arrival], watermark_us: int, step: Step
) -> list[list[pa.RecordBatch]]:
    """The blocks of every input without their late rows, which are rejected.

    The other rows do not count as processed yet: the reorder buffer counts them when it releases them.
    """
    blocks: list[list[pa.RecordBatch]] = [[] for _ in readers]
    for arrival in drop_late(readers, arrivals, watermark_us, step, count_processed=False):
        blocks[arrival.input].append(arrival.block)
    return blocks
