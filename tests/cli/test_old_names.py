"""The deprecated names of docs/renames.md on the command line: each works like the new one and prints a note."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Cli = Callable[..., Result]

PAGE = Path(__file__).parents[2] / "docs" / "renames.md"
TABLE = re.findall(
    r"^\| `(.+?)` \| `(.+?)` \|$", PAGE.read_text().partition("## Command line")[2].partition("\n## ")[0], re.M
)
REST = {
    "plan": "queries.yaml",
    "query": "'SELECT MAX(DURATION(VALID(s))) FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] COALESCE ON v'",
    "coalesce": "s.csv --time t --values v",
    "window-join": "a=s.csv b=s.csv --time t --window a,b=5s",
}


def _arguments(option: str) -> list[str]:
    """A complete command line: the command, the option with a value for each placeholder, and other required
    arguments."""
    command, _, rest = option.partition(" ")
    rest = rest.replace("NAME=PATH", "s=s.csv").replace(":E", ":0.5")
    return [command, *shlex.split(REST[command]), *rest.split()]


@pytest.mark.parametrize(("old", "new"), TABLE)
def test_an_old_name_does_what_the_new_one_does_with_a_note(cli: Cli, tmp_path: Path, old: str, new: str) -> None:
    (tmp_path / "s.csv").write_text("t,v\n" + "".join(f"2024-01-01T00:00:0{n},{n // 2}.5\n" for n in range(6)))
    (tmp_path / "queries.yaml").write_text("queries: [{name: a, query: 'SELECT * FROM s [ROWS 3] COALESCE ON v'}]\n")
    before, after = cli(*_arguments(old)), cli(*_arguments(new))
    assert (before.exit_code, after.exit_code) == (0, 0), before.stderr + after.stderr
    assert before.stdout == after.stdout != ""
    assert "deprecated" in before.stderr
    assert "deprecated" not in after.stderr
