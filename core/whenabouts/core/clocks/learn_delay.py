"""Learns offset, drift and delay between two streams whose rows are paired by an id."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.record_batches import take_values
from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.clocks.calibration import Calibration, error_of, held_out
from whenabouts.core.clocks.clock_inputs import read_sides
from whenabouts.core.clocks.clock_options import up_to_one
from whenabouts.core.clocks.learned_clock import LearnedClock, ahead
from whenabouts.core.clocks.robust_lines import Line, errors_like, fit_line
from whenabouts.core.durations import Duration, format_duration, parse_duration
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.frames.kinds import GivenFrames
from whenabouts.core.joins.sides import SIDES
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.event_reader import check_template_column
from whenabouts.core.runtime.key_names import key_names
from whenabouts.core.runtime.keys import NULL_KEY, Keys
from whenabouts.core.runtime.option_checks import columns_shown, one_of, text, whole_number
from whenabouts.core.times.empirical_distributions import equal_mass
from whenabouts.core.times.learned import BILLION, MOST_DRIFT_PPB, corrected

FEWEST_PAIRS = 20
MOST_REPEATED = 0.05
GROSS = 20
"""Median absolute deviations from the line beyond which a difference is called a gross error."""
KEPT_FROM = 3
"""Deviations of a normal distribution; a drift that is less probable by chance is kept by `drift="auto"`."""


class _Pairs(NamedTuple):
    """Pairs in order of left time. `kinds`: the number of each pair's kind, `names` what they are called."""

    left: IntArray
    right: IntArray
    kinds: IntArray
    names: list[str]
    repeated: int
    ids: int


def learn_delay(
    left: Any,
    right: Any,
    *,
    on: Any,
    left_time: str,
    right_time: str,
    kind: str | None = None,
    drift: str = "auto",
    folds: int = 5,
    duplicates: str = "refuse",
    outliers: str = "keep",
    shortest: Duration | None = None,
    longest: Duration | None = None,
    max_error: float = 0.2,
    seed: int = 0,
) -> LearnedClock:
    """Offset, drift and delay of the right clock against the left one, from rows whose pairs an id names.

    `on`: the id, as in joins; ids that a side has twice are left out (`duplicates="first"`: its earliest row is taken).
    `left_time`, `right_time`: the time columns. `kind`: a column of the right rows; each kind has its own distribution
    of delays. `drift`: "auto" keeps it if chance makes one as great in 0.3 % of cases only (from 3.4 standard errors
    on, 4.2 of 20 pairs), "fit" always, "none" never. `outliers="drop"` leaves differences beyond 20 median deviations
    out of the distribution; their share is reported either way.
    `shortest`, `longest`: the least and greatest right - left that can occur (at the reference time), beyond which no
    delay lies; without them the distribution ends with the data. `folds`: the stretches of time that are held out in
    turn; the sum of them says whether the distribution holds for rows that it was not learned from. `max_error`: the
    greatest error of the delay's distribution with which `spec()` gives one: 0.2 takes 47 pairs of a kind.

    The result is a `LearnedClock`: a report, and by `spec()` a time specification for joins. `found=False` (with a
    `reason`): fewer than 20 pairs of a kind (`too_few`), more than 5 % of the ids twice on a side (`ambiguous`), all
    differences zero (`no_resolution`), a drift beyond 10 % (`at_bound`). One-way delays cannot tell a drift of a
    clock from a trend of the delay, nor an offset from a delay.

    Cost: O(n log n). Raises InputError (WA-1xxx) for columns, QueryError WA-2006 for options, WA-2008 for ids of
    different types. Source: Theil (1950), Sen (1968), Huber (1964); standard errors by Liang and Zeger (1986).

    >>> import whenabouts as wa
    >>> rng = np.random.default_rng(0)
    >>> sent = pa.table({"id": np.arange(500), "t": np.sort(rng.integers(0, 3_600_000_000, 500))})
    >>> seen = pa.table({"id": np.arange(500), "u": sent["t"].to_numpy() + 2_000_000 + rng.integers(0, 1000, 500)})
    >>> clock = wa.learn_delay(sent, seen, on="id", left_time="t", right_time="u")
    >>> clock.found, round(clock.offset_us, -4), clock.drift_ppb, clock.calibration.verdict
    (True, 2000000, 0, 'calibrated')
    """
    if kind is not None:
        text("kind", kind)
    one_of("drift", drift, ("auto", "fit", "none"))
    one_of("duplicates", duplicates, ("refuse", "first"))
    one_of("outliers", outliers, ("keep", "drop"))
    up_to_one("max_error", max_error)
    folds, seed = whole_number("folds", folds, 2), whole_number("seed", seed, 0)
    ends = {name: None if end is None else parse_duration(end, name=name) for name, end in
            (("shortest", shortest), ("longest", longest))}  # fmt: skip
    if ends["shortest"] is not None and ends["longest"] is not None and ends["shortest"] > ends["longest"]:
        raise QueryError(Code.BAD_OPTION, f"shortest is {shortest}, longest {longest}", "swap them")
    tables = GivenFrames(dict(zip(SIDES, (left, right), strict=True))).tables
    pairs = _pairs(tables, on, (left_time, right_time), kind, duplicates)
    base: dict[str, Any] = {
        "left_time": left_time,
        "right_time": right_time,
        "pairs": len(pairs.left),
        "repeated": pairs.repeated,
    }
    refusal = _refusal(pairs, duplicates)
    if refusal:
        return LearnedClock(found=False, reason=refusal[0], sentence=refusal[1], **base)
    first, last = int(pairs.left[0]), int(pairs.left[-1])
    t_ref = (first + last) // 2
    line = _line(pairs, t_ref, drift)
    drift_ppb, offset = round(line.slope * BILLION), math.floor(line.median)
    if abs(drift_ppb) > MOST_DRIFT_PPB:
        sentence = (
            f"The drift would be {drift_ppb / 1e7:.3g} %, which no clock has: are the units of both sides the same?"
        )
        return LearnedClock(found=False, reason="at_bound", sentence=sentence, **base)
    delays = corrected(pairs.right, offset, drift_ppb, t_ref) - pairs.left
    spread = np.median(np.abs(delays - np.median(delays)))
    gross = np.abs(delays - np.median(delays)) > GROSS * max(float(spread), 1.0)
    kept = ~gross if outliers == "drop" else np.ones(len(delays), bool)
    _check_ends(delays[kept] + offset, {"shortest": shortest, "longest": longest}, ends)
    bounds = {name: None if end is None else end - offset for name, end in ends.items()}
    error = max(error_of(np.sum(kept & (pairs.kinds == n))) for n in range(len(pairs.names)))
    templates = {
        name: equal_mass(delays[kept & (pairs.kinds == number)], **bounds) for number, name in enumerate(pairs.names)
    }
    judged = held_out(delays[kept], pairs.kinds[kept], folds, seed, **bounds)
    (a, b), (_, d) = line.covariance
    low, high = np.quantile(delays[kept], [0.16, 0.84])
    clock = LearnedClock(
        found=True,
        reason=None,
        sentence="",
        **base,
        offset_us=offset,
        drift_ppb=drift_ppb,
        t_ref_us=t_ref,
        covariance=((a, b * BILLION), (b * BILLION, d * BILLION**2)),
        kind=kind,
        delays=tuple(templates.items()) if error <= max_error else (),
        delay_error=error,
        jitter_us=float(high - low) / 2,
        gross=float(np.mean(gross)),
        span_us=(first, last),
        calibration=judged,
    )
    return replace(clock, sentence=_sentence(clock, judged, drift, max_error))


def _check_ends(differences: IntArray, given: dict[str, Any], ends: dict[str, int | None]) -> None:
    """Refuse a least or greatest difference that a pair passes. `given`: what the user wrote."""
    least, most = int(differences.min()), int(differences.max())
    for name, passed in (("shortest", least), ("longest", most)):
        end = ends[name]
        if end is not None and (passed < end if name == "shortest" else passed > end):
            raise QueryError(
                Code.BAD_OPTION,
                f"{name} is {given[name]}, and right - left lies from {format_duration(least)} to "
                f"{format_duration(most)}",
                'widen it, or leave out the wrong rows (outliers="drop" may do)',
            )


def _pairs(tables: list[pa.Table], on: Any, columns: tuple[str, str], kind: str | None, duplicates: str) -> _Pairs:
    """The usable rows of both sides, paired by id."""
    names = key_names(on, SIDES)
    if not names:
        raise QueryError(Code.BAD_OPTION, "on names no column", "give the id that pairs the rows, or use learn_clock")
    blocks = read_sides(tables, columns)
    codes = Keys(names, [block.schema for block in blocks], SIDES).codes(blocks)
    chosen, repeated, ids = [], [], []
    for block, code in zip(blocks, codes, strict=True):
        order = np.lexsort((times(block)[0], code))
        order = order[code[order] != NULL_KEY]
        ids_of_rows, first, counts = np.unique(code[order], return_index=True, return_counts=True)
        chosen.append((ids_of_rows, order[first]))
        repeated.append(ids_of_rows[counts > 1])
        ids.append(ids_of_rows)
    twice = np.union1d(*repeated)
    common, at_left, at_right = np.intersect1d(chosen[0][0], chosen[1][0], assume_unique=True, return_indices=True)
    usable = np.ones(len(common), bool) if duplicates == "first" else ~np.isin(common, twice)
    rows = chosen[0][1][at_left[usable]], chosen[1][1][at_right[usable]]
    left, right = (times(block)[0][of] for block, of in zip(blocks, rows, strict=True))
    labels, kinds = ["delay"], np.zeros(len(left), np.int64)
    if kind is not None:
        labels, kinds = _kinds(blocks[1], kind, rows[1])
    order = np.lexsort((kinds, right, left))
    order = order[kinds[order] >= 0]
    return _Pairs(left[order], right[order], kinds[order], labels, len(twice), len(np.union1d(*ids)))


def _kinds(block: pa.Table, kind: str, rows: IntArray) -> tuple[list[str], IntArray]:
    """The names of the kinds, in their order, and each row's number; -1 for a null."""
    if kind not in block.schema.names:
        raise InputError(
            Code.MISSING_COLUMN, f"the {SIDES[1]} input has no kind column {kind!r}", columns_shown(block.schema)
        )
    check_template_column(block.schema, kind, SIDES[1])
    values = take_values(block.column(kind), rows).cast(pa.string()).to_pylist()
    names = sorted({value for value in values if value is not None})
    number = {name: at for at, name in enumerate(names)}
    return names, np.array([number.get(value, -1) for value in values], np.int64)


def _refusal(pairs: _Pairs, duplicates: str) -> tuple[str, str] | None:
    n = len(pairs.left)
    if duplicates == "refuse" and pairs.repeated > MOST_REPEATED * pairs.ids:
        return "ambiguous", (
            f"{pairs.repeated:,} of {pairs.ids:,} ids occur more than once on a side, over {MOST_REPEATED:.0%}: which "
            'rows are pairs? duplicates="first" takes the earliest.'
        )
    fewest = min((int(np.sum(pairs.kinds == number)) for number in range(len(pairs.names))), default=0)
    if fewest < FEWEST_PAIRS:
        of_what = "" if len(pairs.names) == 1 else " of each kind"
        return "too_few", f"{FEWEST_PAIRS} pairs{of_what} are needed; found: {fewest:,}."
    if pairs.left[0] == pairs.left[-1]:
        return "too_few", f"All {n:,} left times are equal: they say nothing about what changes with time."
    if not np.any(pairs.left - pairs.right):
        return "no_resolution", f"All {n:,} differences are 0: the same times on both sides say nothing about clocks."
    return None


def _line(pairs: _Pairs, t_ref: int, drift: str) -> Line:
    """The line through right - left; kinds may lie at different heights."""
    x, y = (pairs.left - t_ref).astype(float), (pairs.right - pairs.left).astype(float)
    if drift != "none":
        level: FloatArray = np.array([np.median(y[pairs.kinds == number]) for number in range(len(pairs.names))])
        fitted = fit_line(x, y - level[pairs.kinds])
        if drift == "fit" or abs(fitted.slope) > errors_like(KEPT_FROM, len(x)) * fitted.slope_error:
            line = fit_line(x, y, slope=fitted.slope)
            variance, middle = fitted.covariance[1][1], float(np.mean(x))
            own = line.covariance[0][0] + middle**2 * variance
            return Line(line.median, line.slope, ((own, -middle * variance), (-middle * variance, variance)))
        flat = fit_line(x, y, slope=0.0)
        return Line(flat.median, 0.0, (flat.covariance[0], (0.0, fitted.covariance[1][1])))
    return fit_line(x, y, slope=0.0)


def _sentence(clock: LearnedClock, judged: Calibration, drift: str, max_error: float) -> str:
    parts = [ahead(clock)]
    error = clock.drift_error_ppb / 1000
    if clock.drift_ppb:
        gains = "gains" if clock.drift_ppb > 0 else "loses"
        parts.append(f"and {gains} {abs(clock.drift_ppb) / 1000:.4g} +- {error:.2g} ppm (or its delay has that trend).")
    elif drift == "none":
        parts.append("its drift taken to be zero.")
    else:
        errors = errors_like(KEPT_FROM, clock.pairs)
        parts.append(f"with no drift beyond {errors:.2g} standard errors of {error:.2g} ppm.")
    parts.append(f"{clock.pairs:,} pairs; the delay's distribution is known to within {clock.delay_error:.2g}")
    parts[-1] += "." if clock.delays else f" only, max_error is {max_error:g}: there is no specification."
    if clock.gross:
        parts.append(f"{clock.gross:.2g} of the differences are gross errors, over {GROSS} median deviations away.")
    return " ".join([*parts, judged.sentence])
