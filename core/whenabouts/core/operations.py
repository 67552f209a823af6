"""The operations that users call, declared once for all engines.

`Operations` has them as methods: each names its query, its inputs and its options, and documents them. An engine adds
none of its own: `Operations(engine)` runs them on that engine, and `Operations()` on the one that the first frame
belongs to, which the functions of this module do. The frames that go in and the one that comes out are the engine's
own.

A new operation is a query class (`whenabouts.core.runtime.protocol.Query`) and a method here, or in a subclass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field
from typing import Any, Literal, TypeVar, Unpack, overload

from whenabouts.core.asof_join.query import AsofJoin, AsofJoinOptions
from whenabouts.core.clocks.watching.query import WatchClock, WatchClockOptions
from whenabouts.core.coalescing.query import Coalesce, EarlyCoalesceOptions
from whenabouts.core.deprecation import takes_old_names
from whenabouts.core.hosting.engine import Engine, engine_of
from whenabouts.core.hosting.host_options import (
    CommonHostOptions,
    HostOptions,
    HostSettings,
    renamed,
    split_options,
)
from whenabouts.core.hosting.input_checks import check_query, check_streams
from whenabouts.core.hosting.signatures import check_known, takes_options_of
from whenabouts.core.join_aggregate.pair_ranges import PairRanges
from whenabouts.core.join_aggregate.query import JoinAggregate, JoinAggregateOptions
from whenabouts.core.runtime.option_checks import one_of, refused
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.temporal_queries.aggregate_query import TemporalAggregate, TemporalAggregateOptions
from whenabouts.core.temporal_queries.join_query import TemporalJoin, TemporalJoinOptions
from whenabouts.core.timing_join.query import TimingJoin, TimingJoinOptions
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.window_join.settings import TimesByStream, WindowJoinOptions, times_of

__all__ = [
    "asof_join",
    "coalesce",
    "join_aggregate",
    "rejects",
    "temporal_aggregate",
    "temporal_join",
    "timing_join",
    "watch_clock",
    "window_join",
]

Frame = TypeVar("Frame")
"""The type of inputs: a dataframe of any library (`whenabouts.core.frames`), of Spark, or of Flink."""


class _TimingJoin(TimingJoinOptions, CommonHostOptions, total=False):
    """The options of `timing_join`."""


class _AsofJoin(AsofJoinOptions, CommonHostOptions, total=False):
    """The options of `asof_join`."""


class _JoinAggregate(JoinAggregateOptions, CommonHostOptions, total=False):
    """The options of `join_aggregate`."""


class _WatchClock(WatchClockOptions, HostOptions, total=False):
    """The options of `watch_clock`."""


class _WindowJoin(WindowJoinOptions, HostOptions, total=False):
    """The options of `window_join`."""


class _Coalesce(EarlyCoalesceOptions, HostOptions, total=False):
    """The options of `coalesce`."""


class _TemporalAggregate(TemporalAggregateOptions, HostOptions, total=False):
    """The options of `temporal_aggregate`."""


class _TemporalJoin(TemporalJoinOptions, HostOptions, total=False):
    """The options of `temporal_join`."""


class Operations:
    """The operations on one engine; without one, on the engine of the frames."""

    def __init__(self, engine: Engine | None = None) -> None:
        self._engine = engine

    @overload
    def timing_join(
        self, left: Frame, right: Frame, *, pairs: Literal["rows"] = "rows", **options: Unpack[_TimingJoin]
    ) -> Frame: ...

    @overload
    def timing_join(
        self, left: Frame, right: Frame, *, pairs: Literal["ranges"], **options: Unpack[_TimingJoin]
    ) -> PairRanges[Frame]: ...

    @takes_options_of(TimingJoin, HostSettings, time_slots="auto")
    def timing_join(
        self, left: Frame, right: Frame, *, pairs: str = "rows", **options: Unpack[_TimingJoin]
    ) -> Frame | PairRanges[Frame]:
        """Pairs of a left and a right row for which `P(condition) >= confidence`.

        `how` (`inner`, `left_outer`, `right_outer`, `full_outer`, `left_semi`, `left_anti`) says what becomes of rows
        without a partner; `best` (`left`, `right`, `both`) keeps the most probable partner only,
        among equally probable ones the earliest, or with `ties="nearest"` the one with the nearest midpoint: see
        `whenabouts.core.timing_join.modes`. Columns of a missing partner are null; semi and anti give the left columns
        only. `left_anti` says that no single pair reaches the confidence; how likely it is that *nobody* came is
        `p_none` of `join_aggregate`. `strategy` picks the algorithm, all give the same rows.

        Columns: the left ones, the right ones (`on` once; equal names get `suffixes`), `probability` (float64) unless
        `probability=False`, which saves one kernel call per pair, and on streams `event_time` (the larger `t_max` of
        the pair), which carries the watermark, so that windows and further stateful operators can follow. In every mode
        but plain inner `event_time` is the instant at which the row became final: it is older than the watermark and
        cannot carry it. Row order is not promised. Unusable rows are in `rejects(pairs)`; none is dropped silently.

        A stream needs `lateness`, how far a side's rows may lag behind its newest one: the watermark follows from it.
        Finite input needs none. A stream that continues from a checkpoint may have another confidence, but not less
        than the `min_confidence` of its first start (the confidence itself, if none was given).

        `time_slots` spreads the rows of one key over the buckets by time: "auto" if there is no `on` and the query
        allows it, a width ("10 s") if one bucket cannot keep up with a frequent key, None never. One side's rows are
        copied `reach / width + 1` times, where `reach` is the time range in which partners lie. Modes that decide
        about the rows of both sides (`full_outer`, `best="both"`) refuse a width (WA-2041).

        `pairs="ranges"` (experimental, in process only) writes no pairs: it gives for each left row a range of right
        rows in order of time, and the few beside it, as `whenabouts.core.join_aggregate.pair_ranges.PairRanges`. Worth
        while from some hundred pairs a row on; `join_aggregate` needs none of them. Engines refuse it (WA-2007), and it
        goes with the inner join only (WA-2006).

        The last options are the host's, see `whenabouts.core.hosting.host_options.HostSettings`.

        Raises: InputError (WA-1xxx) for columns, QueryError (WA-2xxx) for options, among them WA-2051 for streams
        without lateness, EngineError (WA-3xxx) for what the engine cannot do. Warns (`RejectedRowsWarning`) of rejected
        rows if they are known at once.

        Cost: sorting both sides, then O(rows + pairs), in parallel over the buckets; on Spark and Flink also packing
        and shuffling each side once. Source: ITC section 4, PTJoin section 3.

        >>> import pyarrow as pa
        >>> import whenabouts as wa
        >>> left = pa.table({"id": [1, 2], "from": [0, 100], "to": [10, 110]})
        >>> right = pa.table({"name": ["a", "b"], "t0": [12, 300], "t1": [20, 310]})
        >>> pairs = wa.timing_join(left, right, left_time=wa.Interval("from", "to"), right_time=wa.Interval("t0", "t1"),
        ...                        condition=wa.within("15us", confidence=0.8))
        >>> pairs.select(["id", "name", "probability"]).to_pylist()
        [{'id': 1, 'name': 'a', 'probability': 0.84375}]
        """
        one_of("pairs", pairs, ("rows", "ranges"))
        if pairs == "rows":
            return self.call(TimingJoin, [left, right], options)
        engine, query, settings = self._asked(TimingJoin, [left, right], options)
        found: PairRanges[Frame] = engine.ranges(query, [left, right], settings)
        return found

    @takes_options_of(AsofJoin, HostSettings, time_slots="auto")
    def asof_join(self, left: Frame, right: Frame, **options: Unpack[_AsofJoin]) -> Frame:
        """For each left row the right row of its key that prevails at its time: the last one at or before it.

        `direction`: `backward` (the last at or before), `forward` (the first at or after), `nearest` (the closer of the
        two, the earlier one if they are equally far). `tolerance`: a duration, the greatest distance, inclusive.
        `allow_exact_matches=False`: rows at the very time of the left row do not count. Several right rows at one
        instant are in the order of the columns `order_by`, then of all columns: the greatest prevails backward, the
        least forward. So nothing depends on the order of rows.

        Where times are uncertain, a right row prevails with a probability, which is not that of any pair alone: rows
        block each other. The most probable row comes out if its probability is at least `confidence` (`keep="all"`:
        each row of which that is true). Two `Point`s need no confidence.

        `how`: `left_outer` (the default) gives each left row, with nulls if no right row reaches the confidence;
        `inner` only those with one; `left_anti` the left columns of those for which *no* right row prevails with a
        probability of at least `confidence`. Rows with a null key have no partner.

        Columns: the left ones, the right ones (`on` once; equal names get `suffixes`), `probability` (float64, null
        without a right row) and `none_probability` (float64), unless `probability=False`. Row order is not promised.
        Unusable rows are in `rejects(result)`, among them left rows with more than `max_candidates` right rows that may
        prevail (WA-1053).

        `time_slots`: as in `timing_join`; a `tolerance` is needed. The last options are the host's, see
        `whenabouts.core.hosting.host_options.HostSettings`.

        Raises: InputError (WA-1xxx) for columns, QueryError (WA-2xxx) for options, see
        `whenabouts.core.asof_join.query.AsofJoin`. Warns (`RejectedRowsWarning`, `EmptyInputWarning`) of rejected rows
        and of an input without rows, if they are known at once.

        Cost: sorting by time what is not sorted, then O(rows) for exact times, in parallel over the buckets.

        >>> import pyarrow as pa
        >>> import whenabouts as wa
        >>> trades = pa.table({"symbol": ["a", "a", "b"], "ts": [3, 9, 9]})
        >>> quotes = pa.table({"symbol": ["a", "a", "b"], "ts": [1, 8, 10], "bid": [100, 101, 55]})
        >>> found = wa.asof_join(trades, quotes, on="symbol", left_time=wa.Point("ts"), right_time=wa.Point("ts"))
        >>> found.select(["symbol", "ts_left", "bid"]).to_pylist()
        [{'symbol': 'a', 'ts_left': 3, 'bid': 100}, {'symbol': 'a', 'ts_left': 9, 'bid': 101}, \
{'symbol': 'b', 'ts_left': 9, 'bid': None}]
        """
        return self.call(AsofJoin, [left, right], options)

    @takes_options_of(JoinAggregate, HostSettings, time_slots="auto")
    def join_aggregate(self, left: Frame, right: Frame, **options: Unpack[_JoinAggregate]) -> Frame:
        """For each left row numbers about the right rows that meet a condition: how many, how much, how likely nobody.

        The answer of a timing join and a group-by, without the pairs: the cost of what is sure does not grow with their
        number. `aggregates`: output name -> function, `"function:argument"` or `(function, argument)`. Decided
        functions (`count`, `any`, `sum`, `mean`, `min`, `max`, `first`, `last`, `count_distinct`, `collect`) look at
        the pairs that reach the confidence. Chance functions (`expected_count`, `expected_sum`, `count_variance`,
        `sum_variance`, `p_none`, `p_any`, `p_at_least`, `count_at`) look at all possible partners, given the uncertain
        time of the left row that they share, and need no confidence. `most_uncertain` bounds what they may cost. On
        streams `folding` says whether right rows that only waiting left rows can meet are folded into these.

        Columns: the left ones as they came, the aggregates in the order given, and on streams `event_time`, the instant
        at which the row became final: it carries no watermark. `how="inner"` leaves out left rows without a pair. Over
        no rows counts are 0, chances those of nobody, and the others null. Sums are exact, rounded once: no order of
        rows, engine or number of buckets moves a bit. Sums of integers and durations beyond int64 stop the query with
        WA-1024. Row order is not promised. Rejected rows, `lateness`, `time_slots`, `min_confidence` and the options of
        the host: as in `timing_join`.

        Cost: sorting both sides, O(1) for each left row and function, a kernel call for each right row that is neither
        certain nor impossible, and for chance functions about 1 us for each left row with a few uncertain partners,
        their square with many. Source: ITC section 4 for the ranges; the chance functions are exact integrals, see
        `whenabouts.core.join_aggregate.chance_pieces`.

        Raises: as `timing_join`; InputError WA-1001, WA-1023, WA-1024 for aggregated columns, QueryError WA-2006 for
        aggregates, WA-2064 for a decided function without a confidence, WA-2182 for more than `most_uncertain`. Warns
        (`NotFiniteWarning`) of rows with a chance function over NaN or infinite values, which is NaN.

        >>> import pyarrow as pa
        >>> import whenabouts as wa
        >>> deploys = pa.table({"service": ["a", "b"], "t0": [0, 0], "t1": [10, 10]})
        >>> errors = pa.table({"service": ["a"] * 3, "t": [4, 12, 12], "ms": [7, 5, None]})
        >>> numbers = wa.join_aggregate(deploys, errors, on="service", left_time=wa.Interval("t0", "t1"),
        ...     right_time=wa.Point("t"), condition=wa.between(0, 5, confidence=0.3),
        ...     aggregates={"n": "count", "ms": "sum:ms", "nobody": "p_none", "two": ("p_at_least", 2)})
        >>> numbers.drop_columns(["t0", "t1"]).to_pylist()
        [{'service': 'a', 'n': 3, 'ms': 12, 'nobody': 0.3, 'two': 0.3}, \
{'service': 'b', 'n': 0, 'ms': None, 'nobody': 1.0, 'two': 0.0}]
        """
        return self.call(JoinAggregate, [left, right], options)

    @takes_options_of(WindowJoin, HostSettings, without=("times",), time_slots="auto")
    @takes_old_names("frames", "tables", "streams")
    def window_join(self, frames: Mapping[str, Frame], *, time: TimesByStream, **options: Unpack[_WindowJoin]) -> Frame:
        """Combinations of one row from each of several frames that lie in each other's windows.

        `frames`: by stream name. `time`: one specification for all, or one by stream name. `windows`: by pair of names
        a duration, a tuple `(lo, hi)` that bounds (time of second - time of first), or a condition with a confidence,
        which uncertain times need. The windows may form any connected graph. `predicates`, `strategy`, `conservative`,
        `method`, `lateness`: see `whenabouts.core.window_join.query.WindowJoin`; no choice of algorithm changes the
        rows. A predicate is a condition in SQL, the same on every engine, or a function of Arrow arrays, which is sent
        to the workers by pickle. `time_slots` and the options of the host: as in `timing_join`.

        Columns: those of every frame (`on` once; a name that several have gets `_` and the stream's name as a suffix),
        `t_first` (the least `t_min`) and `t_last` (the greatest `t_max`), and `probability_<a>_<b>` for each window
        with a confidence. With `joint=True` also `probability`, that all windows hold together (see
        `joint_probability`: it is not their product). Row order is not promised. The result has the form of the first
        frame. Rejected rows: see `timing_join`.

        On a stream `strategy="backward"` (the choice of `auto`) emits a combination when the last of its rows arrives,
        and `t_last` carries the watermark. `forward` waits until the watermark has passed all of them, which costs less
        where many rows are tried; its rows carry no watermark.

        Cost: sorting all frames, then O(rows + partial combinations), in parallel over the buckets; on Spark and Flink
        also packing and shuffling each input once. Source: W-join (Hammad et al., SSDBM 2003).

        Raises: as `timing_join`; QueryError WA-2006 if `frames` and `time` name different streams, WA-2004 for windows
        that leave two streams without a bound, WA-2061 to WA-2065 for windows and predicates, WA-2091 to WA-2093 for
        conditions in SQL. Warns (`EmptyInputWarning`) of a frame without rows, where that is known at once.

        >>> import pyarrow as pa
        >>> import whenabouts as wa
        >>> cameras = {name: pa.table({"objid": [7, 8], "t": t}) for name, t in
        ...            {"gate": [0, 9], "hall": [4, 30], "exit": [6, 31]}.items()}
        >>> seen = wa.window_join(cameras, on="objid", time=wa.Point("t"),
        ...                       windows={("gate", "hall"): 5, ("hall", "exit"): (0, 3)})
        >>> seen.select(["objid", "t_exit"]).to_pylist()
        [{'objid': 7, 't_exit': 6}]
        """
        engine = self._engine_of_streams(frames)
        check_streams(frames, engine.frames, engine.hint)
        own: dict[str, Any] = {"times": times_of(tuple(frames), time)}
        return self.call(WindowJoin, list(frames.values()), own | {**options})

    @takes_options_of(Coalesce, HostSettings)
    @takes_old_names("frame", "table", "stream")
    def coalesce(self, frame: Frame, **options: Unpack[_Coalesce]) -> Frame:
        """Consecutive rows of a group whose values are equivalent, merged into one that is valid for the whole period.

        A row is valid from its time to that of the next row of its group (the last one: to its own time). Columns:
        `window_end` if the window slides, the group columns, the value columns (of the first row of each), `valid_from`
        and `valid_to` (half-open, in the type of the time column), `n` rows. Row order is not promised.

        Without a window all rows are coalesced. With `window` (a duration: rows with `T - window <= time <= T`, or
        `< time` if `closed="right"`) or `rows` (a number: the last ones, of all groups together or `per_group`), T is
        `at`, or every `slide` (a duration, counted from 1970; for `rows` also a number n: every n-th row), or the
        last time. `equivalence`: `equal`, `absolute_tolerance:E`, `relative_tolerance:R`, `increasing`,
        `non_decreasing`, `decreasing`, `non_increasing`, or a function from two tables, the values of the previous rows
        and of these rows, to a boolean array (see `coalescing.equivalence.Predicate`), which is sent to the workers by
        pickle.

        `scheme` picks the algorithm of a stream: `eager` keeps runs in state and `lazy` rows; the result is the same.
        On a stream an extent is emitted once the watermark has passed its `window_end`; without a window, a run is
        emitted once the next one has begun. Rows that arrive out of order within the lateness are included. A window of
        `rows` of all groups together (no `per_group`) cannot be split by group: all rows go through one bucket, one
        core, and their last `rows` must fit into one worker's memory. `lateness` and the options of the host: as in
        `timing_join`.

        `valid_last=True` adds the column `valid_last` before `n`: the time of the last reading of a row, whereas
        `valid_to` is that of the next one, with which something else begins.

        `emit="early"`: rows of a stream come before they are final, and what corrects them when rows arrive out of
        order. The column `op`, the first one, says what a row is: `insert`, `update_before` with the `update_after`
        that follows it, or `delete`, of the row with the key (`window_end`, group, `valid_from`). Applied in order they
        are the rows of `emit="final"`. Each step (block, micro-batch) gives its net changes.

        Rows without a time or a group are in `rejects(result)`. So are all but one of different rows of a group at one
        time (the smallest in column order is kept). Equal rows count once.

        Raises: as `timing_join`; InputError WA-1001, WA-1002, WA-1023 for columns, QueryError WA-2006, WA-2021
        to WA-2023 for options. Cost: O(n) if times ascend in each group, otherwise a radix sort of the unordered
        groups, plus the rows of the result, in parallel over the buckets. Source: Al-Kateb, Kunta, Lee 2010.

        >>> import pyarrow as pa
        >>> import whenabouts as wa
        >>> readings = pa.table({"room": ["a", "a", "b", "a"], "t": [1, 2, 2, 5], "lamp": ["on", "on", "off", "off"]})
        >>> for row in wa.coalesce(readings, time="t", group="room", values="lamp").to_pylist():
        ...     print(*row.values())
        a on 1 5 2
        a off 5 5 1
        b off 2 2 1
        """
        return self.call(Coalesce, [frame], options)

    @takes_options_of(TemporalAggregate, HostSettings, without=("emit", "valid_last"))
    @takes_old_names("frame", "table", "stream")
    def temporal_aggregate(self, frame: Frame, **options: Unpack[_TemporalAggregate]) -> Frame:
        """For each group, how long its coalesced tuples last in the extents of a window: Al-Kateb 2010, Example 2.

        Tuples are coalesced as by `coalesce`, with the same options. `aggregates`: output name -> `max`, `min`, `sum`,
        `count` (int64, durations in microseconds), `avg`, `median` (float64), or `("time_weighted", column)`: the mean
        of a value column, each coalesced tuple weighted by its duration. `where`: an Arrow expression over the group
        and value columns of a coalesced tuple, which is sent to the workers by pickle. Columns: `window_end` if the
        window slides, the group columns, the aggregates; a group without tuples that satisfy `where` has no row.

        Cost: that of `coalesce` up to its output, then O(1) amortised for each instant and group and for each tuple
        that entered or left; with `median` also a binary search for each, and a move of at most 8 bytes for each run of
        the group in the window; O(tuples in the window) with `time_weighted`. Raises: as `coalesce`.

        >>> import pyarrow as pa
        >>> import pyarrow.compute as pc
        >>> import whenabouts as wa
        >>> table = pa.table({"t": [0, 1, 4, 6], "region": ["a"] * 4, "hot": [False, True, False, False]})
        >>> wa.temporal_aggregate(table, time="t", group="region", values="hot", window=10, at=6,
        ...                       aggregates={"longest": "max", "n": "count"}, where=pc.field("hot")).to_pylist()
        [{'region': 'a', 'longest': 3, 'n': 1}]
        """
        return self.call(TemporalAggregate, [frame], options)

    @takes_options_of(TemporalJoin, HostSettings, without=("emit", "valid_last"))
    def temporal_join(self, left: Frame, right: Frame, **options: Unpack[_TemporalJoin]) -> Frame:
        """Pairs of coalesced tuples of two windows whose periods are related: Al-Kateb 2010, Example 1.

        Pass a frame twice to join it with itself. Both inputs have the columns `time`, `group` and `values`, and are
        coalesced as by `coalesce`, with the same options; a window is needed. At each instant tuples of both extents
        are paired if they are equal in the columns `on` (a null equals nothing), if their periods have the `relation`
        (`overlaps`, `contains`, or one of Allen's: see `whenabouts.core.temporal_queries.periods`) and share at least
        `min_duration`, and if `matches` is true: a function from the group and value columns of the left and the right
        tuples (two tables with equally many rows) to booleans, which is sent to the workers by pickle. `lateness`
        applies to both sides.

        Columns: `window_end` if the window slides, the left group and value columns, the right ones (those of `on`
        once, the others with `suffixes`), and the intersection as `valid_from` and `valid_to`, null if there is none.

        Tuples are spread over the buckets by the group columns in `on`; without any, one bucket does all the work.
        Cost: that of `coalesce` up to its output; at each instant a sort and the pairs that touch (plane sweep).
        Raises: as `coalesce`.

        >>> import pyarrow as pa
        >>> import pyarrow.compute as pc
        >>> import whenabouts as wa
        >>> table = pa.table({"t": [0, 2, 9, 1, 4, 9], "room": ["a"] * 3 + ["b"] * 3, "lamp": ["on"] * 2 + ["off"] * 4})
        >>> pairs = wa.temporal_join(table, table, time="t", group="room", values="lamp", window=10,
        ...                          matches=lambda left, right: pc.less(left["room"], right["room"]))
        >>> pairs.to_pylist()
        [{'room_left': 'a', 'lamp_left': 'on', 'room_right': 'b', 'lamp_right': 'off', 'valid_from': 1, 'valid_to': 9}]
        """
        return self.call(TemporalJoin, [left, right], options)

    @takes_options_of(WatchClock, HostSettings)
    def watch_clock(self, frame: Frame, **options: Unpack[_WatchClock]) -> Frame:
        """A row whenever the clock of a group steps, or a learned clock no longer fits: the live form of `profile`.

        Each row of `frame` has two times of one event: `reading`, of the clock that is watched, and `against`, of
        another clock, such as the time of arrival, or the left side of pairs. Rows are taken in the order of `against`,
        by `group`. Columns: those of the group, `time` (that of `against` at which it showed), `kind`, `by_us`, `row`
        (the number of the row in its group, from 1) and a `sentence`.

        - `step`: the level of reading - against changes and stays changed, by ten times what it usually does over 16
          rows (as `profile` finds it). Looked for in the last 256 rows, whenever there are 64 more; `by_us` above zero:
          the clock went ahead. `row` is the first after the step.
        - With `clock`, what `learn_delay` or `learn_clock` returned of the left time `against` and the right time
          `reading` (or a `Learned`): `late`, `early`, `scatter`, where readings lie later or earlier than its
          distribution says, or too often at its ends, beyond chance. `by_us` is the median of the last 64 rows or
          fewer. After one of these 1,000 rows of the group pass before the next. What `learn_clock(per_key=True)`
          returned has a clock for each `group`, its key columns; where it has none, only steps are looked for.

        `every`: the mean number of a group's rows to a false alarm of the second kind is at least this, if the error of
        the distribution is at most `error` (default: the clock's `delay_error`) and delays do not depend on those
        before (an e-CUSUM: Shin, Ramdas and Rinaldo 2023). Rows of pairs must be true pairs: with equal ids.

        Cost: O(rows log rows); state: rows that wait for the watermark, and 4 KiB for each group. Raises: QueryError
        WA-2006 for an invalid option, WA-2221 and WA-2222 for a clock that has no specification; InputError WA-1001 and
        WA-1002 for the columns. Rows without a reading are rejected (WA-1003).

        >>> import numpy as np
        >>> import pyarrow as pa
        >>> import whenabouts as wa
        >>> arrival = np.arange(2_000) * 1_000_000
        >>> ahead = np.where(arrival < 1_500_000_000, 0, 5_000) - np.random.default_rng(1).integers(0, 1_000, 2_000)
        >>> rows = pa.table({"device": ["door"] * 2_000, "t": arrival + ahead, "arrival": arrival})
        >>> alarms = wa.watch_clock(rows, reading="t", against="arrival", group="device")
        >>> alarms.select(["device", "row", "sentence"]).to_pylist()
        [{'device': 'door', 'row': 1501, 'sentence': 'The clock of t stepped ahead by 5.21 ms.'}]
        """
        return self.call(WatchClock, [frame], options)

    def rejects(self, result: Frame) -> Frame:
        """The rows that the query of `result` did not process: `input`, `code`, `reason`, and their own columns.

        `result`: the result of an operation. On Spark it may also be a DataFrame derived from one; there, reading both
        runs the query twice (on a stream use `write_with_rejects`). On Flink the rejects come from the same operator,
        in the form of `result`. Raises QueryError WA-2006 for any other object.

        >>> import warnings
        >>> import pyarrow as pa
        >>> import whenabouts as wa
        >>> table = pa.table({"t": pa.array([5, None], pa.int64())})
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     pairs = wa.timing_join(table, table, left_time=wa.Point("t"), right_time=wa.Point("t"),
        ...                            condition=wa.within(0, confidence=1))
        >>> wa.rejects(pairs).select(["input", "code"]).to_pylist()
        [{'input': 'left', 'code': 'WA-1003'}, {'input': 'right', 'code': 'WA-1003'}]
        """
        engine = self._engine or engine_of([("result", result)])
        rows: Frame = engine.rejects(result)
        return rows

    def run(self, query: Query, inputs: Sequence[Frame], **options: Unpack[HostOptions]) -> Frame:
        """The output of any query over one frame for each of its inputs, in the form of the first.

        The options are those of the host: `whenabouts.core.hosting.host_options.HostSettings`. Errors as `timing_join`,
        and QueryError WA-2006 for another number of inputs.
        """
        check_query(query)
        rows: Frame = self._engine_for(query, inputs).result(query, inputs, HostSettings(**renamed(options)))
        return rows

    def call(self, kind: type[Any], frames: Sequence[Frame], options: Mapping[str, Any]) -> Frame:
        """The result of an operation: `options` are the fields of its query class `kind`, and those of the host.

        `time_slots` is "auto" by default. A host option that is also an option of the query goes to both, unless the
        engine lacks it. In an engine's job the query is named after its class.
        """
        engine, query, settings = self._asked(kind, frames, options)
        rows: Frame = engine.result(query, frames, settings)
        return rows

    def _asked(
        self, kind: type[Any], frames: Sequence[Frame], options: Mapping[str, Any]
    ) -> tuple[Engine, Query, HostSettings]:
        fields: tuple[str, ...] = tuple(kind.__dataclass_fields__)
        own, host = split_options(options, fields)
        _check_names(kind, own)
        if "time_slots" in fields:
            own.setdefault("time_slots", "auto")
        query: Query = kind(**own)
        engine = self._engine_for(query, frames)
        kept = {name: value for name, value in host.items() if name not in own or name not in engine.lacks}
        if "name" not in engine.lacks and kept.get("name") is None:
            kept["name"] = _name_of(kind)
        return engine, query, HostSettings(**kept)

    def _engine_for(self, query: Query, frames: Any) -> Engine:
        if self._engine is not None:
            return self._engine
        if not isinstance(frames, Sequence) or isinstance(frames, (str, bytes)):
            raise refused("the list of inputs", frames, f"give one input for each of {', '.join(query.inputs)}")
        return engine_of(zip(query.inputs, frames, strict=False))

    def _engine_of_streams(self, frames: Any) -> Engine:
        if self._engine is not None:
            return self._engine
        check_streams(frames, (object,), "")
        items: Iterable[tuple[str, Any]] = frames.items()
        return engine_of(items)


def _check_names(kind: type[Any], given: Mapping[str, Any]) -> None:
    """Raise TypeError, in Python's words, for an option that the operation lacks, and for a required one that is not
    given."""
    fields: Mapping[str, Field[Any]] = kind.__dataclass_fields__
    function = f"{_name_of(kind).replace('-', '_')}()"
    check_known(function, given, [*fields, *HostSettings.__dataclass_fields__])
    for name, field in fields.items():
        if field.default is MISSING and field.default_factory is MISSING and name not in given:
            raise TypeError(f"{function} missing a required keyword argument: {name!r}")


def _name_of(kind: type) -> str:
    """The name of a query class as a part of a job's names.

    >>> _name_of(TimingJoin)
    'timing-join'
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()


_of_frames = Operations()
asof_join = _of_frames.asof_join
coalesce = _of_frames.coalesce
join_aggregate = _of_frames.join_aggregate
rejects = _of_frames.rejects
run = _of_frames.run
temporal_aggregate = _of_frames.temporal_aggregate
temporal_join = _of_frames.temporal_join
timing_join = _of_frames.timing_join
watch_clock = _of_frames.watch_clock
window_join = _of_frames.window_join
