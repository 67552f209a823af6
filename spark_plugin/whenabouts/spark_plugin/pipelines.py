"""What Spark Declarative Pipelines forbid, said with a code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from whenabouts.core.errors import Code, QueryError

NO_ANALYSIS = "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION"
NO_SETTINGS = "SESSION_MUTATION_IN_DECLARATIVE_PIPELINE"


@contextmanager
def refused_in_pipelines(setting: str = "") -> Iterator[None]:
    """Raise QueryError WA-2007 for what a pipeline's definition may not do: a query needs its inputs' columns.

    `setting`: the setting of the session that is made, and its value.
    """
    try:
        yield
    except PySparkException as error:
        condition = error.getCondition() or ""
        if condition == NO_ANALYSIS:
            problem = "a pipeline's query function may not ask Spark for the columns of its inputs"
            hint = "call the operation in the module, outside the function, on inputs that exist; return what it gave"
        elif condition.startswith(NO_SETTINGS):
            problem = f"the query needs {setting}, and a pipeline's definition may not set it"
            hint = "set it under `configuration` in spark-pipeline.yml"
        else:
            raise
        raise QueryError(Code.NOT_AVAILABLE, problem, f"{hint}; docs/spark.md") from error
