"""docs/operations.md says for every error code what to do, and each code is raised by the class of its first digit."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from whenabouts.core.errors import Code

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "operations.md"
CLASSES = {"InputError": "WA-1", "QueryError": "WA-2", "EngineError": "WA-3"}


def test_the_page_for_operators_knows_every_code_and_no_other() -> None:
    rows = [line.split("|")[1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| WA-")]
    told = [code for row in rows for code in re.findall(r"WA-\d{4}", row)]
    assert sorted(told) == sorted(Code)


def test_a_code_is_raised_by_the_class_of_its_kind() -> None:
    raised = []
    for path in REPOSITORY.glob("*/whenabouts/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLASSES and node.args:
                written = ast.unparse(node.args[0])
                if written.startswith("Code."):
                    raised.append((CLASSES[node.func.id], Code[written.removeprefix("Code.")], path.name))
    assert len(raised) > 200
    assert [each for each in raised if not each[1].startswith(each[0])] == []
