"""A page of the site from an executed notebook: its text, its code, and what the code printed and drew."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PICTURES = {"image/svg+xml": "svg", "image/png": "png"}


def notebook_page(notebook: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of the page and of its pictures. Raises ValueError for a notebook that was not executed."""
    cells = json.loads(notebook.read_text())["cells"]
    parts: list[str] = []
    if not any(cell.get("outputs") for cell in cells):
        raise ValueError(f"{notebook.name} has no outputs: execute it first")
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code" and source:
            parts.append(f"``````python\n{source}\n``````")
        for output in cell.get("outputs", ()):
            picture = next((kind for kind in PICTURES if kind in output.get("data", ())), None)
            if picture:
                name = f"{notebook.stem}-{len(parts)}.{PICTURES[picture]}"
                data = "".join(output["data"][picture])
                yield name, data.encode() if picture == "image/svg+xml" else base64.b64decode(data)
                parts.append(f"![output of the code above]({name})")
            else:
                parts.append(_text(output))
    yield f"{notebook.stem}.md", "\n\n".join(parts).encode() + b"\n"


def _text(output: dict[str, Any]) -> str:
    """What a cell printed or returned, HTML as it is. Raises ValueError for an error."""
    if output["output_type"] == "error":
        raise ValueError(f"a cell failed: {output['ename']}: {output['evalue']}")
    if output["output_type"] == "stream":
        return f"``````text\n{''.join(output['text']).rstrip()}\n``````"
    data = output["data"]
    if "text/html" in data:
        html = re.sub(r"<style.*?</style>", "", "".join(data["text/html"]), flags=re.DOTALL)
        html = re.sub(r"<table[^>]*>", "<table>", html)  # so that the site's style applies
        one_line = re.sub(r"\n\s*", "", html)  # or Markdown would read it
        return f'<div class="output">{one_line}</div>'
    return f"``````text\n{''.join(data['text/plain'])}\n``````"
