"""Estimates how many pairs of a timing join are accidental: how many two independent streams would give.

There are two estimates, as in searches for coincidences between detectors. *From the rates*: assume that the rows of
each side are spread uniformly over its time span, independently of the other side. A pair then matches by chance with
the probability that its anchor difference is one at which the join accepts it. *From time slides*: shift one side by
more than any true pair can span. Each stream keeps its structure, but the relation between the streams is destroyed, so
the join counts accidental pairs only. The first estimate assumes constant rates, the second does not. If they differ,
trust the second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.record_batches import table_of, take_table
from whenabouts.core.durations import format_duration
from whenabouts.core.explain.rate_estimate import from_rates
from whenabouts.core.explain.time_slides import JoinSide, slide
from whenabouts.core.explain.why_not import a_timing_join
from whenabouts.core.frames.kinds import GivenFrames
from whenabouts.core.html_tables import html_table
from whenabouts.core.joins.sides import LEFT, RIGHT
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.key_names import of_input
from whenabouts.core.runtime.keys import NULL_KEY
from whenabouts.core.runtime.option_checks import counted, whole_number
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.timing_join.operator import TimingJoinOperator
from whenabouts.core.timing_join.query import TimingJoin

SAMPLED_PAIRS = 2_000_000
"""The most pairs of a slide: a join that is nearly a cross product is sampled to stay below."""


@dataclass(frozen=True, slots=True)
class ChanceMatches:
    """The pairs to be expected if the two streams were independent.

    `expected`: from the rates. `background_mean`, `background_std`: mean and standard deviation of the pairs of a time
    slide, None if no slide is possible. `slides_us`: the shifts. `sampled`: the share of left rows that they used.
    `window_us`: the width of the anchor differences at which a pair matches, averaged over the rows' shapes.
    `observed`: the pairs of the join itself, if given. `sentence`: all of it in words.
    """

    expected: float
    background_mean: float | None
    background_std: float | None
    slides_us: tuple[int, ...]
    sampled: float
    window_us: float
    left_rows: int
    observed: int | None = None

    @property
    def sentence(self) -> str:
        """The result in words, with advice on the window and the confidence."""
        return " ".join([*_chance_sentences(self), *_observed_sentences(self)])

    def __str__(self) -> str:
        return self.sentence

    def _repr_html_(self) -> str:
        background = "no time slide is possible"
        if self.background_mean is not None and self.background_std is not None:
            background = f"{self.background_mean:,.1f} ± {self.background_std:,.1f}"
        rows = [("from the rates", f"{self.expected:,.1f}"), ("from time slides", background)]
        if self.observed is not None:
            rows.append(("observed", f"{self.observed:,}"))
        return html_table("Pairs to be expected by chance", ["", "pairs"], rows, self.sentence)


def chance_matches(
    left: Any,
    right: Any,
    *,
    query: TimingJoin,
    observed: int | None = None,
    slides: int = 10,
    max_rows: int = 200_000,
    seed: int = 0,
) -> ChanceMatches:
    """How many pairs `query` would find in two dataframes by chance: a guide for choosing window and confidence.

    *From the rates.* With n1 and n2 rows of a key, spread uniformly over the spans of their sides, the expected number
    is n1 n2 times the probability that two random anchors (`t_max`) have a difference with `P >= confidence`. Over a
    long span that is rate1 x rate2 x span x window. The window is averaged over the shapes of `SHAPE_PAIRS` random
    pairs of rows with equal keys, drawn with `seed`. The standard error is the standard deviation of the windows
    divided by 64, usually under 1 %, and 0 if all rows have one shape.

    *From time slides.* The right side is shifted `slides` times, by multiples of the least safe shift in both
    directions; rows shifted out of its span re-enter at the other end. Each shifted side is joined with the left side
    by the join itself. Rates may vary over times longer than the shifts. With more than `max_rows` rows, or very many
    pairs, only samples of consecutive left rows are joined: the mean is divided by their share, and the standard
    deviation by its root. A one-sided window, or one that is long relative to the right side's span, allows no slide.

    A `where` of the query is left out of account: both estimates are of the timing condition alone.

    Rows that truly belong together count towards the rates. So if most rows have a partner, the estimates hold for
    streams with these rates, not for the remaining rows. Rows that the join would reject are ignored.

    Raises: the errors of the query; QueryError WA-2006 for negative `slides` or `observed`, or `max_rows` under 1.
    Cost: O(n log n) for the rates, and per slide a join of about `max_rows` rows and a pass over the right side.
    Source: the rate of accidental coincidences as the product of two rates and the resolving time, from counting
    experiments in nuclear physics; time slides, from searches for gravitational waves with several detectors.

    >>> import whenabouts as wa
    >>> left, right = (pa.table({"t": np.random.default_rng(seed).integers(0, 10**9, 5000)}) for seed in (1, 2))
    >>> point = wa.Point("t")
    >>> query = wa.TimingJoin(left_time=point, right_time=point, condition=wa.within("1ms", confidence=1))
    >>> found = wa.chance_matches(left, right, query=query)
    >>> found.window_us, round(found.expected, 1), found.background_mean
    (2001.0, 50.0, 49.1)
    """
    a_timing_join(query)
    slides, max_rows = whole_number("slides", slides, 0), whole_number("max_rows", max_rows)
    seed = whole_number("seed", seed, 0)
    if observed is not None:
        observed = whole_number("observed", observed, 0)
    tables = GivenFrames(dict(zip(query.inputs, (left, right), strict=True))).tables
    operator, sides = _read(tables[LEFT], tables[RIGHT], query)
    expected, window_us = (0.0, 0.0)
    if all(len(side.code) for side in sides):
        expected, window_us = from_rates(operator, sides[LEFT], sides[RIGHT], np.random.default_rng(seed))
    rows = sum(len(side.code) for side in sides)
    share = min(1.0, max_rows / max(1, rows), SAMPLED_PAIRS / max(expected, 1.0))
    shifts, counts, sampled = slide(operator, sides[LEFT], sides[RIGHT], slides, share)
    mean = std = None
    if len(counts):
        mean = float(np.mean(counts)) / sampled
        std = float(np.std(counts, ddof=1)) / math.sqrt(sampled) if len(counts) > 1 else math.sqrt(mean)
    return ChanceMatches(expected, mean, std, shifts, sampled, window_us, len(sides[LEFT].code), observed)


def _read(left: pa.Table, right: pa.Table, query: TimingJoin) -> tuple[TimingJoinOperator, list[JoinSide]]:
    """An operator that finds all pairs (the inner join), and the usable rows of both sides."""
    specs = (query.left_time, query.right_time)
    keys = [of_input(query.key_columns, input) for input in (LEFT, RIGHT)]
    tables = [_needed(*each) for each in zip((left, right), specs, keys, strict=True)]
    pairs = TimingJoin(
        left_time=specs[LEFT],
        right_time=specs[RIGHT],
        condition=query.decided_by,
        on=query.key_columns,
        probability=False,
    )
    operator = pairs.operator([table.schema for table in tables], streaming=False)
    blocks = [
        table_of([reader.read(batch).block for batch in table.to_batches()], reader.block_schema)
        for reader, table in zip(operator.readers, tables, strict=True)
    ]
    codes = operator.keys.codes(blocks) if query.key_columns else [np.zeros(b.num_rows, np.int64) for b in blocks]
    sides = []
    for block, code in zip(blocks, codes, strict=True):
        order = np.argsort(times(block)[1], kind="stable")
        order = order[code[order] != NULL_KEY]
        rows = take_table(block, order).combine_chunks()
        sides.append(JoinSide(rows, *times(rows), code[order]))
    return operator, sides


def _needed(table: pa.Table, spec: TimeSpec, keys: Sequence[str]) -> pa.Table:
    """The columns of keys, times and template; a missing one is left to the operator's own error."""
    names = dict.fromkeys([*keys, *spec.columns, *filter(None, [spec.template_column])])
    return table.select([name for name in names if name in table.schema.names])


def _chance_sentences(found: ChanceMatches) -> list[str]:
    sentences = [
        f"By chance alone about {_count(found.expected)} pairs are to be expected"
        f" ({found.expected / max(1, found.left_rows):.3g} for each left row):"
        f" two rows match over {format_duration(found.window_us)} of time difference."
    ]
    if found.background_mean is None or found.background_std is None:
        return [*sentences, "There are no time slides: none were asked for, or the window is one-sided or too long."]
    mean, std = found.background_mean, found.background_std
    number = len(found.slides_us)
    slides = f"{counted(number, 'time slide')} {'gives' if number == 1 else 'give'}"
    sentences.append(f"{slides} {_count(mean)} \u00b1 {_count(std)}.")
    if abs(found.expected - mean) > max(5 * std, 5 * math.sqrt(mean), 0.05 * mean, 5.0):
        sentences.append("The two differ, so rows are not spread evenly over time: believe the slides.")
    return sentences


def _observed_sentences(found: ChanceMatches) -> list[str]:
    fewer = "narrow the window, raise the confidence, or join on a key"
    if found.observed is None:
        return [f"If that is too many: {fewer}; a window half as wide leaves about half of them."]
    by_chance = found.expected if found.background_mean is None else found.background_mean
    bunched = by_chance * (1 + by_chance / max(1, found.left_rows)) if found.background_std is None else by_chance
    spread = max(found.background_std or 0.0, math.sqrt(bunched), 1.0)
    if found.observed - by_chance <= 3 * spread:
        return [f"Observed are {found.observed:,}, which chance explains: {fewer}."]
    return [f"Observed are {found.observed:,}: about {100 * by_chance / found.observed:.2g} % may be accidental."]


def _count(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
