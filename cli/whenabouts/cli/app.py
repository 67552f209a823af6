"""The root command: which subcommands there are, and how every failure becomes one line and an exit code."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from types import FrameType
from typing import IO, Any

import click

from whenabouts.cli.say import printable, say
from whenabouts.core.errors import Code, EngineError, WhenaboutsError

REJECTED_AND_STRICT = 1
INTERRUPTED = 130
SIGNALS = {"SIGTERM": "terminated", "SIGHUP": "hung up"}
"""The signals that end a command as Ctrl-C does, and what it says then; it exits with 128 + the signal's number."""

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


class Stopped(BaseException):
    """A signal that ends the command; like KeyboardInterrupt nothing takes it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise `Stopped` where a signal of `SIGNALS` arrives, so that what is half done is cleaned up.

    Cleaning up is not stopped by further signals. A signal that is ignored (nohup), or handled by whoever calls the
    command, stays so.
    """
    mine: list[int] = []
    stopped = False

    def stop(number: int, _: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        for each in mine:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(number)

    if threading.current_thread() is threading.main_thread():  # others cannot handle signals
        known = [int(getattr(signal, name)) for name in SIGNALS if hasattr(signal, name)]
        mine += [number for number in known if signal.getsignal(number) is signal.SIG_DFL]
    for number in mine:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in mine if not stopped else ():
            signal.signal(number, signal.SIG_DFL)


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
        say(f"error: {self.message}", file=file, err=file is None)


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
            with stoppable():
                return guarded(lambda: super(RootGroup, self).invoke(ctx), doing="the command")
        except KeyboardInterrupt:
            say("interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except Stopped as stopped:
            with suppress(OSError):  # there may be no terminal any more
                say(SIGNALS[signal.Signals(stopped.number).name], err=True)
            ctx.exit(128 + stopped.number)
        except click.UsageError as error:
            error.message = printable(error.message)  # type: ignore[misc]  # final to click's own classes
            raise
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
        say(f"whenabouts {metadata.version('whenabouts')}")
    except metadata.PackageNotFoundError:
        say("whenabouts, not installed (running from its sources)")
    ctx.exit()


@click.group(cls=RootGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def main() -> None:
    """Correlate events whose times are uncertain.

    Exit codes: 0 done; 1 some rows rejected and --strict; 2 usage; 3 bad input; 4 engine failure;
    130 interrupted, 143 terminated, 129 hung up.
    """
