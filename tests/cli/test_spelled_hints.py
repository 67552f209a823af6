"""What messages of the core say in Python is still what they say, so that the command line can say it in its words."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from whenabouts.cli.spelled_hints import _OPTIONS, _TEXTS

ROOT = Path(__file__).parents[2]

MUCH = 20
"""Characters that tell a message from another one."""


@cache
def texts() -> tuple[list[str], list[str]]:
    """All texts in the sources of the core and the planner, and patterns of those into which something is put."""
    plain, patterns = [], []
    for path in [*(ROOT / "core").rglob("*.py"), *(ROOT / "planner").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                plain.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                said = [part.value if isinstance(part, ast.Constant) else "" for part in node.values]
                if sum(map(len, said)) >= MUCH:
                    patterns.append("".join(re.escape(text) or ".+" for text in said))
    return plain, patterns


@pytest.mark.parametrize("python", sorted({python for python, _ in _OPTIONS + _TEXTS}))
def test_a_message_says_this(python: str) -> None:
    plain, patterns = texts()
    assert any(python in text for text in plain) or any(re.fullmatch(pattern, python) for pattern in patterns)


def test_what_no_message_says_is_found_out() -> None:
    plain, patterns = texts()
    python = "give a=..., which nobody says in any of the messages"
    assert not any(python in text for text in plain)
    assert not any(re.fullmatch(pattern, python) for pattern in patterns)
