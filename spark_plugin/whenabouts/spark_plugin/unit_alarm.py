"""What workers notice about integer times (`core.time_units`), said where the user sees it: in the driver.

An accumulator carries it with the results of the tasks. Spark Connect has none: there the workers' logs tell it, and
the count `rows_doubtful_unit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from pyspark.accumulators import AccumulatorParam
from pyspark.sql import SparkSession

from whenabouts.core.times.time_units import report_messages

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

News: TypeAlias = dict[tuple[str, str], str]
Alarm: TypeAlias = "Accumulator[News]"


class _Said(AccumulatorParam[News]):
    """Adds what is new, and says it: in the worker first, then in the driver, once for each column of a query."""

    def zero(self, value: News) -> News:
        """Nothing."""
        return {}

    def addInPlace(self, value1: News, value2: News) -> News:  # noqa: N802  # Spark's name
        """What was known and what comes."""
        new = {column: message for column, message in value2.items() if column not in value1}
        report_messages(new)  # no error may end the thread that adds Spark's accumulators
        return {**value1, **new}


def alarm_of(session: SparkSession) -> Alarm | None:
    """What the tasks of a query are to add to; None over Spark Connect."""
    context = getattr(session, "_sc", None)
    return None if context is None else context.accumulator({}, _Said())


def tell(alarm: Alarm | None, news: Mapping[tuple[str, str], str]) -> None:
    """In a task: say what was noticed."""
    if alarm is None:
        report_messages(news)
    elif news:
        alarm.add(dict(news))
