"""Check a release, after `make dist`: versions, extras on every Python, doctests from a clean installation, the SBOM.

Needs uv and cyclonedx-py on the path (`make release-check` sees to that) and the network. The doctests run with each
supported Python that this machine has.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
COMPILED = ("apache-beam", "llvmlite", "numba", "numpy", "pandas", "pemja", "pyarrow")
"""What must come as a wheel: without a compiler an installation from source would fail."""
TESTED = ("whenabouts.core", "whenabouts.planner", "whenabouts.cli")
"""Packages whose doctests need no engine."""
FRAMES = ("duckdb", "pandas>=2.2,<3", "polars")
"""Libraries whose dataframes are in these doctests; a user brings them."""
OPTIONS = ("--doctest-modules", "-o", "doctest_optionflags=NORMALIZE_WHITESPACE", "-p", "no:cacheprovider")


def pythons(project: dict[str, Any]) -> list[str]:
    """The supported versions of Python, as the classifiers have them.

    >>> pythons({"classifiers": ["Programming Language :: Python :: 3.11", "Typing :: Typed"]})
    ['3.11']
    """
    found = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", text) for text in project["classifiers"])
    return [match[1] for match in found if match]


def versions_elsewhere(root: Path) -> dict[str, str]:
    """The version in each file besides pyproject.toml that has to state it."""
    patterns = {
        "CITATION.cff": r"^version: (\S+)$",
        "CHANGELOG.md": r"^## \[(\d[^]]*)\] - \d{4}-\d\d-\d\d$",
        "recipe/recipe.yaml": r"^  version: \"(\S+)\"$",
        "examples/kubernetes/deployment.yaml": r"^  image: whenabouts-pairs:(\S+)$",
    }
    found = {name: re.search(pattern, (root / name).read_text("utf-8"), re.M) for name, pattern in patterns.items()}
    return {name: match[1] if match else "none" for name, match in found.items()}


def unresolved(project: dict[str, Any]) -> Iterator[str]:
    """The extras that cannot be installed, by Python."""
    wheels = [f"--only-binary={name}" for name in COMPILED]
    for python in pythons(project):
        for extra in project["optional-dependencies"]:
            command = ["uv", "pip", "compile", "--quiet", f"--python-version={python}", f"--extra={extra}", *wheels]
            done = subprocess.run([*command, "pyproject.toml"], cwd=ROOT, capture_output=True, text=True, check=False)
            if done.returncode:
                yield f"[{extra}] on Python {python}: {done.stderr.strip()}"


def fails_when_installed(python: str, distribution: Path) -> str | None:
    """Install the sdist or wheel in a new environment and run its doctests there; what failed, None if nothing did."""
    with tempfile.TemporaryDirectory() as scratch:
        own = Path(scratch) / "venv" / "bin" / "python"
        commands: list[list[str | Path]] = [
            ["uv", "venv", "--quiet", f"--python={python}", own.parents[1]],
            ["uv", "pip", "install", "--quiet", f"--python={own}", f"{distribution}[conformance,plot,sql]", *FRAMES],
            [own.with_name("whenabouts"), "--version"],
            [own, "-m", "pytest", "-q", *OPTIONS, "--pyargs", *TESTED],
        ]
        for command in commands:
            done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
            if done.returncode:
                told = f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
                return f"Python {python}, {distribution.name}: {' '.join(map(str, command))}\n{told}"
        print(f"Python {python}, {distribution.name}: {done.stdout.strip().splitlines()[-1]}")
    return None


def has_python(version: str) -> bool:
    """Whether this machine has that Python; none is downloaded."""
    command = ["uv", "python", "find", "--no-python-downloads", version]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def write_bill(project: dict[str, Any]) -> Path:
    """Write the bill of materials: what the extra `all` installs, at the versions of the lock."""
    bill = ROOT / "dist" / f"{project['name']}-{project['version']}.cdx.json"
    tool, description = shutil.which("cyclonedx-py"), str(ROOT / "pyproject.toml")
    assert tool, "cyclonedx-py is not on the path: run `make release-check`"
    resolve = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version=3.11", "--extra=all", description]
    resolve += ["--generate-hashes", "--no-annotate", "--no-header", f"--constraint={ROOT / 'requirements/main.lock'}"]
    with tempfile.TemporaryDirectory() as scratch:
        pinned = str(Path(scratch) / "requirements.txt")
        subprocess.run([*resolve, f"--output-file={pinned}"], check=True)
        command = [tool, "requirements", pinned, f"--pyproject={description}", f"--output-file={bill}"]
        subprocess.run(command, check=True)
    return bill


def main() -> int:
    """Run all checks; the number of those that failed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version, failed = project["version"], []
    failed += [f"{name} has version {has}" for name, has in versions_elsewhere(ROOT).items() if has != version]
    failed += unresolved(project)
    distributions = [*(ROOT / "dist").glob("*.tar.gz"), *(ROOT / "dist").glob("*.whl")]
    for python in pythons(project):
        if not has_python(python):
            print(f"Python {python} is not on this machine: its doctests did not run")
            continue
        faults = (fails_when_installed(python, distribution) for distribution in distributions)
        failed += [fault for fault in faults if fault]
    bill = write_bill(project)
    print(*failed, f"{len(failed)} checks failed" if failed else f"{version} is ready: {bill}", sep="\n")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
