"""Servers that a test starts, each in a session of its own, and ends by process id."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from whenabouts.core.hosting.worker_archive import parts

YOUNG = "-XX:TieredStopAtLevel=1"
"""For JVMs that a test starts: they end before the second compiler would pay off."""


class Server:
    """One process with everything that it starts. A restart has the same command, folder and log. `env`: added to the
    environment of this process."""

    def __init__(
        self, command: Sequence[str], folder: Path, *, name: str, env: Mapping[str, str] | None = None
    ) -> None:
        self._command, self._folder, self.name = list(command), folder, name
        inherited = dict(os.environ)
        inherited.pop("PYTHON_LOOPBACK_SERVER_ADDRESS", None)  # from a local job: Flink's workers would run in here
        self._env = inherited | dict(env or {})
        self.log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; the caller waits until it answers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._env, cwd=self._folder, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it goes on."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """kill -9, with everything that it started."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end, and kill it after half a minute."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        for signal_, seconds in ((how, 30), (signal.SIGKILL, 30)):
            try:
                os.killpg(self._process.pid, signal_)
                self._process.wait(seconds)
                break
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        self._process.wait()
        self._process = None

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""


def wait_for(what: Callable[[], bool], *, seconds: float, told: Callable[[], str]) -> None:
    """Wait until a condition holds. Fails with the text of `told`."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, told()
        time.sleep(0.1)


def installed() -> list[str]:
    """The Python path of whenabouts: a machine of a cluster has it installed, with its kernels compiled."""
    return list(dict.fromkeys(str(part.parents[1]) for part in parts()))


def free_port() -> int:
    """A free port outside the range for outgoing connections: a killed server finds it free again."""
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with socket.socket() as asked, suppress(OSError):
            asked.bind(("localhost", port))
            return port
    raise OSError("no port is free")


def listens(port: int) -> bool:
    """Whether a server answers at a port of this machine."""
    try:
        socket.create_connection(("localhost", port), timeout=1).close()
    except OSError:
        return False
    return True
