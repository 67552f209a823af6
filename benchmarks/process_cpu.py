"""CPU-seconds of a process and everything that it started, including ended children, and the cores that they run on
(Linux)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_of_tree(root: int | None = None, *, without: int | None = None) -> dict[str, float]:
    """CPU-seconds by command name, of `root` (this process by default) and its descendants; `without`: a process
    that is left out with its descendants."""
    total: dict[str, float] = {}
    left_out = _tree(without) if without is not None else {}
    for pid, (name, _, seconds) in _tree(root).items():
        if pid in left_out:
            continue
        kind = "driver" if pid == os.getpid() else "JVM" if name == "java" else "workers"
        compiling = _compiling(pid) if kind == "JVM" else 0.0
        for part, spent in ((kind, seconds - compiling), ("JIT", compiling)):
            total[part] = total.get(part, 0.0) + spent
    return total


def memory_of_tree(root: int) -> dict[str, int]:
    """Resident bytes of `root` and its descendants: the JVM's, and those of `workers`. Pages that processes share are
    divided among them."""
    total: dict[str, int] = {}
    for pid, (name, _, _) in _tree(root).items():
        kind = "JVM" if name == "java" else "workers"
        with suppress(OSError, IndexError):
            told = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total[kind] = total.get(kind, 0) + 1024 * int(told.partition("\nPss:")[2].split()[0])
    return total


def cpu_since(before: Mapping[str, float], *, without: int | None = None) -> dict[str, float]:
    """The increase of `cpu_of_tree` since `before`. The seconds of ended processes that no parent waited for are lost,
    so differences are limited to 0 from below."""
    now = cpu_of_tree(without=without)
    return {kind: max(seconds - before.get(kind, 0.0), 0.0) for kind, seconds in now.items()}


def pin_tree(cores: set[int], root: int | None = None) -> None:
    """Every thread of `root` (this process by default) and its descendants, and all that they start, run on `cores`."""
    for _ in range(2):  # a thread inherits the cores of its creator: no thread is missed twice
        for pid in _tree(root):
            for thread in _threads(pid):
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(int(thread.name), cores)


def _tree(root: int | None) -> dict[int, tuple[str, int, float]]:
    stats = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stats[int(entry.name)] = _read(entry / "stat")
            except OSError:  # it has ended meanwhile; its parent has its time
                continue
    wanted = {os.getpid() if root is None else root}
    while True:
        more = {pid for pid, (_, parent, _) in stats.items() if parent in wanted} - wanted
        if not more:
            return {pid: stats[pid] for pid in wanted & stats.keys()}
        wanted |= more


def _threads(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def _compiling(java: int) -> float:
    """The CPU time of the JVM's compiler threads (ended ones count as JVM)."""
    spent = 0.0
    for thread in _threads(java):
        try:
            name, _, seconds = _read(thread / "stat", ended_children=False)
        except OSError:
            continue
        spent += seconds if name.startswith(("C1 Compiler", "C2 Compiler")) else 0.0
    return spent


def _read(stat: Path, *, ended_children: bool = True) -> tuple[str, int, float]:
    """Name, parent and CPU-seconds. A thread's file has those of the ended children of its whole process."""
    head, _, tail = stat.read_text().rpartition(")")
    fields = tail.split()
    return head.partition("(")[2], int(fields[1]), sum(map(int, fields[11 : 15 if ended_children else 13])) / TICKS
