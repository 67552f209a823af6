"""Draws docs/packages.svg: the packages by layer, and their imports.

    python .ci/package_map.py            writes the picture
    python .ci/package_map.py --check    fails if the picture does not match the imports

Rows are the layers of import-linter's contract in pyproject.toml. An arrow that follows from others (A imports B, B
imports C, A imports C) is left out, so that the picture stays readable.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import escape

import grimp

import whenabouts  # from here on its spec names all source roots, which grimp reads

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "packages.svg"
CORE = "whenabouts.core"
ABOVE = [["cli", "conformance"], ["spark_plugin", "flink_plugin", "planner"]]
BOX, GAP, ROW, MARGIN = (138, 30), 16, 74, 20


def package_layers() -> list[list[str]]:
    """Packages by layer, from the top: the parts outside the core, then the layers of the core."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    core = [[f"{CORE}.{name}" for name in layer.split(" | ")] for layer in layers]
    _old_import_paths, *core = core
    return [[f"whenabouts.{name}" for name in layer] for layer in ABOVE] + core


def imports(packages: Iterable[str]) -> set[tuple[str, str]]:
    """The imports between packages, without arrows that follow from others."""
    packages = list(packages)
    graph = grimp.build_graph(whenabouts.__name__, cache_dir=None)
    direct: dict[str, set[str]] = {package: set() for package in packages}
    for package in packages:
        inside = [package, *graph.find_descendants(package)]
        for other in packages:
            if other != package and any(
                imported == other or imported.startswith(f"{other}.")
                for module in inside
                for imported in graph.find_modules_directly_imported_by(module)
            ):
                direct[package].add(other)
    return {(a, b) for a in packages for b in direct[a] if not any(b in _reached(c, direct) for c in direct[a] - {b})}


def _reached(package: str, direct: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    todo = [package]
    while todo:
        for other in direct[todo.pop()] - found:
            found.add(other)
            todo.append(other)
    return found


def picture() -> str:
    """The drawing as SVG text."""
    rows = package_layers()
    width = max(len(layer) for layer in rows) * (BOX[0] + GAP) - GAP + 2 * MARGIN
    height = len(rows) * ROW - (ROW - BOX[1]) + 2 * MARGIN
    at: dict[str, tuple[float, float]] = {}
    for row, layer in enumerate(rows):
        start = (width - len(layer) * (BOX[0] + GAP) + GAP) / 2
        for column, package in enumerate(layer):
            at[package] = start + column * (BOX[0] + GAP), MARGIN + row * ROW
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#7a869a"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for a, b in sorted(imports(at)):
        (x1, y1), (x2, y2) = at[a], at[b]
        x1, x2, y1 = x1 + BOX[0] / 2, x2 + BOX[0] / 2, y1 + BOX[1]
        bend = (y2 - y1) / 2
        lines.append(
            f'<path d="M{x1:.0f} {y1:.0f}C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} {x2:.0f} {y2:.0f}" '
            'fill="none" stroke="#7a869a" stroke-opacity="0.55" marker-end="url(#tip)"/>'
        )
    for package, (x, y) in at.items():
        inner, name = package.startswith(f"{CORE}."), escape(package.split(".")[-1])
        lines.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{BOX[0]}" height="{BOX[1]}" rx="6" '
            f'fill="{"#e8f0fe" if inner else "#fdebd2"}" stroke="#4a5568"/>'
            f'<text x="{x + BOX[0] / 2:.0f}" y="{y + 20:.0f}" text-anchor="middle">{name}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


def main() -> int:
    """Write or check the picture."""
    drawn = picture()
    if "--check" not in sys.argv[1:]:
        PICTURE.write_text(drawn)
        return 0
    if PICTURE.exists() and PICTURE.read_text() == drawn:
        return 0
    sys.stderr.write("docs/packages.svg is not that of today's imports: run python .ci/package_map.py\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
