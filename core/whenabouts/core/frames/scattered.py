"""Rows that are read in parts: those of a dataset, and those of a frame whose rows lie in other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

PartFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[bytes]]
"""What is applied to the batches of a part, where they are; it can be pickled."""


@dataclass(frozen=True)
class Scattered:
    """Rows in parts. `columns`: their schema. `count` counts them; `apply` applies a function to each part's batches,
    which have the named columns in that order, and gives all that it yields. `ordered`: whether parts and rows come in
    the order of arrival. `ignores_case`: names that differ by case only are one column."""

    columns: pa.Schema
    count: Callable[[], int]
    apply: Callable[[Sequence[str], PartFunction], Iterable[bytes]]
    ordered: bool
    ignores_case: bool = False

    @classmethod
    def of(cls, rows: pa.Table | pa.dataset.Dataset) -> Scattered:
        """The rows of a table, or of a Dataset, as one part.

        >>> rows = Scattered.of(pa.table({"a": [1, 2], "b": [3, 4]}))
        >>> rows.count(), list(rows.apply(["b"], lambda batches: (bytes(b.column(0).to_pylist()) for b in batches)))
        (2, [b'\\x03\\x04'])
        """
        if isinstance(rows, pa.Table):
            return cls(
                rows.schema, lambda: rows.num_rows, lambda names, of: of(iter(rows.select(names).to_batches())), True
            )
        return cls(
            rows.schema,
            rows.count_rows,
            lambda names, of: of(iter(rows.scanner(columns=list(names)).to_batches())),
            True,
        )
