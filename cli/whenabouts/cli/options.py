"""Options that all commands over inputs share, and the parsing of their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from whenabouts.core.errors import Code, InputError, QueryError

if TYPE_CHECKING:
    from whenabouts.core.times.lateness import Lateness
    from whenabouts.core.times.time_specs import TimeSpec

ENGINE_NAMES = ("local", "spark", "flink")
TIME_UNITS = ("s", "ms", "us", "ns")
HISTOGRAM = "hist:"
GRANULARITY = "granularity:"
POLLING = "polling:"
LEARNED, UNCALIBRATED = "learned:", "uncalibrated:"

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """The values of the common options."""

    engine: str
    stream: bool
    lateness: str | None
    rejects: str | None
    output: str | None
    progress: bool
    explain: bool
    strict: bool
    time_zone: str | None
    time_unit: str | None

    @property
    def lateness_by_side(self) -> Lateness:
        """The lateness of a left and a right input."""
        from whenabouts.core.times.lateness import Lateness  # loads numpy, which --help does without

        return Lateness(*lateness_of_inputs(2, self.lateness))


STREAMING = "Run as a streaming query over the files, one file a step."

_STREAM = click.option("--stream", is_flag=True, help=STREAMING)
_OPTIONS = (
    click.option(
        "--engine", type=click.Choice(ENGINE_NAMES), default="local", show_default=True, help="Where the query runs."
    ),
    click.option("--lateness", metavar="D[,D]", help="How late rows may arrive: one for all inputs, or one for each."),
    click.option(
        "--rejects", metavar="PATH", help="Write rejected rows with their codes here (.parquet, .csv, .jsonl)."
    ),
    click.option(
        "-o", "--output", metavar="OUT", help="Write the result here: .parquet, .csv, .jsonl, or - for CSV on stdout."
    ),
    click.option("--progress", is_flag=True, help="Show progress on stderr (on a terminal it is always shown)."),
    click.option("--explain", is_flag=True, help="Describe the run and its expected size. Nothing is run."),
    click.option("--strict", is_flag=True, help="Exit with 1 if any row was rejected."),
    click.option(
        "--time-zone", metavar="ZONE", help="Time zone of times without one, e.g. Europe/Berlin (default: UTC)."
    ),
    click.option("--time-unit", type=click.Choice(TIME_UNITS), help="Unit of integer times since 1970 (default: us)."),
)


time_slots_option = click.option(
    "--time-slots",
    default="auto",
    show_default=True,
    metavar="D|auto",
    help="Spread the rows of a key over buckets by time slots of this width; auto: if there is no --on.",
)


def common_options(command: _Command) -> Callable[..., Any]:
    """Give a command the common options. It receives them as one argument, `common: CommonOptions`."""
    return _STREAM(options_besides_stream(command))


def options_besides_stream(command: _Command) -> Callable[..., Any]:
    """The same for a command that declares the argument `stream` itself."""

    @wraps(command)
    def collected(**arguments: Any) -> Any:
        common = {name: arguments.pop(name) for name in CommonOptions.__dataclass_fields__}
        return command(common=CommonOptions(**common), **arguments)

    decorated: Callable[..., Any] = collected
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def refuse_empty(_: click.Context, param: click.Parameter, value: Any) -> Any:
    """A callback of options: refuse empty text (QueryError WA-2006), which an unset variable of the shell leaves."""
    if isinstance(value, str) and not value.strip():
        raise QueryError(Code.BAD_OPTION, f"{param.opts[-1]} is empty", "give it a value, or leave it out")
    return value


def names(text: str | None, option: str = "") -> tuple[str, ...]:
    """Comma-separated column names; none if there is no text. Raises: QueryError WA-2006 for an empty part.

    >>> names("region, sensor")
    ('region', 'sensor')
    """
    parts = () if text is None else tuple(name.strip() for name in text.split(","))
    if not all(parts):
        raise QueryError(Code.BAD_OPTION, f"{option} {text!r} has an empty part".lstrip(), "is a comma too many?")
    return parts


def lateness_of_inputs(inputs: int, text: str | None) -> tuple[str, ...]:
    """The lateness of each of so many inputs, from `--lateness D` or `--lateness D,D,...`; zero without the option.

    >>> lateness_of_inputs(2, "5s"), lateness_of_inputs(2, "5s,1m"), lateness_of_inputs(1, None)
    (('5s', '5s'), ('5s', '1m'), ('0s',))
    """
    given = names(text, "--lateness") or ("0s",)
    if len(given) not in (1, inputs):
        each = ", or one for each input" if inputs > 1 else ""
        raise click.BadParameter(f"{text!r} is not one duration{each}", param_hint="--lateness")
    return given if len(given) == inputs else given * inputs


def key_columns(text: str | None) -> tuple[str | tuple[str, ...], ...]:
    """Key columns as `on` takes them; `a=b` if the inputs call a key by different names.

    Raises: QueryError WA-2006 for an empty part.

    >>> key_columns("sensor, region=reg")
    ('sensor', ('region', 'reg'))
    """
    parts = [tuple(name.strip() for name in key.split("=")) for key in names(text, "--on")]
    if not all(name for part in parts for name in part):
        raise QueryError(Code.BAD_OPTION, f"--on {text!r} has an empty part", "write LEFT=RIGHT")
    return tuple(part if len(part) > 1 else part[0] for part in parts)


def time_spec(text: str, option: str, longest: str | None = None, shortest: str | None = None) -> TimeSpec:
    """A time specification: `t`, `t_min,t_max` with the declared lengths, `hist:TEMPLATES.json:template,t_max`,
    `granularity:D:t`, `granularity:nearest:D:t`, `polling:D:t`, `learned:CLOCK.json:t`, or
    `learned:uncalibrated:CLOCK.json:t`.

    Raises: click's usage error for any other form; QueryError WA-2006 for an empty part; what `Histogram` raises for a
    file of templates (InputError WA-1008, WA-1012; QueryError WA-2006 for several templates without a column), and
    `learned_spec` for a clock.

    >>> time_spec("t", "--left-time"), time_spec("a,b", "--left-time", longest="2s").max_uncertainty_us
    (Point(t='t'), 2000000)
    """
    from whenabouts.core.times.time_specs import Interval, Point

    if text.startswith(HISTOGRAM):
        return _histogram(text, option)
    if text.startswith(LEARNED):
        from whenabouts.cli.learned_times import learned_spec

        return learned_spec(text, option)
    if text.startswith((GRANULARITY, POLLING)):
        return _reading(text, option)
    columns = names(text, option)
    if len(columns) == 1:
        return Point(columns[0])
    if len(columns) != 2:
        raise click.BadParameter(f"{text!r} is neither 't' nor 't_min,t_max'", param_hint=option)
    return Interval(*columns, max_uncertainty=longest, min_uncertainty=shortest or 0)


def check_uncertainty(specs: Iterable[TimeSpec], arguments: dict[str, Any]) -> None:
    """Raise click's usage error for lengths of intervals where no time is an interval."""
    from whenabouts.core.times.time_specs import Interval

    given = [f"--{bound}-uncertainty" for bound in ("max", "min") if arguments[f"{bound}_uncertainty"]]
    if given and not any(isinstance(each, Interval) for each in specs):
        raise click.UsageError(f"{' and '.join(given)} given, but no time is t_min,t_max")


def _reading(text: str, option: str) -> TimeSpec:
    """How readings were made: to a granularity, or by a poll.

    >>> _reading("granularity:nearest:2s:t", "--left-time"), _reading("polling:30s:t", "--left-time")
    (Around(t='t', before=1000000, after=1000000), Around(t='t', before=30000000, after=0))
    """
    from whenabouts.core.times.spec_builders import from_granularity, from_polling

    kind, *rounding, duration, column = text.split(":") if text.count(":") > 1 else [text, "", ""]
    columns = names(column, option) if column else ()
    if len(columns) == 1 and kind == "polling" and not rounding:
        return from_polling(columns[0], duration)
    if len(columns) == 1 and kind == "granularity" and len(rounding) < 2:
        return from_granularity(columns[0], duration, rounding=rounding[0] if rounding else "down")
    raise click.BadParameter(f"{text!r} is neither 'granularity:D:t' nor 'polling:D:t'", param_hint=option)


def _histogram(text: str, option: str) -> TimeSpec:
    """The last colon ends the path, which may contain others (`C:\\templates.json`). Column names contain none."""
    from whenabouts.cli.given_files import note_read
    from whenabouts.core.times.time_specs import Histogram

    path, _, columns = text.removeprefix(HISTOGRAM).rpartition(":")
    named = names(columns, option) if columns else ()
    if not path or len(named) not in (1, 2):
        raise click.BadParameter(f"{text!r} is not 'hist:TEMPLATES.json:template_column,t_max'", param_hint=option)
    note_read(path)
    try:
        return Histogram(named[-1], template=named[0] if len(named) == 2 else None, templates=path)
    except InputError as error:
        if error.code.value.startswith("WA-1"):
            raise
        raise InputError(Code.BAD_TEMPLATE, f"{path}: {error.problem}", error.hint) from error


def row_numbers(text: str, option: str) -> tuple[int, int]:
    """The numbers of a left and a right row, counted from 0.

    >>> row_numbers("3,0", "--why")
    (3, 0)
    """
    parts = names(text, option)
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise click.BadParameter(f"{text!r} is not LEFT_ROW,RIGHT_ROW, two numbers from 0", param_hint=option)
    return int(parts[0]), int(parts[1])
