"""The multi-way window join (W-join): combinations of one event from each of several streams.

`WindowJoin` is the query; `window_join_operator` runs it. Source: Hammad, Aref, Elmagarmid, "Stream window join:
tracking moving objects in sensor-network databases", SSDBM 2003; edges with a confidence over uncertain times are ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Required, TypeAlias, TypedDict, Unpack

import pyarrow as pa

from whenabouts.core.choices import Choice, Load, Value
from whenabouts.core.clocks import Clock, resolve_clocks
from whenabouts.core.durations import Duration, parse_duration, parse_non_negative
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.stream_views import SqlPredicate
from whenabouts.core.timestamps import TimeSpec
from whenabouts.core.window_graph import OPEN_US, Edge, WindowGraph, Windows, check_edges, edges_of
from whenabouts.core.window_slots import WindowSlots, window_slots
from whenabouts.core.window_walks import CONSERVATIVE, METHODS, STRATEGIES

if TYPE_CHECKING:
    from whenabouts.core.stream_views import PairPredicate
    from whenabouts.core.window_join_operator import WindowJoinOperator


TimesByStream: TypeAlias = TimeSpec | Mapping[str, TimeSpec]
"""How rows say when they happened: the same for all streams, or by stream name."""


class WindowJoinOptions(TypedDict, total=False):
    """The fields of `WindowJoin`, as functions take them."""

    windows: Required[Windows]
    on: str | Sequence[str] | None
    predicates: Mapping[tuple[str, str], PairPredicate]
    strategy: str
    conservative: str
    method: str
    lateness: Duration | Mapping[str, Duration] | None
    idle_after: Duration | None
    joint: bool
    time_slots: Duration | None
    rates: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class WindowJoin:
    """A window join of two or more streams, validated.

    `times`: by stream name, in the order of the inputs, how its rows say when they happened. `windows`: by pair of
    names `(a, b)`, a duration (`|t_b - t_a|` at most so much), a tuple `(lo, hi)` (bounds on `t_b - t_a`), or a
    condition with a confidence (`within`, `between`, ...), which is what uncertain times need. `(b, a)` may have
    another window than `(a, b)`; both must hold. `on`: key columns that must be equal; none means one key.
    `predicates`: by pair of names, an SQL condition on columns `stream.column` (see `sql_expressions`), or a function
    of aligned rows of both (`rows["column"]` is an Arrow array) that gives a boolean array; nulls count as false.
    `joint=True` adds `probability`, that all windows hold together (`joint_probability`).

    `strategy` (`bew`, `few`), `conservative` (`gca`, `lca`, `none`) and `method` (`hash`, `nested`) choose the
    algorithm (see `window_walks`) and never the result. `few` waits until all streams have come as far as a row; `bew`
    does not wait. `lateness`: how far rows may lag behind their stream, one duration or one by stream name.
    `idle_after`: how far a stream may be behind before it is not waited for (see `timestamps.Lateness`). `rates`:
    rows per second and key by stream name, where they are known beforehand (`window_cost.measured_rates` has them from
    a sample): what `auto` decides by on streams.
    `time_slots`: the width of slots that spread the rows of a key over buckets (`window_slots`); "auto": where there is
    no key and the graph is bounded.

    Raises QueryError: WA-2006 for options, WA-2061 to WA-2063 for the graph (see `window_graph`), WA-2064 for a window
    without a confidence over uncertain times, WA-2065 for a predicate that is none and WA-2091 for its text, WA-2041
    for time slots without a bound on how far apart rows are.

    >>> from whenabouts.core import Point
    >>> query = WindowJoin(times={"a": Point("t"), "b": Point("t"), "c": Point("t")},
    ...                    windows={("a", "b"): "2 s", ("b", "c"): ("0 s", "5 s")}, on="objid")
    >>> query.inputs, query.graph().form, query.graph().horizon_us(0)
    (('a', 'b', 'c'), 'path', 7000000)
    """

    times: Any
    windows: Any
    on: str | Sequence[str] | None = None
    predicates: Any = ()
    strategy: str = "auto"
    conservative: str = "auto"
    method: str = "hash"
    lateness: Any = None
    idle_after: Duration | None = None
    joint: bool = False
    time_slots: Any = None
    rates: Any = ()

    def __post_init__(self) -> None:
        on = (self.on,) if isinstance(self.on, str) else tuple(self.on or ())
        object.__setattr__(self, "on", on)
        self._set_times()
        object.__setattr__(self, "windows", edges_of(self.windows))
        if self.time_slots not in (None, "auto"):
            object.__setattr__(self, "time_slots", parse_non_negative(self.time_slots, name="time_slots"))
            if not self.time_slots:
                raise QueryError(Code.BAD_OPTION, "time_slots is 0", "give a width above zero")
        for name, known in (("strategy", STRATEGIES), ("conservative", CONSERVATIVE), ("method", METHODS)):
            if getattr(self, name) not in known:
                raise QueryError(Code.BAD_OPTION, f"{name} is {getattr(self, name)!r}", f"choose of {', '.join(known)}")
        check_edges(self.inputs, self.edges)
        self._check_confidences()
        self._set_predicates()
        self._set_by_stream()
        self.graph()
        _ = self.slots
        if self.joint:
            from whenabouts.core.joint_probability import check_joint

            buckets = [max((len(t.masses) for _, t in spec.templates), default=1) for _, spec in self.times]
            check_joint(self.uncertain_windows, len(self.inputs), buckets)

    def _set_times(self) -> None:
        times = tuple(self.times.items()) if isinstance(self.times, Mapping) else tuple(self.times)
        if len(times) < 2:
            raise QueryError(Code.BAD_OPTION, f"a window join of {len(times)} streams", "give two streams or more")
        names = [name for name, _ in times]
        if len(set(names)) < len(names) or not all(isinstance(name, str) and name for name in names):
            raise QueryError(Code.BAD_OPTION, f"the streams are called {names}", "give each a name of its own")
        object.__setattr__(self, "times", tuple(zip(names, _resolved(times), strict=True)))

    def _check_confidences(self) -> None:
        for edge in self.edges:
            for name in (edge.first, edge.second):
                if edge.confidence is None and self.spec(name).max_uncertainty_us != 0:
                    raise QueryError(
                        Code.NO_CONFIDENCE,
                        f"the window of {edge.first} and {edge.second} has no confidence, and the times of {name} are "
                        "uncertain",
                        "give within(..., confidence=...); confidence=1 asks for certainty",
                    )

    def _set_predicates(self) -> None:
        given = tuple(self.predicates.items()) if isinstance(self.predicates, Mapping) else tuple(self.predicates or ())
        for pair, predicate in given:
            unknown = [name for name in pair if name not in self.inputs]
            known = callable(predicate) or isinstance(predicate, str)
            if len(pair) != 2 or unknown or pair[0] == pair[1] or not known:
                raise QueryError(
                    Code.BAD_PREDICATE,
                    f"a predicate of {pair!r}: {predicate!r}",
                    "give {(stream, other stream): function or SQL condition}, the streams being "
                    + ", ".join(self.inputs),
                )
        read = ((pair, SqlPredicate.of(pair, of) if isinstance(of, str) else of) for pair, of in given)
        object.__setattr__(self, "predicates", tuple(read))

    def _set_by_stream(self) -> None:
        lateness = {} if self.lateness is None else self.lateness
        if not isinstance(lateness, Mapping):
            given = lateness if isinstance(lateness, tuple) else (lateness,) * len(self.inputs)
            lateness = dict(zip(self.inputs, given, strict=True))
        rates = dict(self.rates) if isinstance(self.rates, Mapping) or self.rates else {}
        for what, values in (("lateness", lateness), ("rates", rates)):
            unknown = [name for name in values if name not in self.inputs]
            if unknown:
                raise QueryError(
                    Code.BAD_OPTION,
                    f"{what} is given for {', '.join(map(repr, unknown))}",
                    f"the streams are {', '.join(self.inputs)}",
                )
        us = tuple(parse_non_negative(lateness.get(n, 0), name=f"lateness of {n}") for n in self.inputs)
        object.__setattr__(self, "lateness", None if self.lateness is None else us)
        if self.idle_after is not None:
            object.__setattr__(self, "idle_after", parse_non_negative(self.idle_after, name="idle_after"))
        if rates and (len(rates) < len(self.inputs) or not all(rate > 0 for rate in rates.values())):
            raise QueryError(Code.BAD_OPTION, f"rates are {rates}", "give rows per second, above 0, for every stream")
        object.__setattr__(self, "rates", tuple(rates.items()))

    @classmethod
    def of(cls, streams: Sequence[str], time: TimesByStream, **options: Unpack[WindowJoinOptions]) -> WindowJoin:
        """The query over streams of these names, in their order; `time` may be one specification for all.

        Raises QueryError WA-2006 where a stream has no time or a time no stream, and as the class.
        """
        by_stream = time if isinstance(time, Mapping) else dict.fromkeys(streams, time)
        if set(by_stream) != set(streams):
            raise QueryError(
                Code.BAD_OPTION,
                f"the streams are {', '.join(streams)}, times are given for {', '.join(by_stream)}",
                "give a time for every stream, or one for all",
            )
        return cls(times={name: by_stream[name] for name in streams}, **options)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The streams."""
        return tuple(name for name, _ in self.times)

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The windows."""
        edges: tuple[Edge, ...] = self.windows
        return edges

    @property
    def uncertain_windows(self) -> dict[tuple[int, int], tuple[float, float]]:
        """The windows with a confidence, by places of streams, as `joint_probability` takes them."""
        from whenabouts.core.joint_probability import both_directions

        def end(us: int) -> float:
            return math.copysign(math.inf, us) if abs(us) >= OPEN_US else float(us)

        place = self.inputs.index
        edges = [edge for edge in self.edges if edge.confidence is not None]
        return both_directions([(place(e.first), place(e.second), end(e.lo_us), end(e.hi_us)) for e in edges])

    @property
    def key_columns(self) -> tuple[str, ...]:
        """`on` as a tuple."""
        return tuple(self.on or ())

    @property
    def lateness_us(self) -> tuple[int, ...]:
        """Microseconds of lateness, by stream."""
        given: tuple[int, ...] = self.lateness or (0,) * len(self.inputs)
        return given

    @property
    def says_lateness(self) -> bool:
        """Whether `lateness` was given."""
        return self.lateness is not None

    @property
    def idle_after_us(self) -> int | None:
        """How far a stream may be behind the most advanced one before it is idle."""
        return None if self.idle_after is None else parse_duration(self.idle_after)

    @property
    def slots(self) -> WindowSlots | None:
        """How the rows of a key are spread over buckets; None: they are not."""
        if self.time_slots is None or (self.time_slots == "auto" and self.key_columns):
            return None
        try:
            return window_slots(self.graph(), None if self.time_slots == "auto" else parse_duration(self.time_slots))
        except QueryError:
            if self.time_slots == "auto":
                return None
            raise

    def spec(self, stream: str) -> TimeSpec:
        """The time specification of a stream."""
        spec: TimeSpec = dict(self.times)[stream]
        return spec

    def graph(self, longest_us: Sequence[int] | None = None) -> WindowGraph:
        """The tightened window graph, on anchors.

        `longest_us`: by stream, the greatest length of its intervals where none was declared (finite input); without
        it such edges bound nothing. Raises QueryError WA-2063 for windows that contradict each other.
        """
        if longest_us is None:
            return self._registered_graph
        return WindowGraph(self.inputs, self.edges, [self._anchor_range(edge, longest_us) for edge in self.edges])

    @cached_property
    def _registered_graph(self) -> WindowGraph:
        return WindowGraph(self.inputs, self.edges, [self._anchor_range(edge, None) for edge in self.edges])

    def _anchor_range(self, edge: Edge, longest_us: Sequence[int] | None) -> tuple[int, int]:
        """The differences of anchors that an edge admits over all shapes that its streams' rows may have."""
        if edge.confidence is None:
            return edge.lo_us, edge.hi_us
        kinds: list[Any] = []
        for name in (edge.first, edge.second):
            spec = self.spec(name)
            longest = spec.max_uncertainty_us
            if longest is None and longest_us is not None:
                longest = longest_us[self.inputs.index(name)]
            if longest is None:
                return -OPEN_US, OPEN_US
            kinds.append(tuple(t for _, t in spec.templates) or ((min(spec.min_uncertainty_us, longest), longest),))
        from whenabouts.core.shape_thresholds import thresholds  # numba: imported when first needed

        table = thresholds(kinds[0], kinds[1], edge.lo_us, edge.hi_us, edge.confidence)
        return max(int(table[..., 0].min()), -OPEN_US), min(int(table[..., 3].max()), OPEN_US)

    def choices(self, load: Load | None = None, pins: Mapping[str, Value] | None = None) -> list[Choice]:
        """What is chosen on a stream where the query says `auto`, and why; see `choices`. `pins`: decided by hand.

        `rates` of the query are of each key, those of a load of all.
        """
        from whenabouts.core.window_cost import choices

        known = load or Load()
        if self.rates and not known.rates:
            rates = {name: rate * known.keys for name, rate in self.rates}
            known = replace(known, rates=rates, source="declared")
        return choices(self, known, pins or {})

    def kept_for_us(self, input: int) -> int:
        """How far behind the watermark a row's `t_max` is when no row to come can be combined with it any more."""
        return max(self.graph().horizon_us(input), 0)

    def copies(self, input: int) -> float:
        """How many buckets hold a row of an input on average: more than one with time slots."""
        return 1.0 if self.slots is None else self.slots.copies(input)

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> WindowJoinOperator:
        """The operator for inputs of these schemas.

        On a stream, windows that leave two streams without a bound are refused (WA-2004), and intervals without a
        `max_uncertainty` (WA-2010): state would never shrink.
        """
        from whenabouts.core.window_join_operator import WindowJoinOperator

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


def _resolved(times: Sequence[tuple[str, TimeSpec]]) -> list[TimeSpec]:
    """Clocks, as all streams together mean them: within one domain if all are of it, else beyond their domains."""
    specs = [spec for _, spec in times]
    if not any(isinstance(spec, Clock) for spec in specs):
        return specs
    domains = [spec.domain if isinstance(spec, Clock) else None for spec in specs]
    if domains[0] is not None and len(set(domains)) == 1:
        return [resolve_clocks(spec, specs[0])[0] for spec in specs]
    shared = sorted({d for d in domains if d is not None and domains.count(d) > 1})
    if shared:
        raise QueryError(
            Code.NOT_AVAILABLE,
            f"some streams share the clock domain {', '.join(shared)} and others do not: their common offset cancels "
            "in some windows only, which is not available",
            "join the streams of one domain first, or give each clock a domain of its own",
        )
    return [resolve_clocks(spec, specs[0] if place else specs[-1])[0] for place, spec in enumerate(specs)]
