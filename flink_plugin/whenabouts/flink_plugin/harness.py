"""Flink under the conformance suite: real jobs over files, in this machine."""

from __future__ import annotations

import gc
import os
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pyarrow as pa
from pyflink.common import Encoder, Types
from pyflink.datastream import DataStream, MapFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, RollingPolicy

from whenabouts.core.harness import Capabilities, Variant
from whenabouts.core.hosting.host import OUTPUT, REJECTED, Hosting, read_counts
from whenabouts.core.local import Outcome
from whenabouts.core.runtime.event_reader import rejects_schema
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.state.segment_codec import decode
from whenabouts.flink_plugin.api import hosted
from whenabouts.flink_plugin.blocks import Blocks
from whenabouts.flink_plugin.file_source import split_stream
from whenabouts.flink_plugin.mini_cluster import PROCESS, THREAD, local_environment

CHECKPOINT_MS = 10
"""Flink takes no shorter interval."""


class FlinkHarness:
    """A local Flink, its Python in threads of the JVM: the mode that starts quickest."""

    name = "flink"
    mode = THREAD
    options: ClassVar[Mapping[str, str]] = {}
    capabilities = Capabilities()

    def start(self) -> None:
        """Start the JVM; each job starts its own small cluster in it.

        What Flink's client imports and leaves open warns of itself, which is no fault of any law.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            local_environment(1, mode=self.mode)
            share_server()
            gc.collect()

    def stop(self) -> None:
        """Nothing to stop: the JVM goes with this process."""

    def open(self, query: Query, variant: Variant) -> FlinkRun:
        """Prepare a run of `query`."""
        return FlinkRun(query, variant, self.mode, self.options)


class FlinkProcessHarness(FlinkHarness):
    """A local Flink, its Python in processes beside the JVM, as on most clusters."""

    name = "flink, processes"
    mode = PROCESS


class FlinkRun:
    """One query being run: a job whose source names the steps, and whose readers read file n of their input in step n.

    As a stream, the source waits for a checkpoint after each step, so that steps are apart as micro-batches are.
    `crashed` tells afterwards whether the engine was made to lose its work.
    """

    crashed = False

    def __init__(self, query: Query, variant: Variant, mode: str, options: Mapping[str, str]) -> None:
        self._query, self._variant, self._mode, self._options = query, variant, mode, options
        self._files: dict[str, Sequence[pa.Table]] = {}

    def source(self, input: str, files: Sequence[pa.Table]) -> None:
        """Give an input its files, in the order in which they arrive."""
        self._files[input] = files

    def collect(self) -> Outcome:
        """Run to the end of the input; everything as Arrow tables in the operator's schema."""
        with TemporaryDirectory(prefix="whenabouts-") as folder:
            for name, tables in self._files.items():
                _write(Path(folder) / name, tables)
            try:
                return self._run(Path(folder))
            finally:
                self.crashed = Path(folder, "crashed").exists()
                forget_workers()

    def _run(self, folder: Path) -> Outcome:
        if self._variant.restarted_as is not None:
            return self._over_jobs(folder, self._variant.restarted_as)
        hosting, tagged = self._job(folder, self._query, self._environment())
        with tagged.map(_plain, Types.PICKLED_BYTE_ARRAY()).execute_and_collect() as rows:
            return _outcome(hosting, rows)

    def _over_jobs(self, folder: Path, other: Query) -> Outcome:
        """The crash ends a job; one of another query goes on from its last checkpoint, into the same files."""
        for query in (self._query, other):
            done = max(folder.glob("checkpoints/*/chk-*/_metadata"), key=os.path.getmtime, default=None)
            recovery = {} if done is None else {"execution__state_recovery__path": done.parent.as_uri()}
            env = self._environment(
                restart_strategy__type="none",
                execution__checkpointing__storage="filesystem",
                execution__checkpointing__dir=(folder / "checkpoints").as_uri(),
                execution__checkpointing__externalized_checkpoint_retention="RETAIN_ON_CANCELLATION",
                **recovery,
            )
            hosting, tagged = self._job(folder, query, env)
            sink = FileSink.for_row_format(str(folder / "out"), Encoder.simple_string_encoder())
            sink = sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()
            tagged.map(_line, Types.STRING()).uid("lines").sink_to(sink).uid("sink")
            try:
                env.execute()
            except Exception:  # Py4J's, of Java's
                if query is other or not (folder / "crashed").exists():
                    raise
        return _outcome(hosting, _finished(folder / "out"))

    def _job(self, folder: Path, query: Query, env: StreamExecutionEnvironment) -> tuple[Hosting, DataStream]:
        """A job of the query over the files, and the tagged rows that it gives."""
        pace = 1 if self._variant.streaming else None
        steps = list(map(str, range(max(map(len, self._files.values())))))
        numbers = split_stream(env, steps, splits_per_checkpoint=pace, name="steps")
        files = [(str(folder / name), self._files[name][0].schema) for name in query.inputs]
        sources = [Blocks(numbers, schema, _ReadStep(path)) for path, schema in files]
        result = hosted(query, sources, buckets=self._variant.parallelism)
        tagged = result.operator
        if self._variant.restart_after is not None:
            tagged = tagged.map(_CrashOnce(folder, self._variant.restart_after), tagged.get_type())
        return result.hosting, tagged

    def _environment(self, **more: str) -> StreamExecutionEnvironment:
        streaming = self._variant.streaming
        conf = {
            "execution__checkpointing__interval": f"{CHECKPOINT_MS} ms",
            "execution__checkpointing__storage": "jobmanager",
            "pipeline__auto_watermark_interval": "1 ms",
            "restart_strategy__type": "fixed-delay",
            "restart_strategy__fixed_delay__attempts": "1" if self._variant.restart_after is not None else "0",
            "restart_strategy__fixed_delay__delay": "0 ms",
        }
        parallelism = min(self._variant.parallelism, 2)
        conf = conf | more if streaming else {}
        return local_environment(parallelism, streaming=streaming, mode=self._mode, **{**conf, **self._options})


def share_server() -> None:
    """Have all jobs of this process share one server of workers.

    PyFlink starts one for each job in this machine, and keeps all of them: its class of servers means to have a single
    instance, and begins that one anew each time.
    """
    pool = import_module("pyflink.fn_execution.beam.beam_worker_pool_service").BeamFnLoopbackWorkerPoolServicer
    pool()
    pool.__init__ = lambda _: None


def forget_workers() -> None:
    """Put away what jobs in process mode have left in this process, where their workers were; none may run any more.

    That are a dozen threads of each, which wake up every second to send what nobody gives them, and the word that no
    JVM may be started, which goes on to every process that is started from here.
    """
    workers = sys.modules.get("pyflink.fn_execution.utils.operation_utils")  # there if any worker was
    if workers is not None:
        for thread in threading.enumerate():
            if isinstance(thread, workers.PeriodicThread):
                thread.cancel()
    os.environ.pop("PYFLINK_GATEWAY_DISABLED", None)


def _write(folder: Path, tables: Sequence[pa.Table]) -> None:
    folder.mkdir()
    for number, table in enumerate(tables):
        with pa.OSFile(str(folder / str(number)), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)


@dataclass(frozen=True)
class _ReadStep:
    folder: str

    def __call__(self, number: str) -> Iterator[pa.RecordBatch]:
        path = os.path.join(self.folder, number)
        Path(self.folder, f"begun-{number}").touch()
        if os.path.exists(path):
            with pa.OSFile(path, "rb") as file:
                yield from pa.ipc.open_file(file).read_all().combine_chunks().to_batches()


class _CrashOnce(MapFunction):
    """Fails, once, on the first thing that the operator gives in step `step`: its work is done and not committed."""

    def __init__(self, folder: Path, step: int) -> None:
        self._folder, self._step = str(folder), step

    def map(self, value: Any) -> Any:
        """The element itself."""
        crashed = Path(self._folder, "crashed")
        if not crashed.exists() and list(Path(self._folder).glob(f"*/begun-{self._step}")):
            with suppress(FileExistsError):  # another task was as fast
                crashed.touch(exist_ok=False)
                raise RuntimeError(f"step {self._step} is made to fail")
        return value


def _plain(tagged: Any) -> tuple[int, bytes]:
    return tagged[0], bytes(tagged[1])


def _line(tagged: Any) -> str:
    return f"{tagged[0]} {bytes(tagged[1]).hex()}"


def _finished(folder: Path) -> Iterator[tuple[int, bytes]]:
    """The tagged rows in files of a sink that are committed."""
    for part in folder.glob("*/part-*"):
        if ".inprogress" not in part.name:
            for line in part.read_text(encoding="utf-8").splitlines():
                tag, _, blob = line.partition(" ")
                yield int(tag), bytes.fromhex(blob)


def _outcome(hosting: Hosting, tagged: Iterable[tuple[int, bytes]]) -> Outcome:
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
