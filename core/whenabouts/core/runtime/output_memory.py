"""Whether the output of a step fits into memory: asked before it is made where its size is known, and while it grows.

An operator holds what a step puts out until the step ends, on every engine. A condition that is wider than meant makes
more pairs than any machine holds, and the process is then killed without a word. So a step stops with a code where

- what is *certain* to come out (pairs in sure ranges, extents with tuples) takes more than is free now, or
- what has come out so far leaves no room for the next batch.

Free is the least of what the machine, each control group around the process and its address space have left. An upper
bound alone, which most of the candidates may not reach, never stops a step. `WHENABOUTS_OUTPUT_MEMORY` lifts it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from whenabouts.core.errors import Code, EngineError, QueryError

MEBIBYTES = "WHENABOUTS_OUTPUT_MEMORY"
"""The environment variable that says how many mebibytes the output of one step may take, or `off` (no limit); where it
does not, as many as are free."""

WORTH_A_LOOK = 64 << 20
"""Output up to so many bytes is not asked about; more is asked about each time that it has grown by this."""

FEW_ROWS = 1 << 12
"""Fewer rows than these are not worth measuring the width of."""

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_HINT = (
    "narrow the condition, join on a key, raise the confidence, keep one partner (best=, how='left_semi'), or slide "
    f"by more; {MEBIBYTES}=off tries all the same"
)


def require_room(rows: int, bytes_per_row: float, what: str, *, at_most: int | None = None) -> None:
    """Refuse output of which at least `rows` are certain to come and do not fit. `what`: "pairs of ...".

    Raises QueryError WA-2201 with the expected number, EngineError WA-2151 for a setting that is none. O(1).
    """
    needed = int(rows * bytes_per_row)
    if needed <= WORTH_A_LOOK:
        return
    limit = allowed_bytes()
    if limit is None or needed <= limit:
        return
    bound = "" if at_most is None or at_most <= rows else f" (and at most {at_most:,})"
    raise QueryError(
        Code.TOO_MUCH_OUTPUT,
        f"at least {rows:,}{bound} {what} are expected, which take {_human(needed)}, and {_human(limit)} are free",
        _HINT,
    )


@dataclass(slots=True)
class Growing:
    """What a step has put out so far."""

    what: str
    rows: int = 0
    nbytes: int = 0
    _asked_at: int = 0
    _largest: int = 0

    @classmethod
    def after(cls, output: Sequence[pa.RecordBatch], what: str) -> Growing:
        """Behind what a step has put out already. `what`: the name of the rows in errors."""
        return cls(what, sum(batch.num_rows for batch in output), sum(batch.nbytes for batch in output))

    def counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, as long as there is room for the next one. Raises QueryError WA-2201."""
        for batch in batches:
            size = batch.nbytes
            self.rows += batch.num_rows
            self.nbytes += size
            self._largest = max(self._largest, size)
            yield batch
            if self.nbytes - self._asked_at > WORTH_A_LOOK:
                self._asked_at = self.nbytes
                self._require_more()

    def _require_more(self) -> None:
        told = _told()
        limit = told - self.nbytes if told is not None else (None if _is_off() else free_bytes())
        next_one = 0 if told is not None else 2 * self._largest + WORTH_A_LOOK // 2
        if limit is not None and limit < next_one:
            raise QueryError(
                Code.TOO_MUCH_OUTPUT,
                f"{self.rows:,} {self.what} have come out in one step, which take {_human(self.nbytes)}, more are to "
                f"come, and {_human(max(limit, 0))} are free",
                _HINT,
            )


def bytes_per_row(tables: Sequence[pa.Table], names: Sequence[Sequence[str]], computed: int = 0) -> float:
    """What a row of the output takes that has these columns of these tables and so many computed ones: the mean.

    >>> bytes_per_row([pa.table({"a": [1, 2], "b": ["x", "y"]})], [["a"]], computed=1)
    16.0
    """
    total = 8.0 * computed
    for table, columns in zip(tables, names, strict=True):
        total += sum(table.column(name).nbytes for name in columns) / max(table.num_rows, 1)
    return total


def least_width(schema: pa.Schema) -> int:
    """Bytes that a row of these columns takes at least.

    >>> least_width(pa.schema({"a": pa.int64(), "b": pa.string()}))
    12
    """
    bits = sum(field.type.bit_width if pa.types.is_primitive(field.type) else 32 for field in schema)
    return -(-bits // 8)


def allowed_bytes() -> int | None:
    """How many bytes a step's output may take now; None where nothing says."""
    told = _told()
    return told if told is not None else (None if _is_off() else free_bytes())


def free_bytes() -> int | None:
    """Bytes that this process can still get: of the machine, its control groups and its address space the least.

    None where the system does not say.
    """
    found = [_of_machine(), *_of_control_groups(), _of_address_space()]
    known = [size for size in found if size is not None]
    return max(min(known), 0) if known else None


def _is_off() -> bool:
    return os.environ.get(MEBIBYTES) == "off"


def _told() -> int | None:
    told = os.environ.get(MEBIBYTES)
    if told in (None, "off"):
        return None
    if not told.isascii() or not told.isdigit():
        raise EngineError(Code.BAD_SETTING, f"{MEBIBYTES} is {told!r}", "give a number of mebibytes, or off")
    return int(told) << 20


def _of_machine() -> int | None:
    figures = _figures(_PROC / "meminfo")
    if "MemAvailable" in figures:
        return (figures["MemAvailable"] + figures.get("SwapFree", 0)) << 10
    for name in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES"):
        try:
            return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, OSError, ValueError):  # another system
            continue
    return None


def _of_control_groups() -> Iterator[int]:
    """What each memory control group around the process has left; its file cache can be reclaimed."""
    for line in _read(_PROC / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            yield from _left(_CGROUPS, path, "memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            yield from _left(_CGROUPS / "memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")


def _left(root: Path, path: str, limit: str, usage: str, prefix: str) -> Iterator[int]:
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for depth in range(len(parts) + 1):
        group = root.joinpath(*parts[:depth])
        most, used = _read(group / limit).strip(), _read(group / usage).strip()
        if most.isdigit() and used.isdigit():
            figures = _figures(group / "memory.stat")
            cached = sum(figures.get(f"{prefix}{kind}_file", 0) for kind in ("active", "inactive"))
            yield int(most) - int(used) + cached


def _of_address_space() -> int | None:
    try:
        import resource  # not on every system

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        pages = _read(_PROC / "self" / "statm").split()
        if most == resource.RLIM_INFINITY or not pages:
            return None
        return most - int(pages[0]) * resource.getpagesize()
    except ImportError:
        return None


def _figures(path: Path) -> dict[str, int]:
    """Lines "name number" or "name: number kB" by name."""
    words = (line.replace(":", " ").split() for line in _read(path).splitlines())
    return {word[0]: int(word[1]) for word in words if len(word) > 1 and word[1].isdigit()}


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _human(size: int) -> str:
    """Bytes for people.

    >>> _human(3 << 30), _human(5 << 20)
    ('3.0 GiB', '5.0 MiB')
    """
    for power, unit in ((40, "TiB"), (30, "GiB")):
        if size >= 1 << power:
            return f"{size / (1 << power):,.1f} {unit}"
    return f"{size / (1 << 20):,.1f} MiB"
