"""How many pairs of a timing join are accidental: what two streams that know nothing of each other would give.

Two estimates, as searches for coincidences between detectors make them. *From the rates*: rows of a side fall anywhere
in the side's span of time, independently of the other side; a pair of rows then matches by chance with the share of
anchor differences at which its probability reaches the confidence. *From time slides*: one side is shifted by more than
any pair can span, which leaves each stream as it is and destroys what ties them; the join then counts accidental pairs
only. The first needs constant rates, the second does not; where they differ, believe the second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from whenabouts.core.durations import format_duration
from whenabouts.core.explain.rate_estimate import from_rates
from whenabouts.core.explain.time_slides import Side, slide
from whenabouts.core.explain.why_not import a_timing_join
from whenabouts.core.hosting.input_checks import check_input
from whenabouts.core.runtime.event_reader import times
from whenabouts.core.runtime.key_names import of_input
from whenabouts.core.runtime.keys import NULL_KEY
from whenabouts.core.runtime.option_checks import whole_number
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.timing_join.modes import LEFT, RIGHT
from whenabouts.core.timing_join.operator import TimingJoinOperator
from whenabouts.core.timing_join.query import TimingJoin

SAMPLED_PAIRS = 2_000_000
"""Pairs that a slide should not pass: a join that is nearly a cross product is sampled down to it."""


@dataclass(frozen=True, slots=True)
class ChanceMatches:
    """Pairs to be expected were the two streams independent.

    `expected`: from the rates. `background_mean`, `background_std`: mean and standard deviation of the pairs of a time
    slide, None where no slide is possible. `slides_us`: the shifts. `sampled`: share of the left rows that they used.
    `window_us`: over how many microseconds of anchor difference a pair matches, averaged over the rows' shapes.
    `observed`: the pairs that the join gave, where the caller told. `sentence`: all of it for people.
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
        """What it means for the choice of the window and the confidence."""
        return " ".join([*_told_chance(self), *_told_observed(self)])

    def __str__(self) -> str:
        return self.sentence


def chance_matches(
    left: pa.Table,
    right: pa.Table,
    *,
    query: TimingJoin,
    observed: int | None = None,
    slides: int = 10,
    max_rows: int = 200_000,
    seed: int = 0,
) -> ChanceMatches:
    """How many pairs `query` would find in these tables by chance alone, to choose the window and the confidence by.

    *From the rates.* With n1 and n2 rows of a key, spread evenly over the spans of their sides, the expected number is
    n1 n2 times the probability that two random anchors (`t_max`) lie where `P >= confidence`; over a long span that is
    rate1 rate2 span window. It is averaged over the shapes of `SHAPE_PAIRS` pairs of rows of equal key, drawn with
    `seed`; the error of that is the spread of the windows over 64, mostly under 1 %, and 0 where rows have one shape.

    *From time slides.* `slides` shifts of the right side, by multiples of the least safe one in both directions and
    round the end of its span; each is joined with the left side by the join itself. Rates may vary over stretches
    longer than the shifts. Beyond `max_rows` rows of both sides, or very many pairs, only stretches of the left side
    are joined: the mean is scaled up by their share and the spread by its root. A one-sided window, or one that is
    long against the right side's span, leaves no room for a slide.

    Rows that truly belong together count in the rates, so where most rows have a partner, the estimates hold for
    streams of these rates and not for the rest of the rows. Rows that the join would reject are left out.

    Raises: what the query raises; QueryError WA-2006 for negative `slides`, or `max_rows` under 1. Cost: O(n log n)
    for the rates, and per slide a join of about `max_rows` rows and a pass over the right side. Source: the rate of
    accidental coincidences as the product of two rates and the resolving time, from counting experiments in nuclear
    physics; time slides, from searches for gravitational waves with several detectors.

    >>> import whenabouts as wa
    >>> left, right = (pa.table({"t": np.random.default_rng(seed).integers(0, 10**9, 5000)}) for seed in (1, 2))
    >>> point = wa.Point("t")
    >>> query = wa.TimingJoin(left_time=point, right_time=point, condition=wa.within("1ms", confidence=1))
    >>> found = wa.chance_matches(left, right, query=query)
    >>> found.window_us, round(found.expected, 1), found.background_mean
    (2001.0, 50.0, 49.1)
    """
    a_timing_join(query)
    for name, value, least in (("slides", slides, 0), ("max_rows", max_rows, 1), ("seed", seed, 0)):
        whole_number(name, value, least)
    for name, table in zip(query.inputs, (left, right), strict=True):
        check_input(name, table, (pa.Table,), "give a pyarrow Table")
    operator, sides = _read(left, right, query)
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


def _read(left: pa.Table, right: pa.Table, query: TimingJoin) -> tuple[TimingJoinOperator, list[Side]]:
    """An operator that finds plain pairs, whatever the query keeps of them, and its usable rows."""
    specs = (query.left_time, query.right_time)
    keys = [of_input(query.key_columns, place) for place in (LEFT, RIGHT)]
    tables = [_needed(*each) for each in zip((left, right), specs, keys, strict=True)]
    pairs = TimingJoin(
        left_time=specs[LEFT],
        right_time=specs[RIGHT],
        condition=query.condition,
        on=query.key_columns,
        probability=False,
    )
    operator = pairs.operator([table.schema for table in tables], streaming=False)
    blocks = [
        pa.Table.from_batches([reader.read(batch).block for batch in table.to_batches()], reader.block_schema)
        for reader, table in zip(operator.readers, tables, strict=True)
    ]
    codes = operator.keys.codes(blocks) if query.key_columns else [np.zeros(b.num_rows, np.int64) for b in blocks]
    sides = []
    for block, code in zip(blocks, codes, strict=True):
        order = np.argsort(times(block)[1], kind="stable")
        order = order[code[order] != NULL_KEY]
        rows = block.take(pa.array(order)).combine_chunks()
        sides.append(Side(rows, *times(rows), code[order]))
    return operator, sides


def _needed(table: pa.Table, spec: TimeSpec, keys: Sequence[str]) -> pa.Table:
    """The columns that decide: keys, times, template; one that is not there is the operator's to miss."""
    names = dict.fromkeys([*keys, *spec.columns, *filter(None, [spec.template_column])])
    return table.select([name for name in names if name in table.schema.names])


def _told_chance(found: ChanceMatches) -> list[str]:
    told = [
        f"By chance alone about {_count(found.expected)} pairs are to be expected"
        f" ({found.expected / max(1, found.left_rows):.3g} for each left row):"
        f" two rows match over {format_duration(found.window_us)} of time difference."
    ]
    if found.background_mean is None or found.background_std is None:
        return [*told, "No time slide is possible: the window is one-sided, or too long for the data."]
    mean, std = found.background_mean, found.background_std
    told.append(f"{len(found.slides_us)} time slides give {_count(mean)} \u00b1 {_count(std)}.")
    if abs(found.expected - mean) > max(5 * std, 5 * math.sqrt(mean), 0.05 * mean, 5.0):
        told.append("The two differ, so rows are not spread evenly over time: believe the slides.")
    return told


def _told_observed(found: ChanceMatches) -> list[str]:
    fewer = "narrow the window, raise the confidence, or join on a key"
    if found.observed is None:
        return [f"If that is too many: {fewer}; a window half as wide leaves about half of them."]
    by_chance = found.expected if found.background_mean is None else found.background_mean
    bunched = by_chance * (1 + by_chance / max(1, found.left_rows)) if found.background_std is None else by_chance
    spread = max(found.background_std or 0.0, math.sqrt(bunched), 1.0)
    if found.observed - by_chance <= 3 * spread:
        return [f"Observed are {found.observed:,}, which chance explains: {fewer}."]
    return [f"Observed are {found.observed:,}: about {by_chance / found.observed:.2g} of them may be accidental."]


def _count(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
