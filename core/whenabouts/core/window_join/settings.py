"""The settings of a window join, and what can be derived from them alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Required, Self, TypeAlias, TypedDict, Unpack

from whenabouts.core.deprecation import warn_of_old
from whenabouts.core.durations import Duration, parse_duration, parse_non_negative
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.joins.pair_conditions import PairPredicate, SqlPredicate
from whenabouts.core.runtime import option_checks as checks
from whenabouts.core.runtime.key_names import Key, On, described_keys, key_names
from whenabouts.core.times.clock_errors import Clock, require_one_domain_column, resolve_clocks
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.window_join.graph import OPEN_US, Edge, WindowGraph, Windows, check_edges, edges_of
from whenabouts.core.window_join.join_orders import (
    CONSERVATIVE,
    METHODS,
    OLD_STRATEGIES,
    STRATEGIES,
    forward_windows,
)
from whenabouts.core.window_join.time_slots import WindowSlots, window_slots

if TYPE_CHECKING:
    from whenabouts.core.probability.shared_clocks import Correction

TimesByStream: TypeAlias = TimeSpec | Mapping[str, TimeSpec]
"""Time specifications: the same for all streams, or by stream name."""


class WindowJoinOptions(TypedDict, total=False):
    """The fields of `WindowJoin` as keyword arguments."""

    windows: Required[Windows]
    on: On
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
class WindowJoinSettings:
    """The validated settings of a window join, used by its operator and cost model; `WindowJoin` documents them."""

    recorded_as: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "strategy": {new: old for old, new in OLD_STRATEGIES.items()}
    }
    """Values by field that have another name in checkpoints, where names do not change."""

    times: Any
    windows: Any
    on: On = None
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
        self._set_times()
        object.__setattr__(self, "on", key_names(self.on, self.inputs))
        object.__setattr__(self, "windows", edges_of(self.windows))
        object.__setattr__(self, "time_slots", checks.slots_of(self.time_slots))
        strategy: object = self.strategy  # users may pass any type
        if isinstance(strategy, str) and strategy in OLD_STRATEGIES:
            warn_of_old(f"{strategy=}", repr(OLD_STRATEGIES[strategy]))
            object.__setattr__(self, "strategy", OLD_STRATEGIES[strategy])
        for name, known in (("strategy", STRATEGIES), ("conservative", CONSERVATIVE), ("method", METHODS)):
            checks.one_of(name, getattr(self, name), known)
        checks.flag("joint", self.joint)
        check_edges(self.inputs, self.edges)
        self._check_confidences()
        self._set_predicates()
        self._set_by_stream()
        self._check_conservative()
        _ = self.slots
        if self.joint:
            self._check_joint()

    def _set_times(self) -> None:
        times = checks.items_of("times", self.times, "give a time for each stream by name")
        if len(times) < 2:
            raise QueryError(
                Code.BAD_OPTION, f"a window join of {checks.counted(len(times), 'stream')}", "give two streams or more"
            )
        names = [name for name, _ in times]
        if len(set(names)) < len(names) or not all(isinstance(name, str) and name for name in names):
            raise QueryError(Code.BAD_OPTION, f"the streams are called {names}", "give each a different name")
        for name, spec in times:
            checks.time_of(f"the time of {name}", spec)
        object.__setattr__(self, "times", tuple(zip(names, _resolved(times), strict=True)))

    def _check_confidences(self) -> None:
        for edge in self.edges:
            for name, spec in zip((edge.first, edge.second), self.specs_of(edge), strict=True):
                if edge.confidence is None and spec.max_uncertainty_us != 0:
                    raise QueryError(
                        Code.NO_CONFIDENCE,
                        f"the window of {edge.first} and {edge.second} has no confidence, and the times of {name} are "
                        "uncertain",
                        "give within(..., confidence=...); confidence=1 asks for certainty",
                    )

    def _check_joint(self) -> None:
        from whenabouts.core.probability.joint_probability import check_joint
        from whenabouts.core.probability.shared_clocks import evaluations

        shared = self.shared_offsets_us
        buckets = [
            1 if name in shared else max((len(t.masses) for _, t in spec.templates), default=1)
            for name, spec in self.times
        ]
        windows = self.uncertain_windows
        check_joint(windows, len(buckets), buckets, evaluations(windows, len(buckets), self.corrections, buckets))

    def _check_conservative(self) -> None:
        uniform = self.graph().uniform_us is not None
        if self.strategy == "forward" and self.conservative == "none" and not uniform:
            raise QueryError(
                Code.NOT_AVAILABLE,
                f"forward evaluation (FEW) without a conservative approach, of a {self.graph().form} of windows: its "
                "buffers need one window for all streams, which only a uniform clique has",
                'give conservative="gca" or "lca", or strategy="backward"',
            )

    def _set_predicates(self) -> None:
        hint = "give {(stream, other stream): function or SQL condition}"
        given = checks.items_of(
            "predicates", () if self.predicates is None else self.predicates, hint, Code.BAD_PREDICATE
        )
        for pair, predicate in given:
            named = isinstance(pair, tuple) and len(pair) == 2 and all(name in self.inputs for name in pair)
            known = isinstance(predicate, str) or (callable(predicate) and not isinstance(predicate, type))
            if not named or pair[0] == pair[1] or not known:
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
            if len(given) != len(self.inputs):
                raise checks.refused("lateness", lateness, "give one duration, or one by stream name")
            lateness = dict(zip(self.inputs, given, strict=True))
        rates = checks.rates_of(self.rates, self.inputs)
        unknown = [name for name in lateness if name not in self.inputs]
        if unknown:
            raise QueryError(
                Code.BAD_OPTION,
                f"lateness is given for {', '.join(map(repr, unknown))}",
                f"the streams are {', '.join(self.inputs)}",
            )
        us = tuple(parse_non_negative(lateness.get(n, 0), name=f"lateness of {n}") for n in self.inputs)
        object.__setattr__(self, "lateness", None if self.lateness is None else us)
        if self.idle_after is not None:
            object.__setattr__(self, "idle_after", parse_non_negative(self.idle_after, name="idle_after"))
        object.__setattr__(self, "rates", tuple(rates.items()))

    @classmethod
    def of(cls, streams: Sequence[str], time: TimesByStream, **options: Unpack[WindowJoinOptions]) -> Self:
        """The query over streams with these names, in this order; `time` may be one specification for all.

        Raises QueryError WA-2006 where a stream has no time or a time no stream, and as the class.
        """
        return cls(times=times_of(streams, time), **options)

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
        """The windows with a confidence, by stream numbers, for `joint_probability`."""
        from whenabouts.core.probability.joint_probability import both_directions

        def end(us: int) -> float:
            return math.copysign(math.inf, us) if abs(us) >= OPEN_US else float(us)

        number = self.inputs.index
        edges = [edge for edge in self.edges if edge.confidence is not None]
        return both_directions([(number(e.first), number(e.second), end(e.lo_us), end(e.hi_us)) for e in edges])

    @property
    def key_columns(self) -> tuple[Key, ...]:
        """`on` as a tuple, with a tuple of names for a key that the streams name differently."""
        return key_names(self.on, self.inputs)

    @property
    def lateness_us(self) -> tuple[int, ...]:
        """Lateness in microseconds, by stream."""
        given: tuple[int, ...] = self.lateness or (0,) * len(self.inputs)
        return given

    @property
    def says_lateness(self) -> bool:
        """Whether `lateness` was given."""
        return self.lateness is not None

    @property
    def idle_after_us(self) -> int | None:
        """How far behind the most advanced stream an idle stream is, in microseconds; None: no stream is idle."""
        return None if self.idle_after is None else parse_duration(self.idle_after)

    @property
    def described(self) -> str:
        """The streams, keys and windows in one line."""
        keys = described_keys(self.key_columns)
        return f"window join of {', '.join(self.inputs)}{keys}: {'; '.join(map(str, self.edges))}"

    @property
    def slots(self) -> WindowSlots | None:
        """How the rows of a key are spread over buckets; None if they are not."""
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

    def specs_of(self, edge: Edge) -> tuple[TimeSpec, TimeSpec]:
        """The times of an edge's streams, as this window sees them: an offset that both share cancels."""
        one, other = self.spec(edge.first), self.spec(edge.second)
        if isinstance(one, Clock) and isinstance(other, Clock):
            return resolve_clocks(one, other)
        return one, other

    def shared_offset_us(self, edge: Edge) -> int:
        """By how much each end of both streams' times is wider than this window sees it: the offset that they share."""
        one, other = self.spec(edge.first), self.spec(edge.second)
        same = isinstance(one, Clock) and isinstance(other, Clock) and one.domain == other.domain
        return self.shared_offsets_us[edge.first] if same else 0

    @cached_property
    def shared_offsets_us(self) -> dict[str, int]:
        """The offset of each stream whose clock stamps others too, but not all."""
        return {name: parse_duration(spec.offset or 0) for name, spec in self.times if isinstance(spec, Clock)}

    @cached_property
    def corrections(self) -> list[Correction]:
        """The clocks on whose offsets the joint probability is conditioned."""
        from whenabouts.core.probability.shared_clocks import corrections_of

        clocks = [
            (str(spec.domain), self.shared_offsets_us[name]) if isinstance(spec, Clock) else None
            for name, spec in self.times
        ]
        return corrections_of(clocks)

    def graph(self, longest_us: Sequence[int] | None = None) -> WindowGraph:
        """The tightened window graph over anchors.

        `longest_us`: by stream, the greatest length of its intervals if none was declared (finite input); without it
        such edges bound nothing. Raises QueryError WA-2063 for windows that contradict each other.
        """
        if longest_us is None:
            return self._registered_graph
        return WindowGraph(self.inputs, self.edges, [self._anchor_range(edge, longest_us) for edge in self.edges])

    @cached_property
    def _registered_graph(self) -> WindowGraph:
        return WindowGraph(self.inputs, self.edges, [self._anchor_range(edge, None) for edge in self.edges])

    def _anchor_range(self, edge: Edge, longest_us: Sequence[int] | None) -> tuple[int, int]:
        """The differences of anchors that an edge admits, over all shapes that its streams' rows can have."""
        if edge.confidence is None:
            return edge.lo_us, edge.hi_us
        kinds: list[Any] = []
        for name, spec in zip((edge.first, edge.second), self.specs_of(edge), strict=True):
            longest = spec.max_uncertainty_us
            if longest is None and longest_us is not None:
                longest = longest_us[self.inputs.index(name)]
            if longest is None:
                return -OPEN_US, OPEN_US
            kinds.append(tuple(t for _, t in spec.templates) or ((min(spec.min_uncertainty_us, longest), longest),))
        from whenabouts.core.probability.match_thresholds import thresholds  # numba: imported when first needed

        asked = self.decided_by(edge)
        assert asked.confidence is not None
        table = thresholds(kinds[0], kinds[1], asked.lo_us, asked.hi_us, asked.confidence)
        return max(int(table[..., 0].min()), -OPEN_US), min(int(table[..., 3].max()), OPEN_US)

    def decided_by(self, edge: Edge) -> Edge:
        """The window by whose probability combinations are decided (`Condition.decided_by`)."""
        both = (spec.max_uncertainty_us for spec in self.specs_of(edge))
        return edge.decided_by(instants=all(longest == 0 for longest in both))

    def kept_for_us(self, input: int) -> int:
        """How far behind the watermark a row's `t_max` is once no future row can be combined with it."""
        from whenabouts.core.window_join.cost import choose

        choice = choose(self, streaming=True)
        if choice.strategy == "forward":
            return forward_windows(self.graph(), choice.conservative)[input]
        return max(self.graph().horizon_us(input), 0)

    def copies(self, input: int) -> float:
        """How many buckets hold a row of an input, on average: more than one with time slots."""
        return 1.0 if self.slots is None else self.slots.copies(input)


def times_of(streams: Sequence[str], time: TimesByStream) -> dict[str, TimeSpec]:
    """The time of each stream, in the order of `streams`; `time` may be one specification for all.

    Raises QueryError WA-2006 where a stream has no time or a time no stream.
    """
    by_stream: Any = time if isinstance(time, Mapping) else dict.fromkeys(streams, time)
    if set(by_stream) != set(streams):
        raise QueryError(
            Code.BAD_OPTION,
            f"the streams are {', '.join(streams)}, times are given for {', '.join(map(str, by_stream))}",
            "give a time for every stream, or one for all",
        )
    return {name: by_stream[name] for name in streams}


def _resolved(times: Sequence[tuple[str, TimeSpec]]) -> list[TimeSpec]:
    """The specifications with clocks replaced: within a domain if all streams share it, otherwise across domains.

    A clock with an offset that some streams share and others do not stays: it cancels in some windows only.
    """
    specs = [spec for _, spec in times]
    require_one_domain_column(specs)
    domains = [spec.domain if isinstance(spec, Clock) else None for spec in specs]
    resolved: list[TimeSpec] = []
    for number, (name, spec) in enumerate(times):
        same = [other for other, domain in enumerate(domains) if domain is not None and domain == domains[number]]
        if not isinstance(spec, Clock):
            resolved.append(spec)
        elif len(same) == len(specs):
            resolved.append(resolve_clocks(spec, specs[0])[0])
        else:
            try:
                beyond = spec.beyond_domain
            except QueryError as error:
                raise QueryError(error.code, f"{name}: {error.problem}", error.hint) from error
            resolve_clocks(spec, specs[same[0]] if same else spec)  # one domain has one offset
            resolved.append(spec if len(same) > 1 and spec.offset else beyond)
    return resolved
