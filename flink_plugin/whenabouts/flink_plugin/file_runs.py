"""Queries over files on a local Flink, in batch or as a stream.

A job's source emits step numbers, and each input's reader reads file n in step n. As a stream the source waits for a
checkpoint after each step, so that steps are separate, like micro-batches. Blocks are passed as Arrow bytes, so that
every column keeps its type.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyflink.common import Types
from pyflink.datastream import DataStream, ProcessFunction, StreamExecutionEnvironment

from whenabouts.core.hosting.element_watermark import ElementWatermark
from whenabouts.core.hosting.file_runs import FileEngine, FileInput, OutcomeBatches
from whenabouts.core.hosting.host import COUNTS, OUTPUT, REJECTED, Hosting, read_counts
from whenabouts.core.hosting.stream_progress import ProgressCounter, Watch
from whenabouts.core.local import Outcome
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.runtime.rejects import rejects_schema
from whenabouts.core.state.segment_codec import decode
from whenabouts.flink_plugin.blocks import Blocks
from whenabouts.flink_plugin.dataflow import BUCKETS, hosted
from whenabouts.flink_plugin.file_source import split_stream
from whenabouts.flink_plugin.mini_cluster import THREAD, local_environment, start_jvm

CHECKPOINT_MS = 10
"""The shortest interval that Flink accepts."""

MOST_SLOTS = 2


def run_files(
    query: Query,
    inputs: Sequence[FileInput],
    *,
    streaming: bool,
    progress: Watch | None = None,
) -> OutcomeBatches:
    """As `whenabouts.core.hosting.file_runs.RunFiles`; all results are held in memory."""
    with TemporaryDirectory(prefix="whenabouts-") as name:
        folder = Path(name)
        for source in inputs:
            stage(folder / source.name, source.tables)
        env = environment(BUCKETS, streaming=streaming, mode=THREAD)
        hosting, tagged = job(env, query, inputs, folder, streaming=streaming, buckets=BUCKETS)
        outcome = collected(hosting, tagged, watch=progress if streaming else None)
    return OutcomeBatches.of(outcome.output, outcome.rejects, outcome.metrics)


def start(_: int | None) -> None:
    """Start the JVM."""
    start_jvm()


FILE_ENGINE = FileEngine(run_files, start=start)


@dataclass(frozen=True)
class ReadStep:
    """Reads the file of a step, if the input has one."""

    folder: str

    def __call__(self, number: str) -> Iterator[pa.RecordBatch]:
        """The rows of file `number`."""
        path = os.path.join(self.folder, number)
        if os.path.exists(path):
            with pa.OSFile(path, "rb") as file:
                yield from pa.ipc.open_file(file).read_all().combine_chunks().to_batches()


def stage(folder: Path, tables: Sequence[pa.Table]) -> None:
    """Write an input's tables to where `ReadStep` reads them."""
    folder.mkdir()
    for number, table in enumerate(tables):
        with pa.OSFile(str(folder / str(number)), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)


def environment(buckets: int, *, streaming: bool, mode: str, **options: str) -> StreamExecutionEnvironment:
    """A local Flink for `job`, with checkpoints and without restarts; `options` as for `local_environment`."""
    conf = {
        "execution__checkpointing__interval": f"{CHECKPOINT_MS} ms",
        "execution__checkpointing__storage": "jobmanager",
        "pipeline__auto_watermark_interval": "1 ms",
        "restart_strategy__type": "fixed-delay",
        "restart_strategy__fixed_delay__attempts": "0",
        "restart_strategy__fixed_delay__delay": "0 ms",
    }
    conf = {**(conf if streaming else {}), **options}
    return local_environment(min(buckets, MOST_SLOTS), streaming=streaming, mode=mode, **conf)


def job(
    env: StreamExecutionEnvironment,
    query: Query,
    inputs: Sequence[FileInput],
    folder: Path,
    *,
    streaming: bool,
    buckets: int,
    reader: type[ReadStep] = ReadStep,
) -> tuple[Hosting, DataStream]:
    """The job of a query over inputs that are staged in `folder`, and its tagged rows."""
    steps = list(map(str, range(max(len(source.tables) for source in inputs))))
    numbers = split_stream(env, steps, splits_per_checkpoint=1 if streaming else None, name="steps")
    sources = [Blocks(numbers, source.schema, reader(str(folder / source.name))) for source in inputs]
    result = hosted(query, sources, buckets=buckets)
    return result.hosting, result.operator


def collected(hosting: Hosting, tagged: DataStream, *, watch: Watch | None = None) -> Outcome:
    """Run the job of tagged rows, and collect them. `watch` is called when counts arrive: at each checkpoint."""
    plain = Types.PICKLED_BYTE_ARRAY()
    if watch is None:
        with tagged.map(_plain, plain).execute_and_collect() as rows:
            return outcome_of(hosting, rows)
    with tagged.process(_WithWatermark(), plain).execute_and_collect() as rows:
        return outcome_of(hosting, _watched(rows, watch))


def _plain(tagged: Any) -> tuple[int, bytes]:
    return tagged[0], bytes(tagged[1])


class _WithWatermark(ProcessFunction):
    """Tagged rows as the client reads them, with the watermark that has passed them, in Flink's milliseconds."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[tuple[int, bytes, int]]:
        """One row."""
        timers: Any = ctx.timer_service()
        if timers is ctx:  # in thread mode, where PyFlink then asks its Java object for what only its timers know
            watermark_ms = timers._j_context.timerService().currentWatermark()
        else:
            watermark_ms = timers.current_watermark()
        yield (*_plain(value), watermark_ms)


def _watched(rows: Iterable[tuple[int, bytes, int]], watch: Watch) -> Iterator[tuple[int, bytes]]:
    counter = ProgressCounter()
    for tag, blob, watermark_ms in rows:
        if tag == COUNTS:
            counter.add(read_counts([blob]))
            watch(counter.now(ElementWatermark(watermark_ms).us))
        yield tag, blob


def outcome_of(hosting: Hosting, tagged: Iterable[tuple[int, bytes]]) -> Outcome:
    """Tagged rows as tables."""
    operator = hosting.operator()
    parts: dict[int, list[bytes]] = {}
    for tag, blob in tagged:
        parts.setdefault(tag, []).append(blob)
    rejects = rejects_schema([reader.schema for reader in operator.readers])
    counted = [blob for tag, blobs in parts.items() if tag not in (OUTPUT, REJECTED) for blob in blobs]
    return Outcome(
        pa.Table.from_batches(
            [decode(b, operator.output_schema) for b in parts.get(OUTPUT, [])], operator.output_schema
        ),
        pa.Table.from_batches([decode(b, rejects) for b in parts.get(REJECTED, [])], rejects),
        read_counts(counted),
    )
