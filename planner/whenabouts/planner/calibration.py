"""Atomic costs measured on this machine with the operators themselves, and their storage.

Both schemes run over synthetic streams on a grid of (cp, oop), in large and in small steps, and the equations of
`costs.eager_lazy_cost` are solved for the atomic costs. The fixed cost of a step follows from the two step sizes, the
cost of sorting by group from one lazy query alone and several that share it. Expiry is measured alone: that in the
shared extent gives delete, that in the window of an eager query detach. The rest follows from one scheme at a time: a
lazy update without delete gives insert. What an eager update costs beyond insert, delete and detach is keep where all
tuples are in order, or makes merge cheaper than insert; what it costs more where they are not, beyond what a lazy
update does, is split. The
cheaper scan gives read, and the difference to the other one gives coalesce or expand. Each cost is a table over the
grid, so that the model reproduces the measurements there. Rows wait for the watermark, so a late row splits nothing:
split is what the order of arrival costs an eager extent, in the paper's terms.
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

from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.costs.operation_costs import AtomicCosts, Table, Terms
from whenabouts.core.costs.prices import Sizes, TimingJoinPrices
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.sources.whole_files import whole_file
from whenabouts.planner.releases import release
from whenabouts.planner.scheme_measurements import Expiry, SchemeMeasurement, measure, measure_expiry, median
from whenabouts.planner.timing_measurements import JOIN_RUNS, measure_prices

CP = (0.05, 0.35, 0.65, 0.95)
OOP = (0.0, 0.7)
STEPS_PER_SLIDE = (1, 8)
"""The tuples of a slide arrive in one step, or in this many."""
WINDOW = 64_000
"""Tuples in the measured window."""

VALUES = ("v0", "v1", "v2", "v3")
"""Value columns of the synthetic stream."""

COSTS_FILE = "WHENABOUTS_COSTS"
"""Environment variable with the path of the stored costs."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Costs of coalescing in microseconds of CPU time, sizes in bytes, prices of a timing join in nanoseconds, and the
    machine and release that they were measured with."""

    costs: AtomicCosts
    sizes: Sizes
    timing: TimingJoinPrices
    machine: str
    release: str

    def to_json(self) -> str:
        """The calibration as JSON text; `Calibration.from_json` reads it."""
        costs = {
            name: asdict(cost) if isinstance(cost, Table | Terms) else cost
            for name, cost in _fields(self.costs).items()
        }
        origin = {"format": 2, "machine": self.machine, "release": self.release, "sizes": asdict(self.sizes)}
        return json.dumps(origin | {"costs": costs, "timing": asdict(self.timing)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """Read stored costs. Raises: QueryError WA-2075 for any other text."""
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
                Code.BAD_PLAN_FILE, f"not calibrated costs: {error}", "run whenabouts calibrate"
            ) from error


class GridPoint(NamedTuple):
    """Measurements at a point of the grid: each scheme in large and in small steps; `several` lazy queries with the
    scan of one of them, and a lazy query alone. `expiry`: of a tuple, in both schemes."""

    eager: tuple[SchemeMeasurement, SchemeMeasurement]
    several: tuple[SchemeMeasurement, SchemeMeasurement]
    lazy: SchemeMeasurement
    expiry: Expiry


def calibrate(
    *, window: int = WINDOW, repeat: int = 3, progress: Callable[[int, int], None] | None = None
) -> Calibration:
    """Measure both schemes on the grid, and a timing join. Cost: a minute for each repetition.

    ``progress`` receives the number of finished points and of all points.
    """
    grid = [(cp, oop) for cp in CP for oop in OOP]
    all_runs = len(grid) + JOIN_RUNS
    found: dict[tuple[float, float], GridPoint] = {}
    for done, (cp, oop) in enumerate(grid):
        table = synthetic_stream(cp, oop, 3 * window)

        def of(scheme: str, queries: int, steps: int, table: pa.Table = table) -> SchemeMeasurement:
            return median([_measured(table, scheme, VALUES[:queries], window, steps) for _ in range(repeat)])

        many, few = STEPS_PER_SLIDE
        found[cp, oop] = GridPoint(
            (of("eager", 1, many), of("eager", 1, few)),
            (of("lazy", len(VALUES), many), of("lazy", len(VALUES), few)),
            of("lazy", 1, many),
            _median_expiry([measure_expiry(_query(VALUES[0], window), table) for _ in range(repeat)]),
        )
        if progress is not None:
            progress(done + 1, all_runs)
    timing, _ = measure_prices(repeat, None if progress is None else lambda n, _: progress(len(grid) + n, all_runs))
    return Calibration(*solved(found), timing, machine=_machine(), release=release())


def solved(found: Mapping[tuple[float, float], GridPoint]) -> tuple[AtomicCosts, Sizes]:
    """The atomic costs and sizes with which the model reproduces the measurements."""
    sharing = len(VALUES)
    eager_step = float(np.median([_step(*each.eager) for each in found.values()]))
    lazy_step = float(np.median([_step(*each.several) for each in found.values()]))

    def table(cost: Callable[[GridPoint, float], float]) -> Table:
        return Table(CP, OOP, tuple(tuple(max(cost(found[cp, oop], cp), 0.0) for oop in OOP) for cp in CP))

    def update(measured: SchemeMeasurement, step: float) -> float:
        return measured.update - step / measured.step_rows

    def scan(measured: SchemeMeasurement, step: float) -> float:
        """The scan of a tuple, without the fixed cost of the step that it is."""
        return max(measured.scan - step, 0.1 * measured.scan) / measured.tuples

    def order(point: GridPoint) -> float:
        several = scan(point.several[0], lazy_step / sharing)
        return max(scan(point.lazy, lazy_step) - several, 0.0) * sharing / (sharing - 1)

    def lazy_scan(point: GridPoint) -> float:
        return scan(point.lazy, lazy_step) - order(point)

    def eager_scan(point: GridPoint) -> float:
        return scan(point.eager[0], eager_step)

    def read(point: GridPoint, part: float) -> float:
        return min(lazy_scan(point), eager_scan(point) / part)

    delete = float(np.median([each.expiry.lazy for each in found.values()]))

    def detach(point: GridPoint, cp: float) -> float:
        return max((point.expiry.eager - (1 - cp) * delete) / cp, 0.0)

    def insert(point: GridPoint) -> float:
        return max(update(point.several[0], lazy_step) - delete, 0.0)

    def beyond(point: GridPoint, cp: float) -> float:
        """What an eager update costs besides insert, merge, delete and detach."""
        expiry = cp * detach(point, cp) + (1 - cp) * delete
        return update(point.eager[0], eager_step) - insert(point) - expiry

    in_order, late = OOP[0], OOP[-1]
    first = {cp: beyond(found[cp, in_order], cp) for cp in CP}
    cheaper = {cp: max(min(first[cp], 0.0) / cp, -insert(found[cp, in_order])) for cp in CP}
    """What merge costs less than insert: an eager extent has fewer columns than the rows that are inserted into a lazy
    one."""
    more = {cp: max(beyond(found[cp, late], cp) - cp * cheaper[cp] - max(first[cp], 0.0), 0.0) / late for cp in CP}
    """What a late tuple costs an eager extent more than a lazy one."""

    def keep(oop: float, cp: float) -> float:
        return max(beyond(found[cp, oop], cp) - cp * cheaper[cp] - oop * more[cp], 0.0)

    sizes = _sizes(found)
    parts = {cp: cp * sizes.timestamp / sizes.eager_row + 1 - cp for cp in CP}  # of a row of an eager extent
    costs = AtomicCosts(
        read=table(lambda point, cp: read(point, parts[cp])),
        insert=table(lambda point, cp: insert(point)),
        delete=delete,
        merge=table(lambda point, cp: insert(point) + cheaper[cp]),
        split=Table(CP, OOP, tuple((more[cp] / (1 - cp),) * len(OOP) for cp in CP)),
        detach=table(detach),
        coalesce=table(lambda point, cp: (lazy_scan(point) - read(point, parts[cp])) / cp),
        expand=table(lambda point, cp: eager_scan(point) - read(point, parts[cp]) * parts[cp]),
        keep=Table(CP, OOP, tuple(tuple(keep(oop, cp) for oop in OOP) for cp in CP)),
        order=table(lambda point, cp: order(point) / sizes.lazy_row),
        eager_step=eager_step,
        lazy_step=lazy_step,
    )
    return costs, sizes


def _step(many: SchemeMeasurement, few: SchemeMeasurement) -> float:
    """The fixed cost of a step: an update has a cost per row and a cost per step."""
    return max((few.update - many.update) / (1 / few.step_rows - 1 / many.step_rows), 0.0)


def _sizes(found: Mapping[tuple[float, float], GridPoint]) -> Sizes:
    """Solves memory = tuples * (cp * timestamp + (1 - cp) * row) at both ends of the grid."""
    low, high = CP[0], CP[-1]
    lazy_row = float(np.mean([each.lazy.memory / each.lazy.tuples for each in found.values()]))
    per_tuple = {cp: found[cp, 0.0].eager[0].memory / found[cp, 0.0].eager[0].tuples for cp in (low, high)}
    timestamp = max((per_tuple[high] * (1 - low) - per_tuple[low] * (1 - high)) / (high - low), 1e-3)
    row = max((per_tuple[low] - low * timestamp) / (1 - low), 1e-3)
    return Sizes(eager_row=row, lazy_row=lazy_row, timestamp=timestamp)


def synthetic_stream(cp: float, oop: float, size: int, groups: int = 50, seed: int = 7) -> pa.Table:
    """A stream of tuples a millisecond apart. In each of four columns they coalesce with probability ``cp``; with
    probability of about ``oop`` they arrive after a later tuple."""
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
    """The calibrated sizes for a stream of this schema; a query needs `columns` (group and values).

    ``text``: mean bytes of columns of variable width. The overhead of a tuple is the measured one.
    """
    own = {name: synthetic_stream(0.5, 0.0, 1).schema.field(name) for name in ("t", "g", *VALUES)}
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


def _measured(
    table: pa.Table, scheme: str, values: Sequence[str], window: int, steps_per_slide: int
) -> SchemeMeasurement:
    """Measure queries that coalesce one value column each, under one scheme; the scan is that of one query."""
    queries = {name: _query(name, window) for name in values}
    schemes = dict.fromkeys(values, scheme)
    slide_us = _slide_us(window)
    found = measure(queries, schemes, table, slide_us=slide_us, steps_per_slide=steps_per_slide, warm_slides=9)
    return replace(found, scan=found.scan / len(values))


def _query(value: str, window: int) -> Coalesce:
    """A query over a synthetic stream, whose tuples are a millisecond apart."""
    slide = f"{_slide_us(window)} us"
    return Coalesce(time="t", group="g", values=value, window=f"{window} ms", slide=slide, lateness="500 ms")


def _slide_us(window: int) -> int:
    return window * 1_000 // 8


def _median_expiry(found: Sequence[Expiry]) -> Expiry:
    return Expiry(*(float(np.median(each)) for each in zip(*found, strict=True)))


def costs_file() -> Path:
    """The path of the stored costs: ``WHENABOUTS_COSTS``, else in the user's configuration."""
    given = os.environ.get(COSTS_FILE)
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(given) if given else Path(home) / "whenabouts" / "costs.json"


def stored_calibration() -> Calibration | None:
    """The stored costs; None if there are none.

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
    """Store calibrated costs and return the path. Raises: InputError WA-1008 if it cannot be written."""
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
