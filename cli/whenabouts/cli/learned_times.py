"""`learned:CLOCK.json:t`: times of a clock that was learned before, with a note about its age.

`learned:uncalibrated:CLOCK.json:t` takes a clock whose delay did not hold for held-out rows, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from whenabouts.cli.given_files import note_read
from whenabouts.cli.options import LEARNED, UNCALIBRATED

if TYPE_CHECKING:
    from whenabouts.cli.inputs import Input
    from whenabouts.core.clocks.learned_clock import LearnedClock
    from whenabouts.core.times.learned import Learned
    from whenabouts.core.times.time_specs import TimeSpec

_CLOCKS = "whenabouts.clocks"
_DAY_US, _HOUR_US = 86_400_000_000, 3_600_000_000


def learned_spec(text: str, option: str) -> Learned:
    """The specification that a clock file has for one side; the last colon ends its path.

    Raises: click's usage error for another form; InputError WA-1008, WA-1012 for the file; QueryError WA-2221, WA-2222
    for a clock that was not found or is not calibrated.
    """
    from whenabouts.core.clocks.clock_files import read_clock

    given = text.removeprefix(LEARNED)
    accept = "uncalibrated" if given.startswith(UNCALIBRATED) else None
    path, _, column = given.removeprefix(UNCALIBRATED).rpartition(":")
    if not path or not column.strip() or "," in column:
        raise click.BadParameter(f"{text!r} is not 'learned:CLOCK.json:t'", param_hint=option)
    note_read(path)
    clock = read_clock(path)
    spec = clock.spec("left" if option.startswith("--left") else "right", t=column.strip(), accept=accept)
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta.setdefault(_CLOCKS, []).append((spec, path, clock))
    return spec


def age_notes(inputs: Sequence[Input], specs: Iterable[TimeSpec]) -> Iterator[str]:
    """What to say of clocks that were learned from other times than those of the inputs. Reads their time columns."""
    context = click.get_current_context(silent=True)
    known = [] if context is None else context.meta.get(_CLOCKS, [])
    for source, spec in zip(inputs, specs, strict=True):
        for used, path, clock in known:
            if used is spec:
                yield from _note(source, used, path, clock)


def _note(source: Input, spec: TimeSpec, path: str, clock: LearnedClock) -> Iterator[str]:
    import numpy as np

    from whenabouts.core.durations import format_duration
    from whenabouts.core.runtime.event_reader import EventReader

    reader = EventReader(0, source.name, source.schema, spec)
    ends = [reader.read(batch).block for table in source.tables for batch in table.to_batches()]
    lows, highs = (np.concatenate([block.column(at).to_numpy() for block in ends] or [[]]) for at in (0, 1))
    if not len(lows):
        return
    first, last = int(lows.min()), int(highs.max())
    for gap, at, how in (
        (last - clock.span_us[1], last, "end {} before these do"),
        (clock.span_us[0] - first, first, "begin {} after these do"),
    ):
        if gap <= max(_HOUR_US, (clock.span_us[1] - clock.span_us[0]) // 10):
            continue
        age = f"{gap / _DAY_US:.3g} days" if gap >= _DAY_US else format_duration(gap)
        off = format_duration(round(2 * clock.error_at_us(at)))
        grown = f"drift alone may be {off} off" if clock.drift_error_ppb else "its drift is not known"
        yield f"{path} was learned on rows that {how.format(age)}: {grown}"
