"""The Java that an engine's client would start. Looking for it starts no engine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from whenabouts.core.errors import Code, EngineError

LEAST_JAVA = 17


def java_command() -> str | None:
    """The `java` that an engine would start: that of JAVA_HOME, else the first on PATH."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def java_version() -> int | None:
    """Major version of that Java, None if there is none or it does not run."""
    command = java_command()
    if command is None:
        return None
    try:
        answer = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(found.group(1)) if found else None


def check_java(engine: str) -> None:
    """Raise EngineError WA-3001 unless that Java is of version `LEAST_JAVA` or later."""
    found = java_version()
    hint = f"install a JDK {LEAST_JAVA} or later (Debian, Ubuntu: apt install openjdk-17-jre-headless) or set JAVA_HOME"
    if found is None:
        raise EngineError(Code.NO_JAVA, f"{engine} needs Java, and there is none", hint)
    if found < LEAST_JAVA:
        raise EngineError(Code.NO_JAVA, f"{engine} needs Java {LEAST_JAVA}, and {java_command()} is Java {found}", hint)
