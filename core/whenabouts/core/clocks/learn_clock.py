"""Learns offset, drift and delay of two clocks from streams of events that nothing pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal, Required, TypedDict, Unpack, overload

import numpy as np

from whenabouts.core.arrays.typing import FloatArray
from whenabouts.core.clocks.clock_inputs import read_sides
from whenabouts.core.clocks.clock_options import Asked, asked_of
from whenabouts.core.clocks.delay_shape import DelayShape, delay_shape
from whenabouts.core.clocks.evidence import Evidence, signed
from whenabouts.core.clocks.learned_clock import LearnedClock, ahead
from whenabouts.core.clocks.learned_clocks import LearnedClocks
from whenabouts.core.clocks.line_checks import Aliases, aliases, wander
from whenabouts.core.clocks.line_fit import FittedLine, fit
from whenabouts.core.clocks.line_search import FoundLine, coarsest_cell, plan_levels, search
from whenabouts.core.clocks.pair_images import Streams
from whenabouts.core.clocks.profile.profile import profile
from whenabouts.core.clocks.unpaired_streams import Sides, by_key, copied, dithered_sides, named, unfit
from whenabouts.core.durations import Duration, format_duration, parse_duration
from whenabouts.core.errors import Code, InputError
from whenabouts.core.frames.kinds import GivenFrames
from whenabouts.core.joins.sides import SIDES
from whenabouts.core.runtime.key_names import key_names, of_input
from whenabouts.core.runtime.option_checks import flag, refused, text
from whenabouts.core.times.empirical_distributions import MOST_BUCKETS, through_quantiles
from whenabouts.core.times.learned import BILLION
from whenabouts.core.times.templates import Template

VISIBLE = 7.0
FEWEST_PAIRS = 10
"""A share f of n rows is seen from f = 7 sqrt(cell / span) on, and from ten pairs on."""

BOUND = 3.0
"""The error of a delay's distribution: 3 / sqrt(effective pairs)."""

SKEWED, LEANS = 2.0, 4.0
"""A delay is skewed if the median is 2 errors from the fit's middle, or 4 errors from the middle of its
central 68 %."""

TAIL = Fraction(1, 1000)
SHOWN_ALIASES = 10


class _Options(TypedDict, total=False):
    """The options of `learn_clock` that do not change the kind of its result."""

    left_time: Required[str]
    right_time: Required[str]
    on: Any
    max_offset: Duration
    max_drift: float | str
    alpha: float
    max_cells: int
    max_error: float
    tick: Duration | None
    unchecked: bool
    seed: int


@overload
def learn_clock(
    left: Any, right: Any, *, per_key: Literal[False] = False, **options: Unpack[_Options]
) -> LearnedClock: ...


@overload
def learn_clock(left: Any, right: Any, *, per_key: Literal[True], **options: Unpack[_Options]) -> LearnedClocks: ...


def learn_clock(
    left: Any,
    right: Any,
    *,
    left_time: str,
    right_time: str,
    on: Any = None,
    per_key: bool = False,
    max_offset: Duration = "1 h",
    max_drift: float | str = "200 ppm",
    alpha: float = 1e-4,
    max_cells: int = 2**26,
    max_error: float = 0.2,
    tick: Duration | None = None,
    unchecked: bool = False,
    seed: int = 0,
) -> LearnedClock | LearnedClocks:
    """Offset, drift and delay of the right clock against the left one, from events that nothing pairs.

    Some unknown share of the left events was recorded on the right, too. All pairs of rows within `max_offset` are
    searched for a straight line, `right - left = offset + drift (left - t_ref)`, along which there are more pairs than
    chance has. `on`: columns that must be equal in a pair, such as a station; one clock is learned for all of them,
    with `per_key=True` one for each, as a mapping from keys to clocks; `alpha` is then divided by the number of keys.
    `max_offset`: at most half of the time that both streams have in common. `max_drift`: "200 ppm", "50 ppb" or a plain
    number, at most 3000 ppm. `alpha`: the greatest probability that unrelated streams are given a clock. `max_cells`:
    the budget of the search; a cell takes some 20 bytes. `max_error`: the greatest error of the delay's distribution
    with which `spec()` gives one. `tick`: the granularity of times on both sides, if it is not the one found
    ("1 us": none). `unchecked=True` skips `profile`, which refuses columns with sentinels, wrong units or clock steps.
    `seed`: of the random part of a tick that is added to cut times.

    The result is a `LearnedClock`: a report with its `evidence`, and by `spec()` a time specification for joins.
    `found=False` (with a `reason`): fewer than 20 rows, or too short a common time (`too_few`); no line beyond chance
    (`not_significant`); several offsets as good, as between periodic streams (`ambiguous`, with `evidence.modulo_us`);
    a clock that is no straight line (`wanders`); an offset or a drift at its bound (`at_bound`); a budget or
    granularities with which no share could be seen, or times of one side that are all among those of the other
    (`no_resolution`). Only a third
    clock can tell an offset from a delay. The probabilities of a join are those of the times, not of a pair being true.

    Cost: the pairs within `max_offset`, or their Fourier transforms, whichever is cheaper; 10^5 rows a side take a few
    seconds. Raises InputError: WA-1xxx for columns, WA-1081 for times that `profile` calls wrong; QueryError: WA-2006
    for options, WA-2002 for durations, WA-2008 for keys of different types. Source: Perkel, Gerstein and Moore (1967);
    Taylor (1974) for sums along lines; Daniels (1954) for the probability of chance; Richardson (1972) and Lucy (1974)
    for the delay.

    >>> import pyarrow as pa
    >>> import whenabouts as wa
    >>> rng = np.random.default_rng(0)
    >>> seen = 1_700_000_000_000_000 + np.sort(rng.integers(0, 86_400_000_000, 3_000))
    >>> heard = np.sort(seen[rng.random(3_000) < 0.5] + 42_000_000 + rng.integers(-50_000, 50_000))
    >>> clock = wa.learn_clock(pa.table({"t": seen}), pa.table({"u": heard}), left_time="t", right_time="u")
    >>> clock.found, round(clock.offset_us, -5), round(clock.evidence.share, 1)
    (True, 42000000, 0.5)
    """
    asked = asked_of(max_offset, max_drift, alpha, max_cells, max_error, seed)
    flag("unchecked", unchecked)
    flag("per_key", per_key)
    if per_key and on is None:
        raise refused("per_key", per_key, "give the key columns as on=")
    given_tick = None if tick is None else max(parse_duration(tick, name="tick"), 1)
    text("left_time", left_time)
    text("right_time", right_time)
    frames = GivenFrames(dict(zip(SIDES, (left, right), strict=True)))
    columns = (left_time, right_time)
    blocks = read_sides(frames.tables, columns)
    keys = named(blocks, on) if per_key else []
    together = [] if per_key else by_key(blocks, on)
    if not unchecked:
        for number, side in enumerate(SIDES):
            _check(side, frames.tables[number], columns[number], of_input(key_names(on, SIDES), number))
    if not per_key:
        return _of_pairs(together, given_tick, asked, columns)
    shared = sum(len(pair[0]) > 0 < len(pair[1]) for _, pair in keys)
    own = replace(asked, alpha=asked.alpha / max(shared, 1))
    clocks = ((key, _of_pairs([pair], given_tick, own, columns)) for key, pair in keys)
    return LearnedClocks(key_names(on, SIDES), tuple(clocks))


def _check(side: str, table: Any, column: str, keys: Sequence[str]) -> None:
    """Refuse a column that is wrong. Rows of one key each are in the order of their clock."""
    for found in profile(table, column, group=keys or None).wrong:
        raise InputError(
            Code.UNFIT_TIMES,
            f"{side} column {column!r}: {found.sentence}",
            f"{found.remedy} unchecked=True learns from it as it is".strip(),
        )


def _of_pairs(pairs: Streams, tick: int | None, asked: Asked, columns: tuple[str, str]) -> LearnedClock:
    """One clock of sorted times by key."""
    base: dict[str, Any] = {
        "found": False, "left_time": columns[0], "right_time": columns[1], "pairs": 0, "repeated": 0,
    }  # fmt: skip
    refusal = unfit(pairs, asked.max_offset_us)
    if refusal:
        return LearnedClock(reason=refusal[0], sentence=refusal[1], **base)
    sides = dithered_sides(pairs, tick, asked.seed)
    copy = copied(pairs, sides.ticks_us)
    if copy is not None:
        return LearnedClock(reason="no_resolution", sentence=copy, **base)
    return _learned(sides, pairs, asked, base)


def _learned(sides: Sides, pairs: Streams, asked: Asked, base: dict[str, Any]) -> LearnedClock:
    levels = plan_levels(sides.span_us, asked.max_offset_us, asked.max_drift, max(sides.ticks_us), asked.max_cells)
    finest = levels[-1].cell_us if levels else coarsest_cell(sides.span_us, asked.max_offset_us, max(sides.ticks_us))
    least = VISIBLE * math.sqrt(finest / sides.span_us)
    if not levels or least > 1:
        why = (
            "hold too many pairs by chance for any share of partners: narrow max_offset or max_drift"
            if levels
            else f"are more than {asked.max_cells:,} (max_cells): narrow max_drift, or widen max_offset, and the cells "
            "with it"
        )
        sentence = (
            f"Cells of {format_duration(finest)}, over {format_duration(sides.span_us)}, {why} (granularities: "
            f"{format_duration(sides.ticks_us[0])} left, {format_duration(sides.ticks_us[1])} right; tick= if they are "
            "not)."
        )
        return LearnedClock(reason="no_resolution", sentence=sentence, **base)
    line = search(sides.streams, levels, asked.alpha)
    visible = max(VISIBLE * math.sqrt(line.cell_us / sides.span_us), FEWEST_PAIRS / sides.rows)
    evidence = Evidence(line.fap, line.fap_without_best, line.cell_us, visible, ticks_us=sides.ticks_us)
    jitter = format_duration(line.cell_us // 2)
    seen = f"A share of partners below {visible:.2g} would not be seen with a jitter of {jitter}."
    if not line.accepted(asked.alpha):
        why = (
            f"No common clock was found: chance makes a line as good with probability {line.fap:.2g}, "
            f"alpha is {asked.alpha:g}."
            if line.fap >= asked.alpha
            else f"No common clock was found: without three bursts, chance makes the best line with probability "
            f"{line.fap_without_best:.2g}."
        )
        return LearnedClock(reason="not_significant", sentence=f"{why} {seen}", evidence=evidence, **base)
    return _measured(sides, pairs, asked, base, line, evidence)


def _measured(
    sides: Sides, pairs: Streams, asked: Asked, base: dict[str, Any], line: FoundLine,
    evidence: Evidence,
) -> LearnedClock:  # fmt: skip
    """The clock of an accepted line, unless it is ambiguous, wanders, or lies at a bound."""
    # Near the line all is relative to a whole number of microseconds: a constant on one side changes no other bit.
    shift = round(line.offset_us)
    streams = [(left, right - shift) for left, right in sides.streams]
    fitted = fit(streams, sides.span_us, line.offset_us - shift, line.drift, line.cell_us)
    others = aliases(streams, sides.span_us, fitted, fitted.jitter_us, asked.max_offset_us)
    if others.higher is not None:
        fitted = fit(streams, sides.span_us, fitted.offset_us + others.higher, fitted.drift, 2 * fitted.jitter_us)
        others = aliases(streams, sides.span_us, fitted, fitted.jitter_us, asked.max_offset_us)
    own = replace(evidence, aliases=others.distances[:SHOWN_ALIASES], modulo_us=others.modulo_us)
    if others.second is not None and others.second[1] < asked.alpha:
        own = replace(own, second_us=others.second[0], second_fap=others.second[1])
    offset = fitted.offset_us + shift
    refusal = _ambiguous(others, offset) or _at_bound(fitted, offset, asked, line.cell_us)
    if refusal is None:
        bent = wander(streams, sides.span_us, fitted)
        own = replace(own, wander_us=bent.deviation_us)
        if bent.deviation_us:
            at = "" if bent.knot is None else _instant(sides.origin_us + round(bent.knot * sides.span_us))
            what = (
                f"a step or kink at {at} explains it: learn before and after it"
                if at
                else "learn from shorter stretches"
            )
            far = format_duration(round(bent.deviation_us))
            refusal = (
                "wanders",
                (
                    f"The clock is no straight line: it leaves it by {far} beyond chance (standard deviation over 64 "
                    f"stretches of time); {what}."
                ),
            )
    if refusal is not None:
        return LearnedClock(reason=refusal[0], sentence=refusal[1], evidence=own, **base)
    # The readings themselves, not dithered: their granularities are part of the delay.
    readings = [(left - sides.origin_us, right - sides.origin_us - shift) for left, right in pairs]
    shape = delay_shape(readings, sides.span_us, fitted.offset_us, fitted.drift, fitted.jitter_us)
    if shape.pairs < FEWEST_PAIRS:  # a part of a delay that is wider than the cells is beyond chance, and no line
        few = (
            f"The best line holds {shape.pairs:.0f} pairs, {FEWEST_PAIRS} are needed: if delays are wider than cells "
            f"of {format_duration(line.cell_us)}, widen max_offset."
        )
        return LearnedClock(reason="not_significant", sentence=few, evidence=own, **base)
    return _clock(sides, asked, base, own, fitted, shift, shape)


def _ambiguous(others: Aliases, offset: float) -> tuple[str, str] | None:
    if not others.distances:
        return None
    if others.modulo_us is not None:
        return "ambiguous", (
            f"The offset is known modulo {format_duration(round(others.modulo_us))} only: "
            f"{format_duration(round(offset % others.modulo_us))} and {len(others.distances)} others are as good. "
            "Narrow max_offset to less than half of it, if you know that it is."
        )
    shown = ", ".join(format_duration(round(offset + each)) for each in others.distances[:3])
    return "ambiguous", (
        f"An offset of {format_duration(round(offset))} is as good as {len(others.distances)} others: {shown}"
        f"{', ...' if len(others.distances) > 3 else ''}."
    )


def _at_bound(fitted: FittedLine, offset: float, asked: Asked, cell_us: int) -> tuple[str, str] | None:
    _, (_, slope) = fitted.covariance
    if abs(offset) + 2 * cell_us > asked.max_offset_us:
        return "at_bound", (
            f"The offset would be {format_duration(round(offset))}, and max_offset is "
            f"{format_duration(asked.max_offset_us)}: widen it."
        )
    if abs(fitted.drift) > asked.max_drift + 4 * math.sqrt(slope):
        return (
            "at_bound",
            f"The drift would be {fitted.drift * 1e6:.4g} ppm, and max_drift is {asked.max_drift * 1e6:g}: widen it.",
        )
    return None


def _clock(
    sides: Sides, asked: Asked, base: dict[str, Any], evidence: Evidence, fitted: FittedLine, shift: int,
    shape: DelayShape,
) -> LearnedClock:  # fmt: skip
    span, drift_ppb = sides.span_us, round(fitted.drift * BILLION)
    t_ref = sides.origin_us + span // 2
    (own, both), (_, slope) = fitted.covariance
    error = min(max(BOUND / math.sqrt(max(shape.effective, 1e-9)), 1 / MOST_BUCKETS), 1.0)
    spread = 0.5 / math.sqrt(max(shape.effective, 2.0))
    low, early, median, late, high = shape.quantile(np.array([0.16, 0.5 - spread, 0.5, 0.5 + spread, 0.84]))
    of_median = float(late - early) / 2
    # The fit's middle has the smaller error, but for skewed delays it is not the median. That of the shape is drawn
    # towards it by about its error, since the shape begins with the fit.
    lean = abs(float(high + low) / 2 - median)
    skewed = lean > LEANS * of_median or abs(median) > SKEWED * math.hypot(of_median, math.sqrt(own))
    middle = float(median) if skewed else 0.0
    offset = math.floor(fitted.offset_us + middle)
    about = middle - (fitted.offset_us + middle - offset)
    delays = (("delay", _template(shape, about)),) if error <= asked.max_error else ()
    clock = LearnedClock(
        **{**base, "found": True, "pairs": round(shape.pairs)},
        reason=None,
        sentence="",
        offset_us=offset + shift,
        drift_ppb=drift_ppb,
        t_ref_us=t_ref,
        covariance=(
            (own + skewed * 4 * of_median**2, both * BILLION), (both * BILLION, slope * BILLION**2),
        ),
        delays=delays,
        delay_error=error,
        jitter_us=float(high - low) / 2,
        span_us=(sides.origin_us, sides.origin_us + span),
        evidence=replace(
            evidence, share=shape.share, share_error=shape.share_error, chance_pairs_per_s=shape.chance * 1e6
        ),
    )  # fmt: skip
    return replace(clock, sentence=_sentence(clock, asked))


def _template(shape: DelayShape, about: float) -> Template:
    """The delay's distribution: buckets of equal probability, no more than the pairs can tell apart."""
    buckets = min(max(math.floor(2 * math.sqrt(shape.effective)), 4), MOST_BUCKETS)
    shares = [Fraction(n, buckets) for n in range(1, buckets)]
    ends = shape.quantile(np.array([float(TAIL), *map(float, shares), float(1 - TAIL)])) - about
    at: FloatArray = np.maximum.accumulate(np.floor(ends))
    return through_quantiles(dict(zip([Fraction(0), *shares, Fraction(1)], map(int, at), strict=True)))


def _sentence(clock: LearnedClock, asked: Asked) -> str:
    found = clock.evidence
    assert found is not None
    parts = [
        ahead(clock),
        f"and gains {clock.drift_ppb / 1000:.4g} +- {clock.drift_error_ppb / 1000:.2g} ppm."
        if clock.drift_ppb >= 0
        else f"and loses {-clock.drift_ppb / 1000:.4g} +- {clock.drift_error_ppb / 1000:.2g} ppm.",
        f"A share of {found.share:.2g} +- {found.share_error:.1g} of the left rows has a partner "
        f"({clock.pairs:,} pairs); chance makes such a line with probability {found.fap:.1g}.",
    ]
    if clock.delays:
        parts.append(f"The delay's distribution is known to within {clock.delay_error:.2g}.")
    else:
        parts.append(
            f"The delay's distribution is known to within {clock.delay_error:.2g} only, max_error is "
            f"{asked.max_error:g}: there is no specification."
        )
    if found.second_us is not None:
        parts.append(
            f"Another line lies {signed(found.second_us)} (chance {found.second_fap:.1g}), as replies, partners of a "
            "second kind, or a step of the clock make one: it is not learned."
        )
    return " ".join(parts)


def _instant(us: int) -> str:
    return f"{np.datetime64(us, 'us')} UTC"
