"""Engines that are wrong on purpose, each in one way: the suite must detect every one of them.

Each is the local engine with one fault: in the files that it reads, the operator that it drives, its outcome, or its
commits.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.conformance import multiset
from whenabouts.core import local
from whenabouts.core.asof_join import choosing, prevailing
from whenabouts.core.asof_join.open_rows import OpenRows
from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.clocks.watching.query import WatchClock
from whenabouts.core.errors import Code
from whenabouts.core.harness import Capabilities, Gap, LocalHarness, Variant
from whenabouts.core.join_aggregate import chance_functions, partners
from whenabouts.core.join_aggregate.operator import JoinAggregateOperator
from whenabouts.core.join_aggregate.query import JoinAggregate
from whenabouts.core.local import Outcome
from whenabouts.core.runtime.blocks import TEMPLATE
from whenabouts.core.runtime.keys import NULL_KEY
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, FlushMode, Query, Rejected, Step
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.state.segment_codec import unwrap, wrap
from whenabouts.core.state.segment_layout import DIRECTORY
from whenabouts.core.times.learned import Learned
from whenabouts.core.timing_join.operator import TimingJoinOperator
from whenabouts.core.timing_join.output import FinalTimes
from whenabouts.core.timing_join.probed_rows import Beside
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.operator import WindowJoinOperator
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.window_join.stream_index import StreamViews

SECOND = 1_000_000


class _SpoiltQuery:
    def __init__(self, query: Query, harness: Spoilt) -> None:
        self._query, self._harness = query, harness

    def __getattr__(self, name: str) -> Any:
        return getattr(self._query, name)

    def operator(self, schemas: Any, *, streaming: bool) -> Any:
        operator: Any = self._query.operator(schemas, streaming=streaming)
        self._harness.spoil(operator)
        step = operator.step
        operator.step = lambda *args: self._harness.step(step, *args)
        return operator


class _SpoiltRun:
    def __init__(self, run: Any, harness: Spoilt) -> None:
        self._run, self._harness = run, harness

    def source(self, input: str, files: Any) -> None:
        self._run.source(input, self._harness.files(files))

    def collect(self) -> Outcome:
        with mock.patch.object(local, "_Host", self._harness.host):
            return self._harness.outcome(self._run.collect())


class Spoilt(LocalHarness):
    """The local engine with hooks for faults; this one is correct."""

    name = "whole"
    host: type = local._Host

    def open(self, query: Query, variant: Variant) -> Any:
        if variant.restarted_as is not None:
            variant = replace(variant, restarted_as=self.query(variant.restarted_as))
        return _SpoiltRun(super().open(self.query(query), variant), self)

    def query(self, query: Query) -> Any:
        return _SpoiltQuery(query, self)

    def files(self, files: Any) -> Any:
        return files

    def spoil(self, operator: Any) -> None:
        pass

    def step(self, step: Any, store: Any, arrivals: Any, watermark: int, demand: FlushMode, *more: int) -> Step:
        return step(store, arrivals, watermark, demand, *more)  # type: ignore[no-any-return]

    def outcome(self, outcome: Outcome) -> Outcome:
        return outcome


class DropsLateRows(Spoilt):
    name = "drops late rows silently"

    def step(self, step: Any, *args: Any) -> Step:
        done: Step = step(*args)
        done.rejected = [rejected for rejected in done.rejected if rejected.code is not Code.LATE]
        done.metrics["rows_rejected"] -= done.metrics.pop("rows_late", 0)
        return done


class NeverCallsARowLate(Spoilt):
    name = "never calls a row late"

    def step(self, step: Any, store: Any, arrivals: Any, watermark: int, demand: FlushMode, *more: int) -> Step:
        return step(store, arrivals, NO_WATERMARK, demand, *more)  # type: ignore[no-any-return]


class EvictsTooEarly(Spoilt):
    name = "evicts too early"

    def spoil(self, operator: Any) -> None:
        if isinstance(operator, TimingJoinOperator):
            exact = operator.obsolete_before
            operator.obsolete_before = lambda *args: exact(*args) + SECOND  # type: ignore[method-assign]


class NeverEvicts(Spoilt):
    name = "never evicts"

    def spoil(self, operator: Any) -> None:
        operator._evict = lambda *_: None


class WidensPossibly(Spoilt):
    name = "takes exact times beside the window for possible"

    def query(self, query: Query) -> Any:
        assert isinstance(query, TimingJoin)
        return super().query(replace(query, condition=query.condition.decided_by(instants=False)))


class IgnoresWhere(Spoilt):
    name = "ignores where"

    def query(self, query: Query) -> Any:
        assert isinstance(query, TimingJoin)
        return super().query(replace(query, where=None))


class PairsTwice(Spoilt):
    name = "gives one pair twice"

    def step(self, step: Any, *args: Any) -> Step:
        done: Step = step(*args)
        done.output += [batch.slice(0, 1) for batch in done.output[:1]]
        return done


class TakesNothingBack(Spoilt):
    name = "keeps rows that early answers replace"

    def outcome(self, outcome: Outcome) -> Outcome:
        if "op" not in outcome.output.column_names:
            return outcome
        kept = pc.not_equal(outcome.output["op"], "update_before")
        return replace(outcome, output=outcome.output.filter(kept))


class GivesFewRows(Spoilt):
    name = "gives a hundred rows at most"

    def outcome(self, outcome: Outcome) -> Outcome:
        return replace(outcome, output=outcome.output.slice(0, 100))


class _KeepsReplayedOutput(local._Host):
    def restore(self, committed: Any) -> None:
        output = list(self._output)
        super().restore(committed)
        self._output[:] = output


class ReplaysTwice(Spoilt):
    name = "keeps the output of a lost step"
    host = _KeepsReplayedOutput


class _LosesState(local._Host):
    def restore(self, committed: Any) -> None:
        super().restore(committed)
        self._stores = [DictStore() for _ in self._stores]


class LosesState(Spoilt):
    name = "restarts without its state"
    host = _LosesState


class ForgetsDuplicates(Spoilt):
    name = "forgets that rows repeat"

    def outcome(self, outcome: Outcome) -> Outcome:
        seen: Counter[Any] = Counter()
        first = []
        for row in zip(*(multiset.cells(column) for column in outcome.output.columns), strict=True):
            first.append(not seen[row])
            seen[row] += 1
        return Outcome(outcome.output.filter(pa.array(first, pa.bool_())), outcome.rejects, outcome.metrics)


class RoundsProbability(Spoilt):
    name = "rounds the probability"
    digits = 15

    def outcome(self, outcome: Outcome) -> Outcome:
        output = outcome.output
        if "probability" in output.column_names:
            at = output.column_names.index("probability")
            output = output.set_column(at, "probability", pa.array(np.round(output.column(at).to_numpy(), self.digits)))
        return Outcome(output, outcome.rejects, outcome.metrics)


class LosesABit(Spoilt):
    name = "differs in the last bit of a stream"

    def outcome(self, outcome: Outcome) -> Outcome:
        output = outcome.output
        if "event_time" in output.column_names:
            at = output.column_names.index("probability")
            nudged = np.nextafter(output.column(at).to_numpy(), 0)
            output = output.set_column(at, "probability", pa.array(nudged))
        return Outcome(output, outcome.rejects, outcome.metrics)


class _Codes:
    """Keys whose codes are changed."""

    def __init__(self, keys: Any, change: Any) -> None:
        self._keys, self._change = keys, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._keys, name)

    def codes(self, tables: Any, first: int = 0) -> Any:
        found = self._keys.codes(tables, first)
        return [self._change(codes, table) for codes, table in zip(found, tables, strict=True)]


def _change_codes(operator: Any, change: Any) -> None:
    operator.keys = _Codes(operator.keys, change)
    if isinstance(operator, TimingJoinOperator):
        operator.matching._keys = operator.keys  # type: ignore[assignment]


class NullsMeet(Spoilt):
    name = "joins null keys"

    def spoil(self, operator: Any) -> None:
        _change_codes(operator, lambda codes, _: codes + 1)  # NULL_KEY is treated like any other code


class NaNsDoNotMeet(Spoilt):
    name = "does not join NaN keys"

    def spoil(self, operator: Any) -> None:
        def without_nan(codes: Any, table: Any) -> Any:
            for name in operator.keys.names:
                column = table.column(name)
                if pa.types.is_floating(column.type):
                    values = np.asarray(
                        column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column
                    )
                    codes = np.where(np.isnan(values.astype(float)), NULL_KEY, codes)
            return codes

        _change_codes(operator, without_nan)


class OneStrategy(Spoilt):
    name = "has one strategy under five names"

    def query(self, query: Any) -> Any:
        return sheets_with_strategy(query, "eager")


def sheets_with_strategy(query: Any, strategy: str) -> Any:
    return replace(query, strategy=strategy) if hasattr(query, "strategy") else query


class WaitsForNoBlock(Spoilt):
    name = "lets no row wait for a block"

    def query(self, query: Any) -> Any:
        return super().query(replace(query, block_size=1))


class WaitsForWholeInput(Spoilt):
    name = "lets rows wait for the end of the input"

    def query(self, query: Any) -> Any:
        return super().query(replace(query, block_size=10**9 if query.block_size > 1 else 1))


class WaitsTooLong(Spoilt):
    name = "lets rows wait longer than they may"

    def query(self, query: Any) -> Any:
        return super().query(replace(query, max_latency=None))


class ForgetsWaitingRows(Spoilt):
    name = "forgets the rows that wait at the end"

    def step(self, step: Any, store: Any, arrivals: Any, watermark: int, demand: FlushMode, *more: int) -> Step:
        return Step() if demand is FlushMode.END and not arrivals else step(store, arrivals, watermark, demand, *more)


class RejectsUnderOneCode(Spoilt):
    name = "rejects everything under one code"

    def spoil(self, operator: Any) -> None:
        for reader in operator.readers:
            read = reader.read
            reader.read = lambda rows, read=read: self._one_code(read(rows))

    @staticmethod
    def _one_code(events: Any) -> Any:
        return events._replace(rejected=[Rejected(r.input, Code.NULL_TIME, r.rows) for r in events.rejected])


class LosesRejects(Spoilt):
    name = "does not count what it rejects"

    def outcome(self, outcome: Outcome) -> Outcome:
        metrics = outcome.metrics.copy()
        metrics["rows_rejected"] = 0
        return Outcome(outcome.output, outcome.rejects, metrics)


class PartsKeys(Spoilt):
    name = "sends rows of one key to many buckets"

    def spoil(self, operator: Any) -> None:
        operator.keys.buckets = lambda block, n, input: np.arange(block.num_rows) % n


class IgnoresLaterFiles(Spoilt):
    name = "reads the first file only"

    def files(self, files: Any) -> Any:
        return files[:1]


class EarlierEventTime(Spoilt):
    name = "gives the earlier event time"

    def outcome(self, outcome: Outcome) -> Outcome:
        output = outcome.output
        if "event_time" in output.column_names and output.num_rows:
            at = output.column_names.index("event_time")
            earlier = pa.array(output.column(at).cast(pa.int64()).to_numpy() - 1).cast(pa.timestamp("us", "UTC"))
            output = output.set_column(at, "event_time", earlier)
        return Outcome(output, outcome.rejects, outcome.metrics)


class DropsAColumn(Spoilt):
    name = "widens an integer column"

    def outcome(self, outcome: Outcome) -> Outcome:
        output = outcome.output
        if "small" in output.column_names:
            at = output.column_names.index("small")
            output = output.set_column(at, "small", output.column(at).cast(pa.int64()))
        return Outcome(output, outcome.rejects, outcome.metrics)


class EvictsHistogramsTooEarly(EvictsTooEarly):
    name = "evicts histograms too early"


class KnowsOneTemplate(Spoilt):
    name = "takes every row for the first template"

    def spoil(self, operator: Any) -> None:
        for reader in operator.readers:
            read = reader.read
            reader.read = lambda rows, read=read: self._changed(read(rows), lambda number: number * 0)

    @staticmethod
    def _changed(events: Any, change: Any) -> Any:
        if TEMPLATE not in events.block.schema.names:
            return events
        at = events.block.schema.names.index(TEMPLATE)
        number = pa.array(change(events.block.column(at).to_numpy()), pa.int32())
        return events._replace(block=events.block.set_column(at, TEMPLATE, number))


class _RestoresOtherTemplates(local._Host):
    def restore(self, committed: Any) -> None:
        super().restore(committed)
        reader = self.operator.readers[0]
        names = reader.time.templates
        reader.time = replace(reader.time, templates=(*names[1:], names[0]))


class SwapsTemplatesOnRestart(Spoilt):
    name = "numbers its templates otherwise after a restart"
    host = _RestoresOtherTemplates


class TakesUnknownTemplates(Spoilt):
    name = "takes an unknown template for the first one"

    def spoil(self, operator: Any) -> None:
        for reader in operator.readers:
            found = reader._template
            reader._template = lambda rows, found=found: None if (n := found(rows)) is None else np.maximum(n, 0)


class ProbesWhatIsKnown(Spoilt):
    name = "asks the kernel where satisfaction times decide"

    def outcome(self, outcome: Outcome) -> Outcome:
        metrics = outcome.metrics.copy()
        metrics["probed"] += metrics["matched"] - metrics["sure"]
        return Outcome(outcome.output, outcome.rejects, metrics)


class ProbesOnStreams(ProbesWhatIsKnown):
    name = "asks the kernel on streams"


class SparesProbes(Spoilt):
    name = "spares probes under a name that stands for them"

    def query(self, query: Any) -> Any:
        return sheets_with_strategy(query, "eager")


class RoundsHistograms(RoundsProbability):
    name = "rounds the probability of histograms"
    digits = 11


class LosesABitOfBuckets(Spoilt):
    name = "differs in the last bit where times are histograms"

    def query(self, query: Any) -> Any:
        self.histograms = bool(query.left_time.templates)
        return super().query(query)

    def outcome(self, outcome: Outcome) -> Outcome:
        output = outcome.output
        if self.histograms:
            at = output.column_names.index("probability")
            output = output.set_column(at, "probability", pa.array(np.nextafter(output.column(at).to_numpy(), 0)))
        return Outcome(output, outcome.rejects, outcome.metrics)


class EndsRunsEarly(Spoilt):
    name = "ends runs with every file"

    def step(self, step: Any, store: Any, arrivals: Any, watermark: int, demand: FlushMode, *more: int) -> Step:
        return step(store, arrivals, watermark, FlushMode.END, *more)  # type: ignore[no-any-return]


class KnowsOneBucket(Spoilt):
    name = "tells a bucket nothing of the others"

    def step(self, step: Any, store: Any, arrivals: Any, watermark: int, demand: FlushMode, *more: int) -> Step:
        return step(store, arrivals, watermark, demand)  # type: ignore[no-any-return]


class CallsRowsAloneEarly(Spoilt):
    name = "calls rows unmatched a second early"

    def spoil(self, operator: Any) -> None:
        if isinstance(operator, TimingJoinOperator):
            exact = operator.obsolete_before
            operator._final_times = FinalTimes(lambda *args: exact(*args) + SECOND, operator._streaming)


class ForgetsMatches(Spoilt):
    name = "forgets which stored rows have matched"

    def spoil(self, operator: Any) -> None:
        begin = operator._finalizer.begin

        def forgetful(*args: Any) -> Any:
            done = begin(*args)
            exact = done.changed
            done.changed = lambda input: np.zeros_like(exact(input))
            return done

        operator._finalizer.begin = forgetful


class TakesTheFirstOfEquals(Spoilt):
    name = "breaks ties by order of arrival"

    def spoil(self, operator: Any) -> None:
        begin = operator._finalizer.begin

        def hasty(*args: Any) -> Any:
            done = begin(*args)
            for each in done._partners.values():
                each._ranks = lambda each=each: np.arange(each.candidates.num_rows)
            return done

        operator._finalizer.begin = hasty


class FillsNulls(Spoilt):
    name = "puts 0 where there is no partner"

    def outcome(self, outcome: Outcome) -> Outcome:
        output = outcome.output
        for at, field in enumerate(output.schema):
            if pa.types.is_int32(field.type):
                output = output.set_column(at, field, output.column(at).fill_null(0))
        return Outcome(output, outcome.rejects, outcome.metrics)


class DropsMembersTooEarly(Spoilt):
    name = "drops members of combinations a second early"

    def spoil(self, operator: Any) -> None:
        if isinstance(operator, WindowJoinOperator):
            exact = operator._horizon_us
            operator._horizon_us = lambda *args: exact(*args) - SECOND  # type: ignore[method-assign]


class KeepsMembersForEver(Spoilt):
    name = "keeps members of combinations for a day"

    def spoil(self, operator: Any) -> None:
        if isinstance(operator, WindowJoinOperator):
            exact = operator._horizon_us
            operator._horizon_us = lambda *args: exact(*args) + 86_400 * SECOND  # type: ignore[method-assign]


class _NewAndOld(StreamViews):
    def stored(self, stream: int) -> Any:
        return self.all(stream)


class FindsCombinationsTwice(Spoilt):
    name = "finds a combination from each of its new rows"

    def spoil(self, operator: Any) -> None:
        if isinstance(operator, WindowJoinOperator):
            operator._views = lambda rows: _NewAndOld(rows, operator.keys, nested=False)  # type: ignore[method-assign]


class RefinesNothing(Spoilt):
    name = "tests no window at the end"

    def spoil(self, operator: Any) -> None:
        if isinstance(operator, WindowJoinOperator):
            operator._holds = lambda *args: np.ones(len(args[-1]), bool)  # type: ignore[method-assign]


class HasOneAlgorithm(Spoilt):
    name = "has one algorithm for window joins"

    def query(self, query: Query) -> Any:
        return super().query(replace(query, strategy="backward") if isinstance(query, WindowJoin) else query)


class ForgetsItsPeriod(Spoilt):
    name = "begins both modes of forward evaluation again in each step"

    def step(self, step: Any, store: Any, *args: Any) -> Step:
        done: Step = step(store, *args)
        directory = store.get(DIRECTORY, 0)
        if directory is not None:
            whole = json.loads(bytes(unwrap(directory)))
            whole.pop("notes", None)
            store.put(DIRECTORY, 0, wrap(json.dumps(whole).encode()))
        return done


class TakesBlocksForTheWhole(Spoilt):
    name = "takes each block for the whole stream in forward evaluation"

    def spoil(self, operator: Any) -> None:
        if isinstance(operator, WindowJoinOperator):
            sweep = operator._sweep
            operator._sweep = lambda state, fresh, until, step: sweep(state, fresh, END_OF_TIME, step)  # type: ignore[method-assign]


class LosesBuffers(LosesState):
    name = "restarts forward evaluation without its buffers"


class ForgetsFoldedRows(Spoilt):
    name = "forgets the partners of left rows that it folds"

    def spoil(self, operator: Any) -> None:
        if isinstance(operator, JoinAggregateOperator):
            marks = operator._marks

            def forgotten(left: Any, right: Any, step: Any) -> Any:
                return marks(left, [batch.slice(0, 0) for batch in right], step)

            operator._marks = forgotten  # type: ignore[method-assign]


class NeverFolds(Spoilt):
    name = "keeps right rows that can be folded"

    def query(self, query: Query) -> Any:
        return super().query(replace(query, folding="never") if isinstance(query, JoinAggregate) else query)


class WatchesLessClosely(Spoilt):
    name = "allows a learned clock twice its error"

    def query(self, query: Query) -> Any:
        return super().query(replace(query, error=2 * query.error) if isinstance(query, WatchClock) else query)


class ReadsLearnedTimesLate(Spoilt):
    name = "corrects learned times by a microsecond less"

    def query(self, query: Query) -> Any:
        if isinstance(query, TimingJoin) and isinstance(query.left_time, Learned):
            query = replace(query, left_time=replace(query.left_time, offset_us=query.left_time.offset_us - 1))
        return super().query(query)


class TakesOffsetsOneByOne(Spoilt):
    """As if each reading of a clock had an offset of its own."""

    name = "forgets that readings share a clock"

    def query(self, query: Query) -> Any:
        def alone(spec: Any) -> Any:
            return getattr(spec, "beyond_domain", spec)

        if isinstance(query, JoinAggregate):
            return super().query(replace(query, left_time=alone(query.left_time), right_time=alone(query.right_time)))
        assert isinstance(query, WindowJoin)
        times = tuple((name, alone(spec)) for name, spec in query.times)
        return super().query(replace(query, times=times))


class OffsetsOfStreamsOneByOne(TakesOffsetsOneByOne):
    """The same in a window join."""

    name = "forgets that streams share a clock"


class MultipliesWindows(Spoilt):
    name = "multiplies the probabilities of windows"

    def outcome(self, outcome: Outcome) -> Outcome:
        names = [name for name in outcome.output.column_names if name.startswith("probability_")]
        if "probability" not in outcome.output.column_names:
            return outcome
        product = np.prod([outcome.output.column(name).to_numpy() for name in names], axis=0)
        place = outcome.output.column_names.index("probability")
        return replace(outcome, output=outcome.output.set_column(place, "probability", pa.array(product)))


class HonestGap(RoundsProbability):
    name = "declares its gap"
    capabilities = Capabilities({"oracle_probability": Gap("notimpl", "rounds to 15 digits", "issue 0")})


class ClosedGap(Spoilt):
    name = "declares a gap that is closed"
    capabilities = Capabilities({"oracle_end_of_input": Gap("notyet", "has been mended since", "issue 0")})


class GapInNoLaw(Spoilt):
    name = "declares a gap in no law"
    capabilities = Capabilities({"oracle_of_delphi": Gap("never", "is far away", "issue 0")})


class IgnoresTheOrderOfAnInstant(Spoilt):
    name = "takes any of several rows at one instant"

    def query(self, query: Query) -> Any:
        assert isinstance(query, AsofJoin)
        return super().query(replace(query, order_by=None))


class PrefersTheEarlier(Spoilt):
    name = "takes the earlier of equally probable rows"

    def step(self, step: Any, *args: Any) -> Step:
        honest = choosing.most_probable
        with mock.patch.object(choosing, "most_probable", lambda *of: honest(*of[:6], -of[6], *of[7:])):
            return super().step(step, *args)


class RoundsWhatPrevails(Spoilt):
    name = "rounds the probability that a row prevails"
    column = "probability"

    def outcome(self, outcome: Outcome) -> Outcome:
        output = outcome.output
        at = output.column_names.index(self.column)
        output = output.set_column(at, self.column, pc.round(output.column(at), 11))
        return Outcome(output, outcome.rejects, outcome.metrics)


class MultipliesChances(Spoilt):
    """The product of marginals, as if partners were independent of each other."""

    name = "multiplies the chances of partners"

    def step(self, step: Any, *args: Any) -> Step:
        honest = chance_functions.chances

        def chances(left: Any, right: Any, lo: int, hi: int, each: Any, *of: Any, **more: Any) -> Any:
            found = honest(left, right, lo, hi, each, *of, **more)
            if found.none.size:
                for i, (start, stop) in enumerate(pairwise(each.offsets)):
                    found.none[i] = (each.certain[i] == 0) * np.prod(1 - each.probability[start:stop])
            return found

        with mock.patch.object(chance_functions, "chances", chances):
            return super().step(step, *args)


class ForgetsRowsBeside(Spoilt):
    name = "counts rows of sure ranges alone"

    def step(self, step: Any, *args: Any) -> Step:
        def none_beside(found: Any, base: slice, *of: Any) -> Any:
            return Beside(np.zeros(len(found.ranges[base]) + 1, np.int64), np.empty(0, np.int32)), 0

        with mock.patch.object(partners, "matching_beside", none_beside):
            return super().step(step, *args)


class RoundsThatNonePrevails(RoundsWhatPrevails):
    name = "rounds the probability that none prevails"
    column = "none_probability"


class HalvesTheConfidence(Spoilt):
    name = "keeps rows of half the confidence"

    def query(self, query: Query) -> Any:
        assert isinstance(query, AsofJoin)
        return super().query(replace(query, confidence=query.least_probability / 2))


class CopiesTooFew(Spoilt):
    name = "copies rows to the slot of their own time only"

    def spoil(self, operator: Any) -> None:
        if operator.keys.slots is not None:
            operator.keys.slots = replace(operator.keys.slots, before_us=0, after_us=0)


class RoundsEqualChances(RoundsWhatPrevails):
    name = "rounds the probability of rows that are alike"


class NudgesWhatPrevails(Spoilt):
    """Changes the last bits of the probabilities of some left rows."""

    name = "nudges no probability"

    def nudged(self, left: Any, right: Any, direction: str) -> Any:
        """Which left rows."""
        return np.zeros(len(left.t_min), bool)

    def step(self, step: Any, *args: Any) -> Step:
        honest = prevailing.prevailing

        def spoilt(left: Any, right: Any, **more: Any) -> Any:
            found = honest(left, right, **more)
            of = np.repeat(self.nudged(left, right, more["direction"]), np.diff(found.offsets))
            found.probability[of] *= 1 - 2.0**-51
            return found

        with mock.patch.object(prevailing, "prevailing", spoilt):
            return super().step(step, *args)


class NudgesForward(NudgesWhatPrevails):
    name = "looks forward with other bits"

    def nudged(self, left: Any, right: Any, direction: str) -> Any:
        return np.full(len(left.t_min), direction == "forward")


class NudgesOddTimes(NudgesWhatPrevails):
    name = "has other bits at other times"

    def nudged(self, left: Any, right: Any, direction: str) -> Any:
        return left.t_max % 2 == 1


class NudgesByFarRows(NudgesWhatPrevails):
    name = "lets rows that cannot prevail change bits"

    def nudged(self, left: Any, right: Any, direction: str) -> Any:
        return np.bincount(right.key, minlength=left.key.max() + 1)[left.key] % 2 == 1


class AnswersLate(Spoilt):
    name = "lets settled rows wait for later steps"

    def step(self, step: Any, store: Any, arrivals: Any, watermark: int, demand: FlushMode, *more: int) -> Step:
        late = max(watermark - 250 * SECOND, NO_WATERMARK)
        return step(store, arrivals, late, demand, *more)  # type: ignore[no-any-return]


class KeepsRightRows(Spoilt):
    name = "never drops right rows"

    def step(self, step: Any, *args: Any) -> Step:
        with mock.patch.object(OpenRows, "drop_unneeded", return_value=None):
            return super().step(step, *args)
