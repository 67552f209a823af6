"""Where the parts of a cluster run: as processes of this machine or, if a Docker engine runs, in containers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol

from infra.docker import has_docker
from infra.processes import Server


class Part(Protocol):
    """A server that can be killed."""

    @property
    def alive(self) -> bool:
        """Whether it runs."""

    def start(self) -> None:
        """Start or restart it; the caller waits until it answers."""

    def kill(self) -> None:
        """kill -9, with everything that it started."""

    def stop(self) -> None:
        """End it."""


class Launch(Protocol):
    """Makes a server from a command, not started yet: `env` is added to the environment, `folder` has its log."""

    def __call__(self, command: Sequence[str], folder: Path, *, name: str, env: Mapping[str, str]) -> Part:
        """Make the server."""


@dataclass(frozen=True)
class Machine:
    """`python`: the interpreter; `packages`: the folder with an engine; both as paths on that machine."""

    python: str
    packages: Path
    launch: Launch


def machine(engine: str) -> Machine:
    """The machine of an engine's clusters. `engine`: the module of its pip package."""
    if has_docker():
        from infra.containers import contained

        return contained()
    return Machine(sys.executable, Path(import_module(engine).__path__[0]).parent, Server)
