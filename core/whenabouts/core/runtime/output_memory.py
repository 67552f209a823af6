"""Checks that the output of a step fits into memory: before it is made, if its size is known, and while it grows.

On every engine, an operator holds a step's output until the step ends. A condition that is too wide makes more pairs
than fit into memory, and the system would kill the process without an error. So a step stops with a code if

- the *certain* output (pairs in sure ranges, extents with tuples) needs more than the free memory, or
- the output so far leaves no room for the next batch.

Free memory is the least of what the machine, each control group around the process and its address space have left. A
mere upper bound, which the output may never reach, does not stop a step. `WHENABOUTS_OUTPUT_MEMORY` sets the limit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from whenabouts.core.arrays.large_arrays import let_go
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.memory_limits import bytes_set

MEBIBYTES = "WHENABOUTS_OUTPUT_MEMORY"
"""The environment variable with the limit of one step's output in mebibytes, or `off` for no limit. Unset: the free
memory."""

CHECKED_BYTES = 64 << 20
"""Smaller output is not checked; larger output is checked each time it has grown by this many bytes."""

FEW_ROWS = 1 << 12
"""For fewer rows than this, measuring their width is not worth while."""

_NO_LIMIT = 1 << 62
"""The first version of control groups says that there is no limit by one of nearly 2**63 bytes."""

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_HINT = (
    "narrow the condition, join on a key, raise the confidence, keep one partner (best=, how='left_semi'), or slide "
    f"by more; {MEBIBYTES}=off removes the limit"
)


def require_room(rows: int, bytes_per_row: float, what: str, *, at_most: int | None = None) -> None:
    """Refuse output if its `rows` certain rows do not fit into memory. `what`: "pairs of ...".

    Raises QueryError WA-2201 with the expected number, WA-2151 for an invalid setting. O(1).
    """
    needed = int(rows * bytes_per_row)
    if needed <= CHECKED_BYTES:
        return
    limit = allowed_bytes(needed)
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
    """The size of a step's output so far."""

    what: str
    rows: int = 0
    nbytes: int = 0
    _asked_at: int = 0
    _largest: int = 0

    @classmethod
    def after(cls, output: Sequence[pa.RecordBatch], what: str) -> Growing:
        """Starting from existing output. `what`: the name of the rows in errors."""
        return cls(what, sum(batch.num_rows for batch in output), sum(batch.nbytes for batch in output))

    def counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass the batches on while there is room for the next one. Raises QueryError WA-2201."""
        for batch in batches:
            size = batch.nbytes
            self.rows += batch.num_rows
            self.nbytes += size
            self._largest = max(self._largest, size)
            yield batch
            if self.nbytes - self._asked_at > CHECKED_BYTES:
                self._asked_at = self.nbytes
                self._require_more()

    def _require_more(self) -> None:
        setting = _setting()
        next_one = 0 if setting is not None else 2 * self._largest + CHECKED_BYTES // 2
        limit = allowed_bytes(next_one) if setting is None else setting - self.nbytes
        if limit is not None and limit < next_one:
            raise QueryError(
                Code.TOO_MUCH_OUTPUT,
                f"{self.rows:,} {self.what} in one step take {_human(self.nbytes)}, more are to come, "
                f"and {_human(max(limit, 0))} are free",
                _HINT,
            )


def bytes_per_row(tables: Sequence[pa.Table], names: Sequence[Sequence[str]], computed: int = 0) -> float:
    """The mean size of an output row with these columns of the tables, and `computed` columns of 8 bytes.

    >>> bytes_per_row([pa.table({"a": [1, 2], "b": ["x", "y"]})], [["a"]], computed=1)
    16.0
    """
    total = 8.0 * computed
    for table, columns in zip(tables, names, strict=True):
        total += sum(table.column(name).nbytes for name in columns) / max(table.num_rows, 1)
    return total


def least_width(schema: pa.Schema) -> int:
    """The least number of bytes of a row with these columns.

    >>> least_width(pa.schema({"a": pa.int64(), "b": pa.string()}))
    12
    """
    bits = sum(field.type.bit_width if pa.types.is_primitive(field.type) else 32 for field in schema)
    return -(-bits // 8)


def allowed_bytes(needed: int = 0) -> int | None:
    """How many bytes a step's output may take now; None if there is no limit.

    Memory that is kept for later arrays is let go of first if fewer than `needed` are free.
    """
    setting = _setting()
    if setting is not None or _is_off():
        return setting
    free = free_bytes()
    return free_bytes() if free is not None and free < needed and let_go() else free


def free_bytes() -> int | None:
    """The bytes that this process can still allocate: the least of machine, control groups and address space.

    None if the system does not report them.
    """
    found = [_of_machine(), *_of_control_groups(), _of_address_space()]
    known = [size for size in found if size is not None]
    return max(min(known), 0) if known else None


def _is_off() -> bool:
    return os.environ.get(MEBIBYTES) == "off"


def _setting() -> int | None:
    return None if _is_off() else bytes_set(MEBIBYTES, "or off")


def _of_machine() -> int | None:
    figures = _read(_PROC / "meminfo")
    available = _figure(figures, "MemAvailable")
    if available is not None:
        return (available + (_figure(figures, "SwapFree") or 0)) << 10
    for name in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES"):
        try:
            return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, OSError, ValueError):  # not available on this system
            continue
    return None


def _of_control_groups() -> Iterator[int]:
    """The free memory of each control group around the process; its file cache counts as free."""
    for line in _read(_PROC / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            yield from _left(_CGROUPS, path, "memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            yield from _left(_CGROUPS / "memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")


def _left(root: Path, path: str, limit: str, usage: str, prefix: str) -> Iterator[int]:
    group = root
    for part in ("", *(part for part in path.split("/") if part not in ("", ".."))):
        group = group / part
        most = _read(group / limit).strip()
        if not most.isdigit() or int(most) >= _NO_LIMIT:
            continue
        used = _read(group / usage).strip()
        if used.isdigit():
            stat = _read(group / "memory.stat")
            cached = sum(_figure(stat, f"{prefix}{kind}_file") or 0 for kind in ("active", "inactive"))
            yield int(most) - int(used) + cached


def _of_address_space() -> int | None:
    try:
        import resource  # not available on every system

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        pages = _read(_PROC / "self" / "statm").split()
        if most == resource.RLIM_INFINITY or not pages:
            return None
        return most - int(pages[0]) * resource.getpagesize()
    except ImportError:
        return None


def _figure(text: str, name: str) -> int | None:
    """The number of a line "name number" or "name: number kB"; None if there is no such line."""
    found = re.search(rf"^{name}:?\s+(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _human(size: int) -> str:
    """A number of bytes for messages.

    >>> _human(3 << 30), _human(5 << 20)
    ('3.0 GiB', '5.0 MiB')
    """
    for power, unit in ((40, "TiB"), (30, "GiB")):
        if size >= 1 << power:
            return f"{size / (1 << power):,.1f} {unit}"
    return f"{size / (1 << 20):,.1f} MiB"
