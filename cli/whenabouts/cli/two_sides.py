"""Options of commands with a left and a right input: the times of both, and what a comma separates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from whenabouts.cli.options import check_uncertainty, time_spec

if TYPE_CHECKING:
    from whenabouts.core.times.time_specs import TimeSpec

SIDES = ("left", "right")

_Command = TypeVar("_Command", bound=Callable[..., Any])

_TIMES = (
    click.option(
        "--left-time",
        required=True,
        metavar="SPEC",
        help="Time of the left events: t, t_min,t_max, granularity:, polling:, hist:, or learned:.",
    ),
    click.option("--right-time", required=True, metavar="SPEC", help="Time of the right events: the same."),
)
_UNCERTAINTY = (
    click.option("--max-uncertainty", metavar="D", help="Greatest length of an interval; longer ones are rejected."),
    click.option("--left-max-uncertainty", metavar="D", help="The same, for the left input only."),
    click.option("--right-max-uncertainty", metavar="D", help="The same, for the right input only."),
    click.option("--min-uncertainty", metavar="D", help="Least length of an interval; shorter ones are rejected."),
    click.option("--left-min-uncertainty", metavar="D", help="The same, for the left input only."),
    click.option("--right-min-uncertainty", metavar="D", help="The same, for the right input only."),
)


def times_options(command: _Command) -> _Command:
    """`--left-time` and `--right-time`."""
    return _with(_TIMES, command)


def uncertainty_options(command: _Command) -> _Command:
    """The greatest and least lengths of intervals, for both inputs or one."""
    return _with(_UNCERTAINTY, command)


def times_of_sides(arguments: dict[str, Any]) -> tuple[TimeSpec, TimeSpec]:
    """The times of both inputs, by these options."""
    left, right = (_spec(side, arguments) for side in SIDES)
    check_uncertainty((left, right), arguments)
    return left, right


def two_values(text: str, option: str) -> tuple[str, str]:
    """Two values with a comma between them.

    >>> two_values("_l, _r", "--suffixes")
    ('_l', '_r')
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2:
        raise click.BadParameter(f"{text!r} is not two values with a comma between them", param_hint=option)
    return parts[0], parts[1]


def _with(options: tuple[Callable[[_Command], _Command], ...], command: _Command) -> _Command:
    for option in reversed(options):
        command = option(command)
    return command


def _spec(side: str, arguments: dict[str, Any]) -> TimeSpec:
    from whenabouts.core.times.time_specs import Interval

    own = {bound: arguments[f"{side}_{bound}_uncertainty"] for bound in ("max", "min")}
    longest, shortest = (own[bound] or arguments[f"{bound}_uncertainty"] for bound in ("max", "min"))
    spec = time_spec(arguments[f"{side}_time"], f"--{side}-time", longest, shortest)
    if not isinstance(spec, Interval) and any(own.values()):
        raise click.UsageError(f"--{side}-max-uncertainty and --{side}-min-uncertainty need --{side}-time t_min,t_max")
    return spec
