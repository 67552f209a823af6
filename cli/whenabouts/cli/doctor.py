"""`whenabouts doctor`: reports what is installed, what is missing, and what to install."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any, NamedTuple

import click

from whenabouts.cli.say import say
from whenabouts.core.errors import Code, EngineError
from whenabouts.core.hosting.machine import usable_cores

LEAST_PYTHON = (3, 11)
_LOCAL = ("numpy", "pyarrow", "numba")
_INSTALL_FLINK = "pip install 'whenabouts[flink]'"
_INSTALL_SPARK = "pip install 'whenabouts[spark]'"
_SPARK_PACKAGES = ("pandas", "protobuf")


class Finding(NamedTuple):
    """One line of the report: an item, what was found, whether that is sufficient, and what to do if not."""

    name: str
    found: str
    fit: bool
    mend: str = ""


@click.command(short_help="Report what is installed, what is missing, and what to install.")
@click.option(
    "--engine", type=click.Choice(["local", "spark", "flink"]), default="local", help="The engine to be checked."
)
def doctor(engine: str) -> None:
    """Check this machine: Python, packages, Java, cores, memory.

    Exits with 0 if the engine (default: local) can run, else with 4.
    """
    local, spark, flink = local_findings(), spark_findings(), flink_findings()
    _print(list(dict.fromkeys([*local, *spark, *flink, *_machine()])))
    say()
    fitness = {"local": local, "spark": [*local, *spark], "flink": [*local, *flink]}
    for name, findings in fitness.items():
        missing = [finding.mend for finding in findings if not finding.fit]
        say(f"{name}: fit" if not missing else f"{name}: not fit; {'; '.join(dict.fromkeys(missing))}")
    unfit = [finding.name for finding in fitness[engine] if not finding.fit]
    if unfit:
        raise EngineError(
            Code.ENGINE_VERSION, f"engine {engine} is not fit: {', '.join(unfit)}", "see the report above"
        )


def version_of(package: str) -> str | None:
    """The installed version of a package, found without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def local_findings() -> list[Finding]:
    """What the local engine requires."""
    fit = sys.version_info >= LEAST_PYTHON
    python = Finding("Python", platform.python_version(), fit, "install Python 3.11 or newer")
    ours = Finding("whenabouts", version_of("whenabouts") or "from its sources", True)
    return [python, ours, *(_package(name, f"pip install {name}") for name in _LOCAL)]


def spark_findings() -> list[Finding]:
    """What Spark requires: packages, its version, and Java."""
    from whenabouts.spark_plugin import environment

    version = environment.spark_version()
    spark = Finding("pyspark", version or "not installed", version is not None, _INSTALL_SPARK)
    return [
        spark._replace(**_refusal(environment.check_packages)) if spark.fit else spark,
        *(_package(name, _INSTALL_SPARK) for name in _SPARK_PACKAGES),
        _java(environment.check_java),
    ]


def flink_findings() -> list[Finding]:
    """What Flink requires: its package, a Python that it supports, and Java."""
    from whenabouts.flink_plugin import environment

    package = _package("apache-flink", _INSTALL_FLINK)
    return [package._replace(**_refusal(environment.check_packages)), _java(environment.check_java)]


def _java(check: Callable[[], None]) -> Finding:
    from whenabouts.core.hosting import java

    command, version = java.java_command(), java.java_version()
    found = "not found" if command is None else f"{version or 'does not answer'} at {command}"
    return Finding("Java", found, True)._replace(**_refusal(check))


def _refusal(check: Callable[[], None]) -> dict[str, Any]:
    """The fields of a finding for the error of a check; none if it passes."""
    try:
        check()
    except EngineError as error:
        return {"fit": False, "mend": error.hint}
    return {}


def _package(name: str, mend: str) -> Finding:
    found = version_of(name)
    return Finding(name, found or "not installed", found is not None, mend)


def _machine() -> list[Finding]:
    return [Finding("cores", str(usable_cores()), True), Finding("memory", _memory(), True)]


def _memory() -> str:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return "unknown"
    return f"{total / 2**30:.1f} GiB"


def _print(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("", "found", "fit", "to do"):
        table.add_column(heading, overflow="fold")
    for name, found, fit, mend in findings:
        table.add_row(name, escape(found), "yes" if fit else "[red]no[/red]", "" if fit else escape(mend))
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 120).print(table)
