"""Leaves the doctests of what only newer Sparks have out where Spark is older."""

from importlib.util import find_spec

collect_ignore_glob = (
    [] if find_spec("pyspark.sql.streaming.datasource") else ["whenabouts/spark_plugin/admitted_replay.py"]
)
