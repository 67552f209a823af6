"""Atomic costs measured on this machine, on our own operators, and where they are stored.

The schemes are run over made streams on a grid of (cp, oop), in steps of many rows and of few, and the atomic costs are
solved for from the equations of `costs.eager_lazy_cost`. What a step costs beside its rows follows from the two sizes,
and what the order of a grouping costs from one lazy query alone and several that share it; the rest is measured by one
scheme at a time: a lazy update gives insert and merge, what an eager one has besides gives keep; the cheaper scan gives
read, what the other one has besides gives coalesce or expand. Each is a table over the grid, so that the model says at
its points what was measured. What cannot be told apart from outside is booked under one name: delete, detach and split
are nought, their work is in insert, merge and keep.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.coalescing.operator import Coalesce
from whenabouts.core.costs.operation_costs import AtomicCosts, Table, Terms
from whenabouts.core.costs.prices import Sizes, TimingJoinPrices
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.sources.whole_files import whole_file
from whenabouts.planner.releases import release
from whenabouts.planner.scheme_measurements import Measured, measure, median
from whenabouts.planner.timing_measurements import JOIN_RUNS, measure_prices

CP = (0.05, 0.35, 0.65, 0.95)
OOP = (0.0, 0.7)
STEPS_PER_SLIDE = (1, 8)
"""A slide's tuples arrive in one step, and in so many."""
WINDOW = 64_000
"""Tuples in the window that is measured."""

VALUES = ("v0", "v1", "v2", "v3")
"""Value columns of the made stream."""

COSTS_FILE = "WHENABOUTS_COSTS"
"""Environment variable: the file in which calibrated costs are stored."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Coalescing's costs in CPU-microseconds and sizes in bytes, a timing join's prices in nanoseconds, and where they
    come from."""

    costs: AtomicCosts
    sizes: Sizes
    timing: TimingJoinPrices
    machine: str
    release: str

    def to_json(self) -> str:
        """As text; `Calibration.from_json` reads it back."""
        costs = {
            name: asdict(cost) if isinstance(cost, Table | Terms) else cost
            for name, cost in _fields(self.costs).items()
        }
        told = {"format": 2, "machine": self.machine, "release": self.release, "sizes": asdict(self.sizes)}
        return json.dumps(told | {"costs": costs, "timing": asdict(self.timing)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """Read stored costs. Raises: QueryError WA-2075 for text that holds none."""
        from whenabouts.core.costs.operation_costs import read_costs

        try:
            found = json.loads(text)
            if found["format"] != 2:
                raise ValueError(f"it is of format {found['format']}")
            costs = read_costs(found["costs"])
            sizes, timing = Sizes(**found["sizes"]), TimingJoinPrices(**found["timing"])
            return cls(costs, sizes, timing, str(found["machine"]), str(found["release"]))
        except (KeyError, TypeError, ValueError) as error:
            raise QueryError(
                Code.BAD_PLAN_FILE, f"these are no calibrated costs: {error}", "run whenabouts calibrate"
            ) from error


class Point(NamedTuple):
    """What was measured at a point of the grid: each scheme in steps of many rows and of few; `several` lazy queries
    with the scan of one of them, and a lazy query alone."""

    eager: tuple[Measured, Measured]
    several: tuple[Measured, Measured]
    lazy: Measured


def calibrate(
    *, window: int = WINDOW, repeat: int = 3, progress: Callable[[int, int], None] | None = None
) -> Calibration:
    """Measure both schemes on the grid, and a timing join. A minute for each repetition.

    ``progress`` is told how many of how many points are done.
    """
    grid = [(cp, oop) for cp in CP for oop in OOP]
    all_runs = len(grid) + JOIN_RUNS
    found: dict[tuple[float, float], Point] = {}
    for done, (cp, oop) in enumerate(grid):
        table = made_stream(cp, oop, 3 * window)

        def of(scheme: str, queries: int, steps: int, table: pa.Table = table) -> Measured:
            return median([_measured(table, scheme, VALUES[:queries], window, steps) for _ in range(repeat)])

        many, few = STEPS_PER_SLIDE
        found[cp, oop] = Point(
            (of("eager", 1, many), of("eager", 1, few)),
            (of("lazy", len(VALUES), many), of("lazy", len(VALUES), few)),
            of("lazy", 1, many),
        )
        if progress is not None:
            progress(done + 1, all_runs)
    timing, _ = measure_prices(repeat, None if progress is None else lambda n, _: progress(len(grid) + n, all_runs))
    return Calibration(*solved(found), timing, machine=_machine(), release=release())


def solved(found: Mapping[tuple[float, float], Point]) -> tuple[AtomicCosts, Sizes]:
    """The atomic costs and sizes with which the model gives what was measured at the points of the grid."""
    sharing = len(VALUES)
    eager_step = float(np.median([_step(*each.eager) for each in found.values()]))
    lazy_step = float(np.median([_step(*each.several) for each in found.values()]))

    def table(cost: Callable[[Point, float], float]) -> Table:
        return Table(CP, OOP, tuple(tuple(max(cost(found[cp, oop], cp), 0.0) for oop in OOP) for cp in CP))

    def update(measured: Measured, step: float) -> float:
        return measured.update - step / measured.step_rows

    def scan(measured: Measured, step: float) -> float:
        """Of a tuple; a scan is a step, too, of which little may be left when that is taken away."""
        return max(measured.scan - step, 0.1 * measured.scan) / measured.tuples

    def order(point: Point) -> float:
        several = scan(point.several[0], lazy_step / sharing)
        return max(scan(point.lazy, lazy_step) - several, 0.0) * sharing / (sharing - 1)

    def lazy_scan(point: Point) -> float:
        return scan(point.lazy, lazy_step) - order(point)

    def eager_scan(point: Point) -> float:
        return scan(point.eager[0], eager_step)

    def read(point: Point, part: float) -> float:
        return min(lazy_scan(point), eager_scan(point) / part)

    sizes = _sizes(found)
    parts = {cp: cp * sizes.timestamp / sizes.eager_row + 1 - cp for cp in CP}  # of the rows of an eager extent
    insert = table(lambda point, cp: update(point.several[0], lazy_step))
    costs = AtomicCosts(
        read=table(lambda point, cp: read(point, parts[cp])),
        insert=insert,
        delete=0.0,
        merge=insert,
        split=0.0,
        detach=0.0,
        coalesce=table(lambda point, cp: (lazy_scan(point) - read(point, parts[cp])) / cp),
        expand=table(lambda point, cp: eager_scan(point) - read(point, parts[cp]) * parts[cp]),
        keep=table(lambda point, cp: update(point.eager[0], eager_step) - update(point.several[0], lazy_step)),
        order=table(lambda point, cp: order(point) / sizes.lazy_row),
        eager_step=eager_step,
        lazy_step=lazy_step,
    )
    return costs, sizes


def _step(many: Measured, few: Measured) -> float:
    """What a step costs beside its rows: the update cost is so much for a row and so much for a step."""
    return max((few.update - many.update) / (1 / few.step_rows - 1 / many.step_rows), 0.0)


def _sizes(found: Mapping[tuple[float, float], Point]) -> Sizes:
    """From memory = tuples * (cp * timestamp + (1 - cp) * row) at both ends of the grid."""
    low, high = CP[0], CP[-1]
    lazy_row = float(np.mean([each.lazy.memory / each.lazy.tuples for each in found.values()]))
    per_tuple = {cp: found[cp, 0.0].eager[0].memory / found[cp, 0.0].eager[0].tuples for cp in (low, high)}
    timestamp = max((per_tuple[high] * (1 - low) - per_tuple[low] * (1 - high)) / (high - low), 1e-3)
    row = max((per_tuple[low] - low * timestamp) / (1 - low), 1e-3)
    return Sizes(eager_row=row, lazy_row=lazy_row, timestamp=timestamp)


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


def _measured(table: pa.Table, scheme: str, values: Sequence[str], window: int, steps_per_slide: int) -> Measured:
    """Queries that coalesce a value column each, under one scheme; the scan is that of one of them."""
    slide_us = window * 1_000 // 8
    given: dict[str, Any] = {
        "time": "t",
        "group": "g",
        "window": f"{window} ms",
        "slide": f"{slide_us} us",
        "lateness": "500 ms",
    }
    queries = {name: Coalesce(**given, values=name) for name in values}
    schemes = dict.fromkeys(values, scheme)
    found = measure(queries, schemes, table, slide_us=slide_us, steps_per_slide=steps_per_slide, warm_slides=9)
    return replace(found, scan=found.scan / len(values))


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
        with whole_file(where) as file:
            file.write(found.to_json().encode())
    except OSError as error:
        raise InputError(Code.UNREADABLE_FILE, str(error), "choose a file that can be written") from error
    return where


def _machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} CPUs, Python {sys.version.split()[0]}, pyarrow {pa.__version__}"


def _fields(costs: AtomicCosts) -> dict[str, Any]:
    return {name: getattr(costs, name) for name in AtomicCosts.__dataclass_fields__}
