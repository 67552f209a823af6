"""The pairs of a timing join as ranges of right rows: the result of `timing_join(pairs="ranges")`.

Experimental. Right rows are ordered by time, so that the partners of a left row that are sure lie side by side: a
hundred million pairs take a few megabytes. Where these numbers are all that is needed, `join_aggregate` gives them at
once, on every engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.record_batches import table_of, take_table
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.join_aggregate.functions import Asked
from whenabouts.core.join_aggregate.query import JoinAggregate
from whenabouts.core.joins.sides import LEFT, RIGHT
from whenabouts.core.runtime.keys import NULL_KEY
from whenabouts.core.runtime.protocol import Rejected, Step
from whenabouts.core.runtime.rejects import reject_rows, rejects_schema
from whenabouts.core.runtime.time_columns import times_cut, warn_of_digits
from whenabouts.core.timing_join.settings import TimingJoinSettings

Frame = TypeVar("Frame")

_INSTEAD = "leave it out, or leave out pairs='ranges'"


class PairRanges(Generic[Frame]):
    """The pairs of left row i: the right rows `start[i]` to `stop[i]` (exclusive), and those that `more[i]` lists.

    `left`: the left rows in their order, and `right` the right rows in the order of the ranges, without those that are
    unusable (`rejects`); right rows with a null key, which meet nobody, are left out too. All are frames of the kind of
    the left input. `start`, `stop` (int64) and `more` (lists of int32) are Arrow arrays with a value for each left row.
    """

    def __init__(self, searched: SearchedPairs, give: Callable[[pa.Table], Frame]) -> None:
        self._searched, self._give = searched, give

    @cached_property
    def left(self) -> Frame:
        """The left rows."""
        return self._give(self._searched.shown(LEFT))

    @cached_property
    def right(self) -> Frame:
        """The right rows, in the order of the ranges."""
        return self._give(self._searched.shown(RIGHT))

    @cached_property
    def rejects(self) -> Frame:
        """The rows that were unusable: `input`, `code`, `reason`, and their own columns."""
        return self._give(self._searched.rejects)

    @property
    def start(self) -> pa.Int64Array:
        """Where the range of each left row begins, as an index of `right`."""
        return pa.array(self._searched.start)

    @property
    def stop(self) -> pa.Int64Array:
        """Where the range of each left row ends: the index after its last row."""
        return pa.array(self._searched.stop)

    @cached_property
    def more(self) -> pa.ListArray:
        """The indices of right rows beside the range of each left row that are its partners too, ascending."""
        return self._searched.more

    @property
    def counts(self) -> pa.Int64Array:
        """How many pairs each left row has. O(left rows)."""
        return pa.array(self._searched.counts)

    def __len__(self) -> int:
        """How many pairs there are."""
        return int(self._searched.counts.sum())

    def pairs(self) -> Frame:
        """The pairs themselves: the rows of `timing_join(pairs="rows")`, those of a left row side by side.

        Cost: O(pairs). Raises QueryError WA-2201 if they do not fit into memory.
        """
        return self._give(self._searched.pairs())

    def aggregate(self, aggregates: Mapping[str, Asked], *, how: str = "left_outer") -> Frame:
        """Numbers about the pairs of each left row: `join_aggregate` with its decided functions, over the same pairs.

        `aggregates`, `how` and the columns are those of `join_aggregate`. Chance functions need right rows that no pair
        has, and are refused (WA-2006). Cost: O(right rows) for each aggregated column, O(1) for each left row and
        function, and O(1) for each row in `more`. Raises: as `join_aggregate`.

        >>> import pyarrow as pa
        >>> import whenabouts as wa
        >>> left, right = pa.table({"t": [5, 50]}), pa.table({"t": [1, 4, 9], "v": [7, 8, 9]})
        >>> ranges = wa.timing_join(left, right, left_time=wa.Point("t"), right_time=wa.Point("t"),
        ...                         condition=wa.within(2, confidence=1), pairs="ranges")
        >>> ranges.aggregate({"n": "count", "total": "sum:v"}).to_pylist()
        [{'t': 5, 'n': 1, 'total': 8}, {'t': 50, 'n': 0, 'total': None}]
        """
        return self._give(self._searched.aggregate(aggregates, how))


def _require_plain(query: TimingJoinSettings) -> None:
    asked = {
        "how": (query.how, "inner"), "best": (query.best, None), "where": (query.where, None),
        "strategy": (query.strategy, "auto"), "block_size": (query.block_size, None),
        "max_latency": (query.max_latency, None),
    }  # fmt: skip
    for name, (value, plain) in asked.items():
        if value != plain:
            raise QueryError(Code.BAD_OPTION, f"ranges of pairs do not go with {name}={value!r}", _INSTEAD)


class SearchedPairs:
    """The rows of two tables as operators read them, and the ranges of a timing join.

    Raises QueryError WA-2006 for modes other than the inner join, for `where`, and for a strategy, which all need the
    pairs one by one. Cost: that of ordering both sides, and a kernel call for each right row beside a range that can
    match; O(1) memory for each left row, and for each such row that does match.
    """

    def __init__(self, query: TimingJoinSettings, tables: Sequence[pa.Table]) -> None:
        _require_plain(query)
        from whenabouts.core.join_aggregate.partners import PartnerSearch  # numba: imported when first needed
        from whenabouts.core.timing_join.operator import TimingJoinOperator

        self._query = query
        self._operator = TimingJoinOperator(query, [table.schema for table in tables], streaming=False)
        self._rejected: list[Rejected] = []
        self._left, right = (self._read(input, table) for input, table in enumerate(tables))
        keyed = self._keyed(LEFT, self._left)
        self._right = right.filter(pa.array(self._keyed(RIGHT, right))).combine_chunks()
        left = self._left.filter(pa.array(keyed)).combine_chunks()
        search = PartnerSearch(self._aggregate({"n": "count"}, "left_outer"), self._operator.keys, left, self._right)
        self._position, self._codes = search.position, search.right_codes
        self.start, self.stop = np.zeros((2, len(keyed)), np.int64)
        sizes, beside = np.zeros(len(keyed), np.int64), [np.empty(0, np.int32)]
        at = np.flatnonzero(keyed)
        for run in search.runs():
            assert run.decided is not None, "a count was asked"
            rows = at[run.rows]
            self.start[rows], self.stop[rows] = run.decided.start, run.decided.stop
            sizes[rows] = np.diff(run.decided.beside.offsets)
            beside.append(run.decided.beside.rows)
        self._offsets, self._beside = np.concatenate([[0], np.cumsum(sizes)]), np.concatenate(beside)

    @property
    def counts(self) -> IntArray:
        """How many pairs each left row has."""
        counts: IntArray = self.stop - self.start + np.diff(self._offsets)
        return counts

    @property
    def more(self) -> pa.ListArray:
        """The rows beside the ranges."""
        from whenabouts.core.join_aggregate.decided_functions import list_of

        return list_of(self._offsets, pa.array(self._beside))

    @property
    def rejects(self) -> pa.Table:
        """The rows that could not be read."""
        schemas = [reader.schema for reader in self._operator.readers]
        rows = [reject_rows(rejected, schemas, self._query.inputs) for rejected in self._rejected]
        return pa.Table.from_batches(rows, rejects_schema(schemas))

    def shown(self, input: int) -> pa.Table:
        """The rows of an input as users see them."""
        schema = self._operator.readers[input].schema
        if input == LEFT:
            rows = self._left.select(schema.names)
        else:
            rows = take_table(self._right.select(schema.names), self._position)
        return pa.Table.from_arrays(rows.columns, schema=schema)

    def pairs(self) -> pa.Table:
        """All pairs."""
        from whenabouts.core.join_aggregate.range_queries import collected

        operator, step = self._operator, Step()
        pairs = int(self.counts.sum())
        operator.matching.require_room([self._left, self._right], pairs, pairs)
        order = np.arange(self._right.num_rows)
        offsets, at = collected(order, self.start, self.stop, (self._offsets, self._beside))
        left_at = np.repeat(np.arange(self._left.num_rows, dtype=np.int32), np.diff(offsets))
        rows = operator.rows_of_pairs(self._left, self._right, (left_at, self._position[at]), step)
        return pa.Table.from_batches(rows, operator.output_schema)

    def aggregate(self, aggregates: Mapping[str, Asked], how: str) -> pa.Table:
        """The numbers of each left row."""
        from whenabouts.core.join_aggregate.answers import columns_of, decided_answers
        from whenabouts.core.join_aggregate.output import AggregateOutput
        from whenabouts.core.join_aggregate.partners import Chosen
        from whenabouts.core.timing_join.probed_rows import Beside

        query = self._aggregate(aggregates, how)
        chance = next((each for each in query.aggregates if not each.decided), None)
        if chance is not None:
            raise QueryError(
                Code.BAD_OPTION,
                f"{chance.described} looks at right rows that are possible, and ranges hold those of the pairs only",
                "ask join_aggregate",
            )
        output = AggregateOutput(query, *(reader.schema for reader in self._operator.readers), streaming=False)
        chosen = Chosen(self.start, self.stop, Beside(self._offsets, self._beside))
        columns = columns_of(query, self._right, self._position, self._codes)
        answers = decided_answers(query, self._left, columns, chosen)
        return pa.Table.from_batches(output.rows(self._left, answers, None, Step()), output.schema)

    def _aggregate(self, aggregates: Mapping[str, Any], how: str) -> JoinAggregate:
        query = self._query
        return JoinAggregate(
            left_time=query.left_time, right_time=query.right_time, condition=query.condition, on=query.on,
            aggregates=aggregates, how=how,
        )  # fmt: skip

    def _read(self, input: int, table: pa.Table) -> pa.Table:
        """The rows of an input with their times in block columns, in one chunk."""
        reader, blocks, cut = self._operator.readers[input], [], 0
        for batch in table.to_batches():
            block, rejected = reader.read(batch)
            self._rejected += rejected
            cut += times_cut(reader, block)
            blocks.append(block)
        warn_of_digits(cut, "")
        reader.units.warn()
        return table_of(blocks, reader.block_schema)

    def _keyed(self, input: int, rows: pa.Table) -> Any:
        """Which rows have a key."""
        keys = self._operator.keys
        if not keys.names or not rows.num_rows:
            return np.ones(rows.num_rows, bool)
        return keys.codes([rows], input)[0] != NULL_KEY
