"""The program that kept Flink's checkpoints is imported only if Flink is installed: it lacks a release for some Pythons."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("pyflink") else ["flink_program.py"]
