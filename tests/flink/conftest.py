"""Tests of the Flink adapter are collected where there is a Flink (it has no release for every Python)."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("pyflink") else ["test_*.py"]
