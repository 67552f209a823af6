"""Atomic costs measured on this machine, on our own operators, and where they are stored.

The schemes are run over made streams on a grid of (cp, oop), and the atomic costs are solved for from the equations of
`cost_model`: the lazy update gives insert and delete, what the eager update has besides gives merge; the cheaper scan
gives read, what the other one has besides gives coalesce or expand. Each is a table over the grid, so that the model
says at its points what was measured. What cannot be told apart from outside is booked under one name: delete, detach
and split are nought, their work is in insert and merge. Lazy queries are measured several at a time, since those of one
grouping share the order in which they see the rows; where each has one of its own, a lazy scan costs more than said.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from whenabouts.core.coalescing import Coalesce
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.planner.atomic_costs import AtomicCosts, Table
from whenabouts.planner.cost_model import Sizes
from whenabouts.planner.releases import release
from whenabouts.planner.scheme_measurements import Measured, measure, median

CP = (0.05, 0.1, 0.2, 0.5, 0.95)
OOP = (0.0, 0.35, 0.7)
WINDOW = 16_000
"""Tuples in the window that is measured."""

VALUES = ("v0", "v1", "v2", "v3")
"""Value columns of the made stream."""

COSTS_FILE = "WHENABOUTS_COSTS"
"""Environment variable: the file in which calibrated costs are stored."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Costs in CPU-microseconds and sizes in bytes, and where they come from."""

    costs: AtomicCosts
    sizes: Sizes
    machine: str
    release: str

    def to_json(self) -> str:
        """As text; `Calibration.from_json` reads it back."""
        costs = {name: asdict(cost) if isinstance(cost, Table) else cost for name, cost in _fields(self.costs).items()}
        told = {"format": 1, "machine": self.machine, "release": self.release, "sizes": asdict(self.sizes)}
        return json.dumps(told | {"costs": costs}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """Read stored costs. Raises: QueryError WA-2075 for text that holds none."""
        from whenabouts.planner.atomic_costs import read_costs

        try:
            found = json.loads(text)
            if found["format"] != 1:
                raise ValueError(f"it is of format {found['format']}")
            costs = read_costs(found["costs"])
            return cls(costs, Sizes(**found["sizes"]), str(found["machine"]), str(found["release"]))
        except (KeyError, TypeError, ValueError) as error:
            raise QueryError(
                Code.BAD_PLAN_FILE, f"these are no calibrated costs: {error}", "run whenabouts calibrate"
            ) from error


def calibrate(
    *, window: int = WINDOW, repeat: int = 3, progress: Callable[[int, int], None] | None = None
) -> Calibration:
    """Measure both schemes on the grid. About a quarter of a minute for each repetition.

    ``progress`` is told how many of how many points are done.
    """
    points = [(cp, oop) for cp in CP for oop in OOP]
    eager: dict[tuple[float, float], Measured] = {}
    lazy: dict[tuple[float, float], Measured] = {}
    for done, (cp, oop) in enumerate(points):
        table = made_stream(cp, oop, 3 * window)
        for scheme, found in (("eager", eager), ("lazy", lazy)):
            found[cp, oop] = median([_measured(table, scheme, window) for _ in range(repeat)])
        if progress is not None:
            progress(done + 1, len(points))
    return Calibration(*solved(eager, lazy), machine=_machine(), release=release())


def solved(
    eager: dict[tuple[float, float], Measured], lazy: dict[tuple[float, float], Measured]
) -> tuple[AtomicCosts, Sizes]:
    """The atomic costs and sizes with which the model gives what was measured at the points of the grid."""

    def table(cost: Callable[[float, float], float]) -> Table:
        return Table(CP, OOP, tuple(tuple(max(cost(cp, oop), 0.0) for oop in OOP) for cp in CP))

    low, high = CP[0], CP[-1]
    lazy_row = float(np.mean([each.memory / each.tuples for each in lazy.values()]))
    # memory = tuples * (cp * timestamp + (1 - cp) * row), at both ends of the grid
    per_tuple = {cp: eager[cp, 0.0].memory / eager[cp, 0.0].tuples for cp in (low, high)}
    timestamp = max((per_tuple[high] * (1 - low) - per_tuple[low] * (1 - high)) / (high - low), 1e-3)
    row = max((per_tuple[low] - low * timestamp) / (1 - low), 1e-3)
    sizes = Sizes(eager_row=row, lazy_row=lazy_row, timestamp=timestamp)

    def scan(of: dict[tuple[float, float], Measured], cp: float, oop: float) -> float:
        return of[cp, oop].scan / of[cp, oop].tuples

    def part(cp: float) -> float:
        return cp * timestamp / row + 1 - cp

    def read(cp: float, oop: float) -> float:
        return min(scan(lazy, cp, oop), scan(eager, cp, oop) / part(cp))

    costs = AtomicCosts(
        read=table(read),
        insert=table(lambda cp, oop: lazy[cp, oop].update),
        delete=0.0,
        merge=table(lambda cp, oop: (eager[cp, oop].update - (1 - cp) * lazy[cp, oop].update) / cp),
        split=0.0,
        detach=0.0,
        coalesce=table(lambda cp, oop: (scan(lazy, cp, oop) - read(cp, oop)) / cp),
        expand=table(lambda cp, oop: scan(eager, cp, oop) - read(cp, oop) * part(cp)),
    )
    return costs, sizes


def made_stream(cp: float, oop: float, size: int, groups: int = 50, seed: int = 7) -> pa.Table:
    """A stream of tuples a millisecond apart that coalesce in each of four columns with probability ``cp``, and arrive
    behind a later one with probability about ``oop``."""
    random = np.random.default_rng(seed)
    group = random.integers(0, groups, size)
    # A tuple's value differs from its predecessor's in its group with probability 1 - cp.
    order = np.argsort(group, kind="stable")
    values = {}
    for name in VALUES:
        values[name] = np.empty(size, np.int64)
        values[name][order] = np.cumsum(random.random(size) >= cp)
    at = np.arange(size) * 1_000
    arrival = at + np.where(random.random(size) < oop, random.integers(1_000, 500_000, size), 0)
    come = np.argsort(arrival, kind="stable")
    return pa.table({name: column[come] for name, column in ({"t": at, "g": group} | values).items()})


def sizes_of(found: Calibration, schema: pa.Schema, columns: Sequence[str], text: float = 16.0) -> Sizes:
    """The calibrated sizes for a stream of this schema, of which a query needs these columns (group and values).

    ``text``: mean bytes of columns whose width varies. What a tuple costs beside its columns is as it was measured.
    """
    own = {name: made_stream(0.5, 0.0, 1).schema.field(name) for name in ("t", "g", *VALUES)}
    beside_lazy = found.sizes.lazy_row - sum(_width(field, text) for field in own.values())
    beside_eager = found.sizes.eager_row - sum(_width(own[name], text) for name in ("g", VALUES[0]))
    lazy = sum(_width(field, text) for field in schema) + beside_lazy
    eager = sum(_width(schema.field(name), text) for name in columns) + beside_eager
    return Sizes(eager_row=max(eager, 1.0), lazy_row=max(lazy, 1.0), timestamp=found.sizes.timestamp)


def _width(field: pa.Field, text: float) -> float:
    try:
        return float(field.type.bit_width) / 8
    except ValueError:
        return text


def _measured(table: pa.Table, scheme: str, window: int) -> Measured:
    slide_us = window * 1_000 // 8
    given: dict[str, Any] = {
        "time": "t",
        "group": "g",
        "window": f"{window} ms",
        "slide": f"{slide_us} us",
        "lateness": "500 ms",
    }
    names = VALUES if scheme == "lazy" else VALUES[:1]
    queries = {name: Coalesce(**given, values=name) for name in names}
    found = measure(queries, dict.fromkeys(names, scheme), table, slide_us=slide_us, warm_slides=9)
    return replace(found, scan=found.scan / len(names))


def costs_file() -> Path:
    """Where calibrated costs are stored: ``WHENABOUTS_COSTS``, else in the user's configuration."""
    told = os.environ.get(COSTS_FILE)
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(told) if told else Path(home) / "whenabouts" / "costs.json"


def stored_calibration() -> Calibration | None:
    """The costs that were calibrated on this machine; None where there are none.

    Raises: InputError WA-1008 for a file that cannot be read; QueryError WA-2075 for one that holds no costs.
    """
    path = costs_file()
    try:
        return Calibration.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Code.UNREADABLE_FILE, f"{path}: {error}", "run whenabouts calibrate") from error


def store(found: Calibration, path: Path | None = None) -> Path:
    """Store calibrated costs; gives where. Raises: InputError WA-1008."""
    where = path or costs_file()
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(found.to_json(), encoding="utf-8")
    except OSError as error:
        raise InputError(Code.UNREADABLE_FILE, str(error), "choose a file that can be written") from error
    return where


def _machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} CPUs, Python {sys.version.split()[0]}, pyarrow {pa.__version__}"


def _fields(costs: AtomicCosts) -> dict[str, Any]:
    return {name: getattr(costs, name) for name in AtomicCosts.__dataclass_fields__}
