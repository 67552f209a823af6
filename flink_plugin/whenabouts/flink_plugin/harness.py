"""Flink as an engine of the conformance suite: real jobs over files, on this machine."""

from __future__ import annotations

import gc
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pyarrow as pa
from pyflink.common import Encoder, Types
from pyflink.datastream import DataStream, MapFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, RollingPolicy

from whenabouts.core.harness import Capabilities, Variant
from whenabouts.core.hosting.file_runs import FileInput
from whenabouts.core.hosting.host import Hosting
from whenabouts.core.local import Outcome
from whenabouts.core.runtime.protocol import Query
from whenabouts.flink_plugin.file_runs import ReadStep, collected, environment, job, outcome_of, stage
from whenabouts.flink_plugin.mini_cluster import PROCESS, THREAD, local_environment


class FlinkHarness:
    """A local Flink with Python in threads of the JVM, the mode that starts fastest."""

    name = "flink"
    mode = THREAD
    options: ClassVar[Mapping[str, str]] = {}
    capabilities = Capabilities()

    def start(self) -> None:
        """Start the JVM; each job starts its own small cluster in it.

        Warnings of the modules that Flink's client imports are ignored: they break no law.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            local_environment(1, mode=self.mode)
            share_server()
            gc.collect()

    def stop(self) -> None:
        """Nothing to stop: the JVM ends with this process."""

    def open(self, query: Query, variant: Variant) -> FlinkRun:
        """Prepare a run of `query`."""
        return FlinkRun(query, variant, self.mode, self.options)


class FlinkProcessHarness(FlinkHarness):
    """A local Flink with Python in processes beside the JVM, as on most clusters."""

    name = "flink, processes"
    mode = PROCESS


class FlinkRun:
    """One query being run: a job whose source names the steps, and whose readers read file n of their input in step n.

    As a stream, the source waits for a checkpoint after each step, so that steps are separate, like micro-batches.
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
        before = dict(os.environ)
        with TemporaryDirectory(prefix="whenabouts-") as folder:
            for name, tables in self._files.items():
                stage(Path(folder) / name, tables)
            try:
                return self._run(Path(folder))
            finally:
                self.crashed = Path(folder, "crashed").exists()
                forget_workers(before)

    def _run(self, folder: Path) -> Outcome:
        if self._variant.restarted_as is not None:
            return self._over_jobs(folder, self._variant.restarted_as)
        hosting, tagged = self._job(folder, self._query, self._environment())
        return collected(hosting, tagged)

    def _over_jobs(self, folder: Path, other: Query) -> Outcome:
        """The crash ends a job; a job of another query continues from its last checkpoint, into the same files."""
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
            except Exception:  # Py4J's wrapper of Java's
                if query is other or not (folder / "crashed").exists():
                    raise
        return outcome_of(hosting, _finished(folder / "out"))

    def _job(self, folder: Path, query: Query, env: StreamExecutionEnvironment) -> tuple[Hosting, DataStream]:
        """A job of the query over the files, and its tagged rows."""
        inputs = [FileInput(name, self._files[name][0].schema, self._files[name]) for name in query.inputs]
        streaming, buckets = self._variant.streaming, self._variant.parallelism
        hosting, tagged = job(env, query, inputs, folder, streaming=streaming, buckets=buckets, reader=_NotedReadStep)
        if self._variant.restart_after is not None:
            tagged = tagged.map(_CrashOnce(folder, self._variant.restart_after), tagged.get_type())
        return hosting, tagged

    def _environment(self, **more: str) -> StreamExecutionEnvironment:
        variant = self._variant
        restarts = {"restart_strategy__fixed_delay__attempts": "1"} if variant.restart_after is not None else {}
        streaming_only = restarts | more if variant.streaming else {}
        conf = {**streaming_only, **self._options}
        return environment(variant.parallelism, streaming=variant.streaming, mode=self._mode, **conf)


def share_server() -> None:
    """Make all jobs of this process share one server of workers.

    PyFlink starts one for each local job and keeps all of them: its server class is meant to be a singleton, but
    initialises that single instance again each time.
    """
    pool = import_module("pyflink.fn_execution.beam.beam_worker_pool_service").BeamFnLoopbackWorkerPoolServicer
    pool()
    pool.__init__ = lambda _: None


def forget_workers(before: Mapping[str, str]) -> None:
    """Remove what finished jobs in process mode have left in this process, where their workers were. No job may run.

    These are a dozen threads of each job, which wake up every second without work, and environment variables, which
    every process started from here would inherit: one forbids to start a JVM, another makes the workers of any Flink
    run in this process. `before`: the environment before the jobs.
    """
    workers = sys.modules.get("pyflink.fn_execution.utils.operation_utils")  # set if there was a worker
    if workers is not None:
        for thread in threading.enumerate():
            if isinstance(thread, workers.PeriodicThread):
                thread.cancel()
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


class _NotedReadStep(ReadStep):
    """Writes a file for each step that has begun, for `_CrashOnce`."""

    def __call__(self, number: str) -> Iterator[pa.RecordBatch]:
        Path(self.folder, f"begun-{number}").touch()
        return super().__call__(number)


class _CrashOnce(MapFunction):
    """Fails once, on the operator's first output in step `step`: its work is done and not committed."""

    def __init__(self, folder: Path, step: int) -> None:
        self._folder, self._step = str(folder), step

    def map(self, value: Any) -> Any:
        """The element itself."""
        crashed = Path(self._folder, "crashed")
        if not crashed.exists() and list(Path(self._folder).glob(f"*/begun-{self._step}")):
            with suppress(FileExistsError):  # another task was faster
                crashed.touch(exist_ok=False)
                raise RuntimeError(f"step {self._step} is made to fail")
        return value


def _line(tagged: Any) -> str:
    return f"{tagged[0]} {bytes(tagged[1]).hex()}"


def _finished(folder: Path) -> Iterator[tuple[int, bytes]]:
    """The tagged rows in files of a sink that are committed."""
    for part in folder.glob("*/part-*"):
        if ".inprogress" not in part.name:
            for line in part.read_text(encoding="utf-8").splitlines():
                tag, _, blob = line.partition(" ")
                yield int(tag), bytes.fromhex(blob)
