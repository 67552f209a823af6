"""The root command: which subcommands there are, and how every failure becomes one line and an exit code."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import IO, Any

import click

from whenabouts.core.errors import Code, EngineError, WhenaboutsError

REJECTED_AND_STRICT = 1
INTERRUPTED = 130

_EXIT_CODES = {"1": 3, "2": 2, "3": 4}
"""Exit code by the family of an error: `WA-1xxx` bad input, `WA-2xxx` usage, `WA-3xxx` engine."""

_COMMANDS = {
    "join": "whenabouts.cli.join:join",
    "window-join": "whenabouts.cli.window_join:window_join",
    "coalesce": "whenabouts.cli.coalesce:coalesce",
    "query": "whenabouts.cli.query:query",
    "plan": "whenabouts.cli.plan:plan",
    "calibrate": "whenabouts.cli.calibrate:calibrate",
    "doctor": "whenabouts.cli.doctor:doctor",
    "demo": "whenabouts.cli.demo:demo",
}

TRACEBACK = "WHENABOUTS_TRACEBACK"
"""Environment variable: set, an engine's failure shows its whole traceback."""


class CodedFailure(click.ClickException):
    """A coded error on its way to the user: one line on stderr, and the exit code of its family."""

    def __init__(self, error: WhenaboutsError) -> None:
        super().__init__(" ".join(str(error).split()))
        self._family = error.code.value[3]

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # click gives each class one exit code, we each family
        """Exit code of the error's family."""
        return _EXIT_CODES[self._family]

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line."""
        click.echo(f"error: {self.message}", file=file, err=file is None)


class RootGroup(click.Group):
    """Imports a subcommand when it is called for, and turns errors into exit codes (click keeps 2 for its own)."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the subcommands, in the order of their use."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the subcommand, None where there is none of this name."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run, with every failure told in one line."""
        try:
            return guarded(lambda: super(RootGroup, self).invoke(ctx), doing="the command")
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except WhenaboutsError as error:
            if os.environ.get(TRACEBACK):
                raise
            raise CodedFailure(error) from error


def guarded(work: Callable[[], Any], *, doing: str) -> Any:
    """Call `work`; what it raises without a code of ours is a failure (EngineError WA-3005).

    >>> guarded(lambda: 1 // 0, doing="dividing")
    Traceback (most recent call last):
        ...
    whenabouts.core.errors.EngineError: WA-3005: dividing failed: ZeroDivisionError: integer division or modulo by \
zero (hint: set WHENABOUTS_TRACEBACK=1 to see where)
    """
    try:
        return work()
    except (WhenaboutsError, click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
        raise
    except Exception as error:
        text = str(error).strip().partition("\n")[0][:500]
        raise EngineError(
            Code.ENGINE_FAILED,
            f"{doing} failed: {type(error).__name__}: {text}".rstrip(": "),
            f"set {TRACEBACK}=1 to see where",
        ) from error


def _show_version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if not asked:
        return
    from importlib import metadata

    try:
        click.echo(f"whenabouts {metadata.version('whenabouts')}")
    except metadata.PackageNotFoundError:
        click.echo("whenabouts, not installed (running from its sources)")
    ctx.exit()


@click.group(cls=RootGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def main() -> None:
    """Correlate events whose times are uncertain.

    Exit codes: 0 done; 1 some rows rejected and --strict; 2 usage; 3 bad input; 4 engine failure; 130 interrupted.
    """
