"""The program that kept Flink's checkpoints is imported only where Flink is installed: some Pythons have no release."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("pyflink") else ["flink_program.py"]
