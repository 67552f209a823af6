"""Jobs in process mode, killed when PyFlink has left timers out of a checkpoint: the answer is that of batch.

A checkpoint ends the open bundle and has none of the timers that the bundle has set. The source gives its next step
when a checkpoint has completed, so that a step that fails does so right after such a checkpoint and before the next.
No element reaches the operator between that kill and the answer: a gate before all packers holds it back.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
from pyflink.common import Row, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import DataStream, FlatMapFunction, ProcessFunction
from pyflink.table import StreamTableEnvironment, Table
from pyflink.table.expressions import lit

import whenabouts
from whenabouts.core import Interval, Lateness, within
from whenabouts.core.hosting.worker_archive import parts
from whenabouts.core.local import timing_join as local_join
from whenabouts.flink_plugin import api, timing_join
from whenabouts.flink_plugin.blocks import Blocks
from whenabouts.flink_plugin.file_source import split_stream
from whenabouts.flink_plugin.mini_cluster import PROCESS, local_environment
from whenabouts.flink_plugin.row_streams import rows_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SECOND = 1_000_000
STEP_S = 100
"""Event time between two steps."""
KEYS = 24
PATIENCE_S = 300
PAUSE_MS = 150
"""Time between two checkpoints: rows that are released by the first leave the source before the second, which ends
their bundle. No bundle gets so old that it ends by itself."""
TIME = Interval("t_min", "t_max", max_uncertainty="1s")
JOIN: dict[str, Any] = {
    "left_time": TIME, "right_time": TIME, "on": "k", "condition": within("3s", confidence=0.5),
    "lateness": Lateness("1s", "1s"),
}  # fmt: skip
SCHEMA = pa.schema({"t_min": pa.int64(), "t_max": pa.int64(), "k": pa.int64(), "id": pa.int64()})


@dataclass(frozen=True)
class Scene:
    """A query, and the event that its answer waits for after a kill.

    `every`: how many steps apart rows come (0: in the first step only); in all other steps the job is killed.
    `waits`: a step in which it was killed continues after the answer to the earlier rows has come, in processing time.
    `event_times`: of the inputs, so that a killed step brings a watermark and no element.
    """

    join: dict[str, Any]
    every: int
    waits: bool = False
    event_times: bool = False
    form: str = "blocks"
    parallelism: int = 1
    conf: tuple[tuple[str, str], ...] = ()

    def has_rows(self, step: int) -> bool:
        """Whether rows come in a step; otherwise the job is killed in it."""
        return step % self.every == 0 if self.every else step == 0

    def steps(self, kills: int) -> int:
        """The number of steps."""
        return kills * (self.every or 1) + 1


def _rows(side: int, step: int) -> pa.Table:
    """Of every key one, a second apart between the sides; half of the left ones are without a partner."""
    keys = range(KEYS)
    t = [(step * STEP_S + 10 + side) * SECOND + (30 * SECOND if side and key % 2 else 0) + key for key in keys]
    ids = [step * 1000 + key for key in keys]
    return pa.table({"t_min": t, "t_max": t, "k": list(keys), "id": ids}, schema=SCHEMA)


@dataclass(frozen=True)
class _Read:
    side: int

    def __call__(self, step: str) -> Iterator[pa.RecordBatch]:
        yield from _rows(self.side, int(step)).to_batches()


class _Rows(FlatMapFunction):
    def __init__(self, side: int) -> None:
        self._side = side

    def flat_map(self, value: str) -> Iterator[Row]:
        for row in _rows(self._side, int(value)).to_pylist():
            yield Row(*row.values())


class _Gate(ProcessFunction):
    """Forwards steps with rows, and fails once in each of the others: a checkpoint has just completed."""

    def __init__(self, folder: Path, scene: Scene) -> None:
        self._folder, self._scene, self._client = str(folder), scene, os.getpid()

    def process_element(self, value: str, ctx: ProcessFunction.Context) -> Iterator[str]:
        step = int(value)
        if self._scene.has_rows(step):
            yield value
            return
        killed = Path(self._folder, f"killed-{step}")
        if not killed.exists():
            killed.touch()
            if os.getpid() != self._client:  # in a worker, which has a process of its own
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError(f"killed in step {step}")
        deadline = time.monotonic() + PATIENCE_S
        while self._scene.waits and not Path(self._folder, f"came-{step - 1}").exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the answer to step {step - 1} does not come")
            time.sleep(0.01)


class _Tap(ProcessFunction):
    """Each row as text, preceded by whether it is late; records which answers have come.

    A row without partner is emitted before the watermark that makes it final: its time is not below the watermark that
    has arrived here.
    """

    def __init__(self, folder: Path, at: int, timed: bool) -> None:
        self._folder, self._at, self._timed = str(folder), at, timed

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[str]:
        *row, clock = value
        Path(self._folder, f"came-{row[self._at] // 1000}").touch()
        late = self._timed and ctx.timer_service().current_watermark() >= clock.to_epoch_milli()
        yield f"{'late ' * late}{row}"


class _StepTime(TimestampAssigner):
    def extract_timestamp(self, value: str, record_timestamp: int) -> int:
        return int(value) * STEP_S * 1000


def _side(steps: DataStream, side: int, form: str) -> Blocks | DataStream | Table:
    if form == "blocks":
        return Blocks(steps, SCHEMA, _Read(side))
    names, types = SCHEMA.names, [Types.LONG()] * len(SCHEMA)
    rows = steps.flat_map(_Rows(side), Types.ROW_NAMED(names, types)).set_parallelism(1)
    if form == "rows":
        return rows
    return StreamTableEnvironment.create(rows.get_execution_environment()).from_data_stream(rows)


def _out(pairs: Blocks | DataStream | Table) -> DataStream:
    if isinstance(pairs, Table):
        return pairs._t_env.to_data_stream(pairs.add_or_replace_columns(lit(0).alias("event_time")))
    return rows_of(pairs) if isinstance(pairs, Blocks) else pairs


def _job(folder: Path, scene: Scene, kills: int, **more: str) -> Counter[str]:
    """The output of the killed job. `more`: options of Flink."""
    conf = {
        "execution__checkpointing__interval": f"{PAUSE_MS} ms",
        "execution__checkpointing__min_pause": f"{PAUSE_MS} ms",
        "execution__checkpointing__storage": "jobmanager",
        "pipeline__auto_watermark_interval": "10 ms",
        "restart_strategy__type": "fixed-delay",
        "restart_strategy__fixed_delay__attempts": str(kills),
        "restart_strategy__fixed_delay__delay": "0 ms",
        "python__fn_execution__bundle__size": "1000",
        "python__fn_execution__bundle__time": "5000",
    }
    env = local_environment(scene.parallelism, mode=PROCESS, **{**conf, **dict(scene.conf), **more})
    steps = split_stream(env, [str(n) for n in range(scene.steps(kills))], splits_per_checkpoint=1, name="steps")
    if scene.event_times:
        clocked = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_StepTime())
        steps = steps.assign_timestamps_and_watermarks(clocked)
    steps = steps.process(_Gate(folder, scene), Types.STRING()).set_parallelism(1)
    sides = [_side(steps, side, scene.form) for side in range(2)]
    watermarks = "source" if scene.event_times else "lateness"
    pairs = timing_join(*sides, **scene.join, buckets=8, watermarks=watermarks)
    names = api.result_of(pairs).output.schema.names
    tap = _Tap(folder, names[:-1].index("id_left"), scene.event_times)
    tapped = _out(pairs).process(tap, Types.STRING())
    if scene.event_times:  # not in the operator's task, so that it sees the forwarded watermark
        tapped = tapped.set_parallelism(2)
    with tapped.execute_and_collect() as rows:
        found = Counter(rows)
    assert len(list(folder.glob("killed-*"))) == kills
    return found


def _installed(folder: Path) -> Path:
    """A folder with all of the package in one place; links, so that compiled kernels are found."""
    package = folder / "whenabouts"
    package.mkdir(parents=True)
    for source in (Path(whenabouts.__file__), *parts()):
        (package / source.name).symlink_to(source)
    return folder


def _expected(scene: Scene, kills: int) -> Counter[str]:
    at = [step for step in range(scene.steps(kills)) if scene.has_rows(step)]
    sides = [pa.concat_tables(_rows(side, step) for step in at) for side in range(2)]
    options = {name: value for name, value in scene.join.items() if name != "max_latency"}
    return Counter(str(list(row.values())) for row in local_join(*sides, **options).to_pylist())


OUTER = JOIN | {"how": "left_outer"}
CLOCK = JOIN | {"strategy": "lazy", "block_size": 10_000, "max_latency": "5 s"}
SHORT = (("python__fn_execution__bundle__time", "200"),)
SLOTS = (("taskmanager__numberOfTaskSlots", "2"),)
UNALIGNED = (("execution__checkpointing__unaligned__enabled", "true"),)
SCENES = {
    "the clock": Scene(CLOCK, 2, waits=True, conf=SHORT),
    "the clock, rows": Scene(JOIN | {"max_latency": "5 s"}, 2, waits=True, form="rows"),
    "a watermark": Scene(OUTER, 2, event_times=True, conf=SLOTS),
    "a watermark, unaligned": Scene(OUTER, 2, event_times=True, conf=SLOTS + UNALIGNED),
    "the end": Scene(OUTER, 0, parallelism=2),
    "the end, tables": Scene(OUTER, 0, form="tables"),
}


FEW = ["the clock", "a watermark", "the end"]
MANY = [*FEW, *FEW, *(name for name in SCENES if name not in FEW), "the end"]
"""Two hundred kills, twenty in a job."""


@pytest.mark.parametrize(
    ("name", "kills", "turn"),
    [
        (FEW[0], 1, 0),
        *(pytest.param(name, 1, 0, marks=pytest.mark.full) for name in FEW[1:]),
        *(pytest.param(name, 10, turn, marks=pytest.mark.full) for turn, name in enumerate(FEW)),
        *(pytest.param(name, 20, turn, marks=pytest.mark.exhaustive) for turn, name in enumerate(MANY)),
    ],
)
def test_a_job_that_is_killed_right_after_a_checkpoint_gives_the_batch_answer(
    tmp_path: Path, name: str, kills: int, turn: int
) -> None:
    scene = SCENES[name]
    assert _job(tmp_path, scene, kills) == _expected(scene, kills)


@pytest.mark.full
@pytest.mark.parametrize("name", ["the clock", "the end"])
def test_a_job_whose_worker_is_killed_right_after_a_checkpoint_gives_the_batch_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """With kill -9: Python's workers are processes here, as on a cluster."""
    monkeypatch.setenv("_python_worker_execution_mode", "process")
    # A worker unpickles its functions in several threads. While one imports `whenabouts` from several source roots,
    # another does not find the parts that are not on its `__path__` yet, and the job fails once more than it is
    # killed. Installed in one folder, as on clusters, the package has all its parts from the start.
    conf = {"python__pythonpath": str(_installed(tmp_path / "site"))}
    this = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(this)  # a worker cannot import it
    try:
        assert _job(tmp_path, SCENES[name], 3, **conf) == _expected(SCENES[name], 3)
    finally:
        cloudpickle.unregister_pickle_by_value(this)
