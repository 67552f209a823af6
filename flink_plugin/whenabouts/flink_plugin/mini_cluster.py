"""A small Flink on this machine, for the command line, the tests and experiments."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway

from whenabouts.core.hosting import worker_archive
from whenabouts.core.runtime.option_checks import whole_number
from whenabouts.flink_plugin.environment import check_environment
from whenabouts.flink_plugin.worker_ends import let_workers_end

THREAD, PROCESS = "thread", "process"
"""Where Python runs: inside the JVM (`thread`), or beside it (`process`)."""

_JVM_ARGS = "JVM_ARGS"
"""The environment variable with options for the JVM that PyFlink starts."""

_ONE_CONTEXT = "-Dlog4j2.contextSelector=org.apache.logging.log4j.core.selector.BasicContextSelector"


def start_jvm() -> None:
    """Start this process's JVM, if none runs, so that it can run any number of jobs.

    Each job's own cluster loads 1,900 classes again. By default Log4j has a context for each class loader, and a thread
    that watches the settings of each, so that the loader stays: 15 MB a job, of which 2 MB are in a space of 1 GB.
    There is room for some 500 jobs. One context for all watches the same file.
    """
    before = os.environ.get(_JVM_ARGS)
    os.environ[_JVM_ARGS] = f"{_ONE_CONTEXT} {before or ''}"  # the user's options come last, and count
    try:
        get_gateway()
    finally:
        if before is None:
            del os.environ[_JVM_ARGS]
        else:
            os.environ[_JVM_ARGS] = before


def local_environment(
    parallelism: int = 2, *, streaming: bool = True, mode: str = PROCESS, **conf: object
) -> StreamExecutionEnvironment:
    """A Flink with `parallelism` slots on this machine that uses the calling Python.

    `mode`: see `THREAD`. `conf`: Flink options, with `__` for the dots and `_` for the dashes
    (`execution__checkpointing__interval="1 s"`). Raises EngineError WA-3001 or WA-3002 for what is missing. Cost: the
    first one starts a JVM; each job starts its own small cluster in it, about a second.
    """
    parallelism = whole_number("parallelism", parallelism)
    check_environment()
    start_jvm()
    options = configuration(parallelism, streaming=streaming, mode=mode)
    for name, value in conf.items():
        options.set_string(name.replace("__", ".").replace("_", "-"), str(value))
    env = StreamExecutionEnvironment.get_execution_environment(options)
    let_workers_end()
    return env


def configuration(parallelism: int, *, streaming: bool, mode: str) -> Configuration:
    """The options of `local_environment`."""
    options = Configuration()
    for name, value in {
        "parallelism.default": str(parallelism),
        "taskmanager.numberOfTaskSlots": str(parallelism),
        "execution.runtime-mode": "STREAMING" if streaming else "BATCH",
        "python.execution-mode": mode,
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "python.pythonpath": os.pathsep.join(import_roots()),
        "python.fn-execution.bundle.size": "1",  # elements are blocks of many rows, and none should wait for another
    }.items():
        options.set_string(name, value)
    return options


def import_roots() -> list[str]:
    """The folders from which workers import what this process imports, installed (in any way) or not.

    Python inside a JVM runs no hooks of editable installs: it needs the folders.
    """
    return list(
        dict.fromkeys(
            [*worker_archive.import_roots(), *(os.path.abspath(path) for path in sys.path if Path(path).is_dir())]
        )
    )
