"""The root command: finds the subcommands, and turns every failure into one line and an exit code."""

from __future__ import annotations

import difflib
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from whenabouts.cli.failures import INTERRUPTED, SIGNALS, CodedFailure, Stopped, guarded, stoppable
from whenabouts.cli.options import refuse_empty
from whenabouts.cli.say import printable, say
from whenabouts.cli.streams import STDOUT_CLOSED, StdoutClosed, forgiving_streams
from whenabouts.core.errors import WhenaboutsError
from whenabouts.core.hosting.engine_output import TRACEBACK

_COMMANDS = {
    "join": "whenabouts.cli.join:join",
    "asof-join": "whenabouts.cli.asof_join:asof_join",
    "window-join": "whenabouts.cli.window_join:window_join",
    "coalesce": "whenabouts.cli.coalesce:coalesce",
    "query": "whenabouts.cli.query:query",
    "plan": "whenabouts.cli.plan:plan",
    "profile": "whenabouts.cli.profile:profile",
    "learn-clock": "whenabouts.cli.learn_clock:learn_clock",
    "learn-delay": "whenabouts.cli.learn_delay:learn_delay",
    "calibrate": "whenabouts.cli.calibrate:calibrate",
    "doctor": "whenabouts.cli.doctor:doctor",
    "demo": "whenabouts.cli.demo:demo",
}

_FUNCTIONS = {"timing-join": "join", "join-aggregate": "join"}
"""Functions of the package whose subcommand has another name."""


class RootGroup(click.Group):
    """Imports a subcommand when it is used, and turns errors into exit codes (2 is click's own)."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the subcommands, the most used first."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand; None if there is none of this name."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        for option in command.params:
            if isinstance(option, click.Option) and option.callback is None:
                option.callback = refuse_empty
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a subcommand. Without one of this name, the error names the one that may be meant."""
        given = args[0].lower().replace("_", "-")
        if args[0] not in _COMMANDS and args[0].isprintable() and not args[0].startswith("-"):
            near = [_FUNCTIONS[given]] if given in _FUNCTIONS else difflib.get_close_matches(given, _COMMANDS, 1)
            if near:
                ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line. Exits with `STDOUT_CLOSED` when nobody reads stdout any more."""
        with forgiving_streams():
            try:
                return super().main(*args, **extra)
            except StdoutClosed:
                sys.exit(STDOUT_CLOSED)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the options, which also answers --help and --version."""
        with _reported_in_one_line():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand, and report every failure in one line."""
        if not os.environ.get(TRACEBACK):  # libraries of engines log a traceback for Ctrl-C
            logging.getLogger().addHandler(logging.NullHandler())
        try:
            with _reported_in_one_line(), stoppable():
                return guarded(lambda: super(RootGroup, self).invoke(ctx), doing="the command")
        except KeyboardInterrupt:
            say("interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except Stopped as stopped:
            say(SIGNALS[signal.Signals(stopped.number).name], err=True)
            ctx.exit(128 + stopped.number)
        except click.UsageError as error:
            error.message = printable(error.message)  # type: ignore[misc]  # click declares it final
            raise


@contextmanager
def _reported_in_one_line() -> Iterator[None]:
    """Turn coded errors into failures that click prints, unless their traceback is asked for."""
    try:
        yield
    except WhenaboutsError as error:
        if os.environ.get(TRACEBACK):
            raise
        raise CodedFailure(error) from error


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

    Exit codes: 0 done; 1 some rows rejected and --strict, or no clock found (learn-delay, learn-clock); 2 usage; 3 bad
    input; 4 engine failure, or a result that could not be written; 130 interrupted, 143 terminated, 129 hung up, 141
    stdout closed early (| head).
    """
