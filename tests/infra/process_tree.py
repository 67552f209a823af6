"""The descendants of a process that a test started; no other process is touched."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep


def children(pid: int) -> list[int]:
    """Direct children, from /proc."""
    found: list[int] = []
    try:
        for task in list(Path(f"/proc/{pid}/task").iterdir()):
            with suppress(OSError):  # the thread has ended, others have not
                found += map(int, (task / "children").read_text().split())
    except OSError:  # it has ended
        return []
    return found


def descendants(pid: int) -> list[int]:
    """All processes below `pid`, nearest first."""
    found = children(pid)
    for child in list(found):
        found += descendants(child)
    return found


def command(pid: int) -> str:
    """The command line of a process, empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def kill(pids: list[int]) -> None:
    """kill -9, and wait until they are gone (or wait for their parent, as zombies)."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    deadline = monotonic() + 30
    while any(command(pid) for pid in pids):
        assert monotonic() < deadline, "processes outlive kill -9"
        sleep(0.02)
