"""Numbers that reach a Flink job by the clock: first as fast as it takes them, then at given rates, one after another.

`PacedRows.java` stands behind Flink's sequence of numbers, in the same task, and sleeps until the next are due. Flink's
own `DataGeneratorSource` waits for another thread at each row, and the `datagen` of its SQL makes all rows of a second
at once; neither can fill a join's state before the clock begins.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count, pairwise
from pathlib import Path

from pyflink.common import JobStatus, WatermarkStrategy
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.java_gateway import get_gateway
from pyflink.table import TableResult

from whenabouts.flink_plugin.java_operators import followed_by

TICK_MS = 10
"""Numbers pass in ticks: the thread that makes them wakes up a hundred times a second."""
_names = (f"whenabouts.paced.{number}" for number in count())


@dataclass(frozen=True)
class Phase:
    """So many numbers, at a rate a second (None: no limit)."""

    numbers: int
    per_second: int | None = None

    @property
    def seconds(self) -> float:
        """How long it lasts by the clock."""
        return self.numbers / self.per_second if self.per_second else 0.0


class Paced:
    """Numbers from 0 on in a job, and when its phases began."""

    def __init__(self, phases: Sequence[Phase]) -> None:
        self.phases, self._property = list(phases), next(_names)

    def stream(self, env: StreamExecutionEnvironment) -> DataStream:
        """The numbers, as Java's Long, made in one task."""
        source = NumberSequenceSource(0, sum(phase.numbers for phase in self.phases) - 1)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").set_parallelism(1)
        told = chain.from_iterable((phase.numbers, phase.per_second or 0) for phase in self.phases)
        given, here = (self._property, TICK_MS, *told), Path(__file__).parent
        return followed_by(numbers._j_data_stream, "PacedRows", given, "paced", parallelism=1, folder=here)

    def begun(self) -> list[float]:
        """When each phase began, in seconds of the clock, and when the last one ended."""
        told = get_gateway().jvm.java.lang.System.getProperty(self._property)
        return [int(ms) / 1000 for ms in (told or "").split()]

    def wait_for(self, phase: int, job: TableResult) -> None:
        """Until a phase has begun. Raises what the job raises."""
        client = job.get_job_client()
        while len(self.begun()) <= phase:
            time.sleep(0.05)
            if client is None or client.get_job_status().result() == JobStatus.FAILED:
                job.wait()

    def behind(self) -> list[bool]:
        """Of each phase, whether it took longer than it should: the job did not keep pace."""
        begun = self.begun()
        lasted = (after - before for before, after in pairwise(begun))
        planned = (phase.seconds for phase in self.phases)
        return [wanted > 0 and took > 1.02 * wanted + 0.1 for wanted, took in zip(planned, lasted, strict=True)]
