"""The multi-way window join (W-join): combinations of one event from each of several streams.

`WindowJoin` is the query; `window_join.operator` runs it. Source: Hammad, Aref, Elmagarmid, "Stream window join:
tracking moving objects in sensor-network databases", SSDBM 2003. Edges with a confidence over uncertain times are an
extension of the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

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

    `times`: the time specification of each stream by name, in the order of the inputs. `windows`: by pair of names
    `(a, b)`, a duration (the greatest `|t_b - t_a|`), a tuple `(lo, hi)` (bounds on `t_b - t_a`), or a condition with a
    confidence (`within`, `between`, ...), which uncertain times need. `(b, a)` may have another window than `(a, b)`;
    both must hold. `on`: key columns that must be equal; without it all rows have one key. If the streams use different
    names for a key, `on` maps each stream to its key columns, equally many for each. `predicates`: by pair of names, an
    SQL condition on columns `stream.column` (see `expressions.sql`), or a function of aligned rows of both
    (`rows["column"]` is an Arrow array) that returns a boolean array; nulls count as false. `joint=True` adds
    `probability`, the probability that all windows hold together (`joint_probability`). Streams of one `from_clock`
    domain share its offset: it cancels in windows between them, and the joint probability averages over it
    (`shared_clocks`).

    `strategy` (`backward` or `forward` evaluation), `conservative` (`gca`: global, `lca`: local conservative approach,
    `none`) and `method` (`hash`, `nested`) choose the algorithm (see `window_join.join_orders`), never the result.
    `forward` waits until all streams have passed a row; `backward` does not wait. `forward` without a conservative
    approach needs a uniform clique. `lateness`: how far rows may lag behind their stream, one duration or one by stream
    name. `idle_after`: how far behind a stream is when it becomes idle (see `times.lateness.Lateness`). `rates`: rows
    per second and key by stream name, if known beforehand (`measured_rates` gets them from a sample); `auto` uses them
    on streams. `time_slots`: the width of slots that spread the rows of a key over buckets (`window_join.time_slots`);
    "auto": slots if there is no key and the graph is bounded.

    Raises QueryError: WA-2006 for options, WA-2007 for `forward` with `none` on other graphs and for a joint
    probability of too many points, WA-2011 for a clock whose offset is needed and not declared, WA-2061 to WA-2063 for
    the graph (see `window_join.graph`), WA-2064 for a window without a confidence over uncertain times, WA-2065 for an
    invalid predicate and WA-2091 for its text, WA-2041 for time slots without a bound on how far apart rows are.

    >>> import whenabouts as wa
    >>> query = wa.WindowJoin(times={"a": wa.Point("t"), "b": wa.Point("t"), "c": wa.Point("t")},
    ...                       windows={("a", "b"): "2 s", ("b", "c"): ("0 s", "5 s")}, on="objid")
    >>> query.inputs, query.graph().form, query.graph().horizon_us(0)
    (('a', 'b', 'c'), 'path', 7000000)
    """

    @property
    def needs_rows_of(self) -> dict[str, str]:
        """Every input: if one has no rows, the result has none."""
        return dict.fromkeys(self.inputs, "no combination")

    def choices(self, load: Workload | None = None, pins: Mapping[str, Value] | None = None) -> list[Choice]:
        """What `auto` chooses on a stream, and why; see `costs.choices`. `pins`: options fixed by hand.

        `rates` of the query are per key, those of a load are for all keys together.
        """
        from whenabouts.core.window_join.cost import choices

        known = load or Workload()
        if self.rates and not known.rates:
            rates = {name: rate * known.keys for name, rate in self.rates}
            known = replace(known, rates=rates, source="declared")
        return choices(self, known, pins or {})

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> WindowJoinOperator:
        """The operator for inputs with these schemas.

        On a stream, raises QueryError WA-2004 if the windows leave two streams without a bound, and WA-2010 for
        intervals without `max_uncertainty`: state would never shrink.
        """
        from whenabouts.core.window_join.operator import WindowJoinOperator

        if streaming:
            for name, spec in self.times:
                if spec.max_uncertainty_us is None:
                    raise QueryError(
                        Code.UNBOUNDED_STATE,
                        f"the intervals of {name} have no declared greatest length",
                        "give Interval(..., max_uncertainty=...): it bounds the state of a stream",
                    )
            self.graph().require_bounded()
        return WindowJoinOperator(self, tuple(schemas), streaming=streaming)


def measured_rates(query: WindowJoin, tables: Mapping[str, pa.Table]) -> dict[str, float]:
    """Rows per second and key of each stream in a sample, for `rates`. Empty if a stream has no usable row.

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
