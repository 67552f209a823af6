"""A sliding window on a stream, one slide per step: does a step's cost follow the changed tuples, or the window?

    python benchmarks/sliding_stream.py [--groups 100] [--steps 40] [--changed 0.3] [--only NAME ...]

Readings of each group every 30 s, a slide of 5 minutes, windows of 1 hour to 5 days, or of as many rows. The window is
filled in one step; then each step processes the ten readings of each group of one slide and emits the extent that is
final: the same number of tuples enter and leave at each slide, while the window holds up to 120 times as many. `in
memory`: the process has the window of the previous step; `from state`: it reads the window again, as after a restart.
CPU time of a step; the state is a dict. The results of both ways are compared. All results are in
`benchmarks/results/sliding_stream.json`.
"""

from __future__ import annotations

import time
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from measuring import SEPARATOR, Suite

from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.runtime.protocol import Arrival, Operator, Query
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.state.window_cache import window_cache
from whenabouts.core.temporal_queries.aggregate_query import TemporalAggregate
from whenabouts.core.temporal_queries.join_query import TemporalJoin

SECOND = 1_000_000
EVERY, SLIDE = 30 * SECOND, 300 * SECOND
HOURS = (1, 6, 24, 120)


def near(left: pa.Table, right: pa.Table) -> Any:
    """One of the next three groups: few pairs, so that the search for them dominates the cost."""
    apart = pc.subtract(right["g"], left["g"])
    return pc.and_(pc.greater(apart, 0), pc.less_equal(apart, 3))


def queries(hours: int, groups: int, *, filling: bool = False) -> dict[str, Query]:
    """The measured queries; `filling`: the same with a slide so long that there is little output while a window is
    filled."""
    slide = f"{hours * 3600 // 16}s" if filling else "5m"
    columns: dict[str, Any] = {"time": "t", "group": "g", "values": "v"}
    common = columns | {"window": f"{hours}h", "slide": slide}
    of_each = {"rows": hours * 120, "slide": hours * 120 if filling else 10}
    of_all = columns | {name: size * groups for name, size in of_each.items()}
    three = {name: name for name in ("max", "sum", "count")}
    return {
        "max, sum, count": TemporalAggregate(**common, aggregates=three),
        "median": TemporalAggregate(**common, aggregates={"median": "median"}),
        "coalesce": Coalesce(**common),
        "join": TemporalJoin(**common, on="v", matches=near, min_duration="1m"),
        "max, sum, count of rows": TemporalAggregate(**of_all, aggregates=three),
        "max, sum, count of rows of each group": TemporalAggregate(
            **columns, **of_each, per_group=True, aggregates=three
        ),
        "join of rows": TemporalJoin(**of_all, on="v", matches=near, min_duration="1m"),
        "max, sum, count, lazy": TemporalAggregate(**common, aggregates=three, scheme="lazy"),
    }


def readings(groups: int, first_us: int, last_us: int, changed: float) -> pa.Table:
    """All groups' readings in `[first_us, last_us)`, in order of time."""
    at = np.arange(first_us, last_us, EVERY)
    rng = np.random.default_rng(first_us // EVERY)
    value = np.cumsum(rng.random((len(at), groups)) < changed, axis=0) % 7
    return pa.table({"t": np.repeat(at, groups), "g": np.tile(np.arange(groups), len(at)), "v": value.reshape(-1)})


def steps_of(name: str, groups: int, hours: int, steps: int, changed: float, remembers: bool) -> list[Any]:
    """CPU-seconds of each step that makes one slide final, the output rows, and their sums."""
    start = hours * 3600 * SECOND
    schema = readings(1, 0, EVERY, changed).schema
    store = DictStore()

    def step(operator: Operator, first_us: int, last_us: int) -> tuple[float, int, int]:
        table = readings(groups, first_us, last_us, changed)
        blocks = [Arrival(r.input, r.read(b).block) for r in operator.readers for b in table.to_batches()]
        if not remembers:
            window_cache().clear()
        begun = time.process_time()
        operator.step(store, blocks, first_us)
        found = operator.step(store, [], last_us)
        spent = time.process_time() - begun
        given = pa.Table.from_batches(found.output, operator.output_schema).combine_chunks()
        numbers = [column for column in given.columns if not pa.types.is_string(column.type)]
        return spent, given.num_rows, sum(int(pc.sum(column).as_py() or 0) for column in numbers)

    # The state does not depend on the slide.
    asked = (queries(hours, groups, filling=filling)[name] for filling in (True, False))
    coarse, operator = (query.operator([schema] * len(query.inputs), streaming=False) for query in asked)
    step(coarse, 0, start + 1)
    step(operator, start + 1, start + 1 + SLIDE)  # the first one reads the state
    return [step(operator, start + 1 + k * SLIDE, start + 1 + (k + 1) * SLIDE) for k in range(1, steps + 1)]


@click.command()
@click.option("--groups", default=100, show_default=True)
@click.option("--steps", default=40, show_default=True)
@click.option("--changed", default=0.3, show_default=True, help="How often a reading differs from the one before.")
@click.option("--only", multiple=True, help="Of these queries only.")
@click.option("--hours", type=int, multiple=True, default=HOURS, show_default=True, help="Of these windows only.")
def main(groups: int, steps: int, changed: float, only: tuple[str, ...], hours: tuple[int, ...]) -> None:
    """Print a table: milliseconds per step by window."""
    pa.set_cpu_count(1)
    suite = Suite("sliding_stream", steps)
    click.echo(f"{groups} groups, {groups * 10:,} readings a slide; CPU-ms a step, median of {steps}")
    click.echo("| query | window | tuples held | rows a slide | in memory | from state |")
    click.echo("| --- | --- | --- | --- | --- | --- |")
    for name in only or queries(1, groups):
        for width in hours:
            memory = steps_of(name, groups, width, steps, changed, remembers=True)
            state = steps_of(name, groups, width, max(steps // 4, 3), changed, remembers=False)
            given, again = ([rest for _, *rest in each] for each in (memory, state))
            if given[: len(again)] != again:
                raise click.ClickException(f"{name} over {width} h differs when it is read from state")
            rows, held = given[-1][0], width * 120 * groups
            for way, each in (("in memory", memory), ("from state", state)):
                spent = [cpu for cpu, *_ in each]
                suite.record(f"{name}, {width} h{SEPARATOR}{way}", spent, tuples_held=held, rows_out=rows)
            cells = " | ".join(f"{np.median([cpu for cpu, *_ in each]) * 1e3:.2f}" for each in (memory, state))
            click.echo(f"| {name} | {width} h | {held:,} | {rows:,} | {cells} |")
    suite.save()


if __name__ == "__main__":
    main()
