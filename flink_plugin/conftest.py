"""Leaves the doctests of the Flink adapter out where there is no Flink (it has no release for every Python)."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("pyflink") else ["whenabouts/flink_plugin/*.py"]
