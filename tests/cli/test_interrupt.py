"""Ctrl-C in a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path


def test_a_real_interrupt_ends_with_130(tmp_path: Path) -> None:
    file = tmp_path / "some.csv"
    code = (
        "import sys, time\nfrom whenabouts.cli import main, tables\n"
        "def wait(*_):\n    print('reading', flush=True)\n    time.sleep(60)\n"
        "tables.read_file = wait\nmain()"
    )
    file.write_text("t\n1\n")
    words = [
        "join",
        str(file),
        str(file),
        "--left-time",
        "t",
        "--right-time",
        "t",
        "--within",
        "1s",
        "--confidence",
        "1",
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", code, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reading\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors == "interrupted\n"
