"""What is known of one clock against another: the result of learning, as a specification, a condition and a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.record_batches import one_batch
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.clocks.calibration import Calibration, distribution_function, quantiles
from whenabouts.core.clocks.central_window import central_window
from whenabouts.core.clocks.evidence import Evidence
from whenabouts.core.durations import Duration, format_duration, number_of, parse_duration
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.frames.kinds import GivenFrames
from whenabouts.core.html_tables import html_table
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.runtime.option_checks import one_of, refused, text
from whenabouts.core.times.conditions import Condition
from whenabouts.core.times.learned import BILLION, Learned
from whenabouts.core.times.templates import Template
from whenabouts.core.times.time_specs import Point

Frame = TypeVar("Frame")
"""The type of a dataframe of any library."""

FORMAT, VERSION = "whenabouts clock", 1

LEAST_SHARE = 0.8
"""Below it, the pairs beyond the window in one direction would be among those beyond it in the other."""


@dataclass(frozen=True)
class LearnedClock:
    """The right clock against the left one: `right - left = offset + drift (left - t_ref) + D`, with D's distribution.

    `found`: whether there is an answer; otherwise `reason` (`too_few`, `ambiguous`, `no_resolution`, `at_bound`, of
    `learn_clock` also `not_significant` and `wanders`) and `sentence` say why not. `offset_us`: the median of
    right - left at `t_ref_us`, the middle of the left span; it holds the offset of the clocks and the median delay,
    which only a third clock can tell apart. `drift_ppb`: how much the right clock gains, in parts per billion.
    `covariance`: of both, ((us^2, us ppb), (us ppb, ppb^2)). `delays`: D's distribution by kind,
    templates about offset 0, `delay_error` the bound of their distribution functions' errors.
    `jitter_us`: half the central 68 % of D. `pairs`: the pairs used, `repeated` the ids left out because a side has
    them twice, `gross` the share of pairs beyond 20 median deviations. `span_us`: the left times of the pairs.
    `calibration`: how held-out pairs lie within the distribution (`learn_delay`). `evidence`: what speaks for the clock
    where nothing pairs rows (`learn_clock`).
    """

    found: bool
    reason: str | None
    sentence: str
    left_time: str
    right_time: str
    pairs: int
    repeated: int
    offset_us: int = 0
    drift_ppb: int = 0
    t_ref_us: int = 0
    covariance: tuple[tuple[float, float], tuple[float, float]] = ((0.0, 0.0), (0.0, 0.0))
    kind: str | None = None
    delays: tuple[tuple[str, Template], ...] = ()
    delay_error: float = 1.0
    jitter_us: float = 0.0
    gross: float = 0.0
    span_us: tuple[int, int] = (0, 0)
    calibration: Calibration | None = None
    evidence: Evidence | None = None

    @property
    def offset_error_us(self) -> float:
        """Standard error of the offset, in microseconds."""
        return math.sqrt(self.covariance[0][0])

    @property
    def drift_error_ppb(self) -> float:
        """Standard error of the drift, in parts per billion."""
        return math.sqrt(self.covariance[1][1])

    @property
    def delay(self) -> Template | None:
        """D's distribution, if it is one for all kinds."""
        return self.delays[0][1] if len(self.delays) == 1 else None

    def error_at_us(self, t_us: int) -> float:
        """Standard error of offset and drift together at an instant, which grows with its distance from the data."""
        away = (t_us - self.t_ref_us) / BILLION
        (own, both), (_, slope) = self.covariance
        return math.sqrt(max(own + 2 * away * both + away**2 * slope, 0.0))

    def spec(self, side: str = "right", *, t: str | None = None, accept: str | None = None) -> Learned:
        """The time specification of one side, whose times it puts on the clock of the other.

        `t`: its time column, if it has another name than in the data learned from. `accept="uncalibrated"`: also if the
        delay did not hold for held-out rows.

        Raises QueryError WA-2221 if no clock was found, WA-2222 if the delay is not calibrated, or not known well
        enough.
        """
        one_of("side", side, ("left", "right"))
        one_of("accept", accept, (None, "uncalibrated"))
        self._check_found()
        if self.calibration is not None and self.calibration.verdict != "calibrated" and accept is None:
            raise QueryError(
                Code.DELAY_NOT_CALIBRATED,
                self.calibration.sentence,
                'learn from another stretch of time or by kind=, or give accept="uncalibrated"',
            )
        self._check_delay()
        kind = self.kind
        if side == "right":
            mirrored = {name: _image(delay, Fraction(-1)) for name, delay in self.delays}
            return Learned(
                named("t", t, self.right_time), self.offset_us, self.drift_ppb, self.t_ref_us, mirrored, kind
            )
        rate = 1 + Fraction(self.drift_ppb, BILLION)
        back = round((1 / rate - 1) * BILLION)
        stretched = {name: _image(delay, rate) for name, delay in self.delays}
        reference = self.t_ref_us + self.offset_us
        return Learned(named("t", t, self.left_time), -self.offset_us, back, reference, stretched, kind)

    def condition(self, share: float = 0.99) -> Condition:
        """The condition that this share of true pairs meets, with times by `spec()` on one side and exact ones on the
        other: D within its central part, with a confidence of one half.

        `share` is at least 0.8 and below 1. By kinds it is the widest window, and each kind has the share or more. The
        confidence is less where the distribution has a gap in its middle, as if there were two delays.

        Raises QueryError WA-2006 for another share, WA-2221 if no clock was found, WA-2222 if its delay is not known
        well enough.
        """
        part = number_of(share)
        if part is None or not LEAST_SHARE <= part < 1:
            raise QueryError(Code.BAD_OPTION, f"share is {share!r}", f"give a number from {LEAST_SHARE} to below 1")
        self._check_found()
        self._check_delay()
        return central_window([delay for _, delay in self.delays], part)

    def purity(self, width: Duration) -> float:
        """The share of true pairs among all pairs whose corrected times differ by at most half of `width`.

        Raises QueryError WA-2006 for a clock of `learn_delay`, whose pairs are all true, or for a width of 0 or less;
        WA-2221 if no clock was found, WA-2222 if its delay is not known well enough.
        """
        self._check_found()
        if self.evidence is None:
            raise refused("purity", "asked of paired rows", "all pairs of learn_delay are true")
        self._check_delay()
        wide = parse_duration(width, name="width")
        if wide <= 0:
            raise refused("width", width, "give a duration above 0")
        below, above = distribution_function(self.delays[0][1], np.array([-wide / 2, wide / 2]))
        true = self.pairs * float(above - below)
        return true / max(true + self.evidence.chance_pairs_per_s * wide / 1e6, 1e-300)

    def correct(self, frame: Frame, t: str | None = None, *, name: str | None = None) -> Frame:
        """A frame of right rows with one more column: their times on the left clock, before the delay.

        `t`: the time column; `name`: the new one (default: with `_corrected` after it), timestamps in UTC. A null stays
        null. Raises QueryError WA-2221 if no clock was found, InputError for the column as joins do, QueryError WA-2009
        if the new column exists.
        """
        self._check_found()
        time = named("t", t, self.right_time)
        rows: Frame = with_corrected(frame, time, name, lambda _, us: (self.on_left_clock(us), None))
        return rows

    def on_left_clock(self, us: IntArray) -> IntArray:
        """Right times in microseconds as the left clock has them, before the delay."""
        return Learned("t", self.offset_us, self.drift_ppb, self.t_ref_us, Template(((0, 1, 1),))).corrected(us)

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON has it; times in microseconds since 1970, masses of buckets as exact text."""
        values = asdict(self)
        values["delays"] = [
            [name, [[lo + phi.end_us, hi + phi.end_us, str(p)] for lo, hi, p in phi.exact]] for name, phi in self.delays
        ]
        return {"format": FORMAT, "version": VERSION, **values}

    @staticmethod
    def from_dict(values: dict[str, Any]) -> LearnedClock:
        """The clock that `to_dict` gave. Raises InputError WA-1012 for anything else."""
        try:
            if not isinstance(values, Mapping):
                raise TypeError(f"a {type(values).__name__}")
            if values["format"] != FORMAT or values["version"] != VERSION:
                raise InputError(
                    Code.BAD_TEMPLATE,
                    f"it is {values['format']!r} of version {values['version']!r}",
                    f"this release reads {FORMAT!r} of version {VERSION}",
                )
            # Files of learn_delay had no evidence at first.
            own = {name: values[name] for name in LearnedClock.__dataclass_fields__ if name != "evidence"}
            found = values.get("evidence")
            own["evidence"] = None if found is None else Evidence.from_dict(found)
            (a, b), (c, d) = own["covariance"]
            own["covariance"] = ((float(a), float(b)), (float(c), float(d)))
            own["delays"] = tuple((str(name), _template(phi)) for name, phi in own["delays"])
            own["span_us"] = (int(own["span_us"][0]), int(own["span_us"][1]))
            if own["calibration"] is not None:
                judged = dict(own["calibration"])
                own["calibration"] = Calibration(**{**judged, "coverage": tuple(judged["coverage"])})
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                Code.BAD_TEMPLATE, f"it is no learned clock: {error!r}", "write it with `-o clock.json` or to_dict()"
            ) from error
        return LearnedClock(**own)

    def to_html(self, path: str | PathLike[str]) -> Path:
        """Write the report as one page that needs nothing else, and return its path: the sentence, the table, a picture
        of each distribution. Raises OSError where the file cannot be written."""
        from whenabouts.core.clocks.clock_report import page

        file = Path(path)
        file.write_text(page(self), encoding="utf-8")
        return file

    def plot(self) -> Any:
        """A `matplotlib.figure.Figure` of the distribution of each kind's delays.

        Raises QueryError WA-2007 where matplotlib is not installed, WA-2221 if no clock was found, WA-2222 if its delay
        is not known well enough.
        """
        from whenabouts.core.clocks.clock_report import figure

        self._check_found()
        self._check_delay()
        return figure(self)

    def _repr_html_(self) -> str:
        return html_table("Clock", ["", ""], self.table(), self.sentence)

    def _check_found(self) -> None:
        if not self.found:
            raise QueryError(Code.CLOCK_NOT_IDENTIFIABLE, f"{self.reason}: {self.sentence}", "there is no clock to use")

    def _check_delay(self) -> None:
        if not self.delays:
            raise QueryError(
                Code.DELAY_NOT_CALIBRATED,
                f"the delay's distribution is known to within {self.delay_error:.2g} only",
                "learn from more rows, raise max_error=, or use correct() and a width of your own",
            )

    def __str__(self) -> str:
        """The sentence, then a table."""
        rows = self.table()
        width = max(len(name) for name, _ in rows)
        return "\n".join([self.sentence, *(f"{name:<{width}}  {value}" for name, value in rows)])

    def table(self) -> list[tuple[str, str]]:
        """What was found, as names and values."""
        rows = [("pairs", f"{self.pairs:,}")]
        if self.evidence is not None:
            rows += self.evidence.table()
        elif self.found or self.repeated:  # learn_clock knows no ids
            rows.append(("ids left out", f"{self.repeated:,}"))
        if not self.found:
            return rows
        rows += [
            ("offset", f"{format_duration(self.offset_us)} +- {format_duration(round(self.offset_error_us))}"),
            ("at", f"{self.t_ref_us} us = {np.datetime64(self.t_ref_us, 'us')} UTC"),
            ("drift", f"{self.drift_ppb / 1000:g} ppm +- {self.drift_error_ppb / 1000:.3g} ppm"),
            ("jitter", format_duration(round(self.jitter_us))),
        ]
        if self.evidence is None:
            rows.append(("gross errors", f"{self.gross:.2%}"))
        for name, delay in self.delays:
            low, high = (format_duration(round(float(value))) for value in quantiles(delay, [0.05, 0.95]))
            label = f"90 % of delays of {name}" if self.kind else "90 % of delays"
            rows.append((label, f"{low} to {high} about the offset"))
        rows.append(("error of the template", f"{self.delay_error:.3f}"))
        if self.calibration is not None:
            rows.append(("held out", self.calibration.verdict))
        return rows


def named(option: str, given: str | None, otherwise: str) -> str:
    """The name of a column, if one is given."""
    if given is None:
        return otherwise
    text(option, given)
    return given


def with_corrected(
    frame: Any,
    t: str,
    name: str | None,
    corrected: Callable[[pa.RecordBatch, IntArray], tuple[IntArray, BoolArray | None]],
) -> Any:
    """A frame with a column of corrected times; `corrected` gives them, and which of them are unknown, of rows and
    their times."""
    name = named("name", name, f"{t}_corrected")
    given = GivenFrames({"right": frame})
    table = given.tables[0]
    if name in table.column_names:
        raise QueryError(Code.COLUMN_CLASH, f"there is a column {name!r} already", "give name=")
    reader = EventReader(0, "right", table.schema, Point(t))
    batch = one_batch(table)
    values, unknown = corrected(batch, reader.ends(batch)[0])
    missing = np.asarray(batch.column(t).is_null())
    values = pa.array(values, mask=missing if unknown is None else missing | unknown)
    return given.like_first(table.append_column(name, values.cast(pa.timestamp("us", "UTC"))))


def ahead(clock: LearnedClock) -> str:
    """The offset in words, the beginning of a sentence."""
    side = "behind" if clock.offset_us < 0 else "ahead of"
    return (
        f"The right clock is {format_duration(abs(clock.offset_us))} {side} the left one"
        f" (+- {format_duration(round(clock.offset_error_us))}), median delay included,"
    )


def _template(buckets: Any) -> Template:
    return Template(tuple((int(lo), int(hi), Fraction(p)) for lo, hi, p in buckets))


def _image(template: Template, factor: Fraction) -> Template:
    """The distribution of `factor * D`, edges rounded to microseconds; a bucket that vanishes leaves its mass to its
    neighbour."""
    buckets = [(lo + template.end_us, hi + template.end_us, p) for lo, hi, p in template.exact]
    if factor < 0:
        buckets = [(hi, lo, p) for lo, hi, p in reversed(buckets)]
    edges = [round(factor * lo) for lo, _, _ in buckets] + [round(factor * buckets[-1][1])]
    kept: list[tuple[int, int, Fraction]] = []
    left = Fraction(0)
    for (lo, hi), (_, _, p) in zip(pairwise(edges), buckets, strict=True):
        if lo == hi:
            left += p
            continue
        kept.append((lo, hi, p + left))
        left = Fraction(0)
    if not kept:
        return Template(((edges[0], edges[0] + 1, 1),))
    lo, hi, p = kept[-1]
    return Template((*kept[:-1], (lo, hi, p + left)))
