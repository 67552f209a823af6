"""The multi-way window join (W-join): combinations of one event from each of several streams.

`WindowJoin` is the query; `window_join.operator` runs it. Source: Hammad, Aref, Elmagarmid, "Stream window join:
tracking moving objects in sensor-network databases", SSDBM 2003; edges with a confidence over uncertain times are ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from whenabouts.core.costs.choices import Choice, Value, Workload
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.protocol import Arrival
from whenabouts.core.window_join.settings import WindowJoinSettings

if TYPE_CHECKING:
    from whenabouts.core.window_join.operator import WindowJoinOperator


@dataclass(frozen=True, kw_only=True)
class WindowJoin(WindowJoinSettings):
    """A window join of two or more streams, validated.

    `times`: by stream name, in the order of the inputs, how its rows say when they happened. `windows`: by pair of
    names `(a, b)`, a duration (`|t_b - t_a|` at most so much), a tuple `(lo, hi)` (bounds on `t_b - t_a`), or a
    condition with a confidence (`within`, `between`, ...), which is what uncertain times need. `(b, a)` may have
    another window than `(a, b)`; both must hold. `on`: key columns that must be equal; none means one key.
    Where streams call a key differently, `on` maps each stream's name to what it calls the keys, as many for each.
    `predicates`: by pair of names, an SQL condition on columns `stream.column` (see `expressions.sql`), or a function
    of aligned rows of both (`rows["column"]` is an Arrow array) that gives a boolean array; nulls count as false.
    `joint=True` adds `probability`, that all windows hold together (`joint_probability`).

    `strategy` (`backward` or `forward` evaluation), `conservative` (`gca`: global, `lca`: local conservative approach,
    `none`) and `method` (`hash`, `nested`) choose the algorithm (see `window_join.join_orders`) and never the result.
    `forward` waits until all streams have come as far as a row; `backward` does not wait. `lateness`: how far rows may
    lag behind their stream, one duration or one by stream name.
    `idle_after`: how far a stream may be behind before it is not waited for (see `times.lateness.Lateness`). `rates`:
    rows per second and key by stream name, where they are known beforehand (`window_join.cost.measured_rates` has them
    from a sample): what `auto` decides by on streams. `time_slots`: the width of slots that spread the rows of a key
    over buckets (`window_join.time_slots`); "auto": where there is no key and the graph is bounded.

    Raises QueryError: WA-2006 for options, WA-2061 to WA-2063 for the graph (see `window_join.graph`), WA-2064 for a
    window without a confidence over uncertain times, WA-2065 for a predicate that is none and WA-2091 for its text,
    WA-2041 for time slots without a bound on how far apart rows are.

    >>> import whenabouts as wa
    >>> query = wa.WindowJoin(times={"a": wa.Point("t"), "b": wa.Point("t"), "c": wa.Point("t")},
    ...                       windows={("a", "b"): "2 s", ("b", "c"): ("0 s", "5 s")}, on="objid")
    >>> query.inputs, query.graph().form, query.graph().horizon_us(0)
    (('a', 'b', 'c'), 'path', 7000000)
    """

    needs_rows_of_all: ClassVar[bool] = True
    """An input without rows leaves the result without rows."""

    def choices(self, load: Workload | None = None, pins: Mapping[str, Value] | None = None) -> list[Choice]:
        """What is chosen on a stream where the query says `auto`, and why; see `choices`. `pins`: decided by hand.

        `rates` of the query are of each key, those of a load of all.
        """
        from whenabouts.core.window_join.cost import choices

        known = load or Workload()
        if self.rates and not known.rates:
            rates = {name: rate * known.keys for name, rate in self.rates}
            known = replace(known, rates=rates, source="declared")
        return choices(self, known, pins or {})

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> WindowJoinOperator:
        """The operator for inputs of these schemas.

        On a stream, windows that leave two streams without a bound are refused (WA-2004), and intervals without a
        `max_uncertainty` (WA-2010): state would never shrink.
        """
        from whenabouts.core.window_join.operator import WindowJoinOperator

        if streaming:
            for name, spec in self.times:
                if spec.max_uncertainty_us is None:
                    raise QueryError(
                        Code.UNBOUNDED_STATE,
                        f"the intervals of {name} have no declared greatest length",
                        "give Interval(..., max_uncertainty=...)",
                    )
            self.graph().require_bounded()
        return WindowJoinOperator(self, tuple(schemas), streaming=streaming)


def measured_rates(query: WindowJoin, tables: Mapping[str, pa.Table]) -> dict[str, float]:
    """Rows per second and key of each stream in a sample: what `rates` takes. Empty if a stream has no usable row.

    >>> import pyarrow as pa
    >>> from whenabouts.core import Point
    >>> from whenabouts.core.window_join.query import WindowJoin
    >>> query = WindowJoin(times=dict.fromkeys("ab", Point("t")), windows={("a", "b"): "1 s"}, on="k")
    >>> of_a = pa.table({"k": [1, 2, 1, 2, 1], "t": range(0, 5_000_000, 1_000_000)})
    >>> measured_rates(query, {"a": of_a, "b": of_a.slice(0, 1)})
    {'a': 0.625, 'b': 0.125}
    """
    operator = query.operator([tables[name].schema for name in query.inputs], streaming=False)
    arrivals = [
        Arrival(reader.input, reader.read(batch).block)
        for reader in operator.readers
        for batch in tables[query.inputs[reader.input]].to_batches()
    ]
    return dict(zip(query.inputs, operator.rates(arrivals), strict=False))
