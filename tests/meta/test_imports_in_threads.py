"""Threads of a worker can import whenabouts at the same time.

Flink's workers unpickle each function of a job in a thread of its own. A module waits for its packages when it is
imported, and whoever imports holds what waits for it: if modules wait for each other, in a cycle, two threads can
block one another. Python then ends one of them with a `_DeadlockError`, and the job fails when it starts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from whenabouts.core.hosting.worker_archive import parts

IN_WORKERS = ("core", "planner", "flink_plugin", "spark_plugin")


def _modules() -> dict[str, Path]:
    files = {}
    for part in (folder for folder in parts() if folder.name in IN_WORKERS):
        for path in part.rglob("*.py"):
            names = ("whenabouts", part.name, *path.relative_to(part).with_suffix("").parts)
            files[".".join(names).removesuffix(".__init__")] = path
    return files


def _imported(tree: ast.AST) -> Iterator[str]:
    """What a module imports while it is imported itself; `package.name` for each name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from (name for each in node.orelse for name in _imported(each))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from _imported(node)


def _waited_for(name: str, path: Path, modules: dict[str, Path]) -> set[str]:
    """The modules that must be there before this one is: what it imports, and its package."""
    waited = {name.rpartition(".")[0]}
    for imported in _imported(ast.parse(path.read_text(encoding="utf-8"))):
        waited.add(imported if imported in modules else imported.rpartition(".")[0])
    return (waited & set(modules)) - {name}


def test_no_modules_wait_for_each_other() -> None:
    modules = _modules()
    assert {f"whenabouts.{part}" for part in IN_WORKERS} < set(modules)
    graph = {name: _waited_for(name, path, modules) for name, path in modules.items()}
    assert sum(map(len, graph.values())) > 1000
    list(TopologicalSorter(graph).static_order())  # raises CycleError, which names the cycle
