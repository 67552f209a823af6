"""The demo's answer as a page for the browser: one file, with its pictures inside."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from whenabouts.cli.demo_report import Report
from whenabouts.core.html_tables import html_table
from whenabouts.core.sources.whole_files import whole_file

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1d2530; background: #fff; max-width: 54rem; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin-bottom: .3rem; }
h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid #d9dee5; padding-bottom: .2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .9rem .3rem 0; text-align: right; border-bottom: 1px solid #e8ecf1; white-space: nowrap; }
th { font-weight: 600; color: #55606e; }
th:first-child, td:first-child { text-align: left; }
.numbers { display: flex; flex-wrap: wrap; gap: 1rem; }
.numbers div { flex: 1 1 12rem; border: 1px solid #d9dee5; border-radius: .5rem; padding: .7rem 1rem; }
.numbers b { display: block; font-size: 1.7rem; }
figure { margin: 1.2rem 0; }
figure svg { width: 100%; height: auto; }
figcaption { color: #55606e; font-size: .92rem; }
pre { background: #f4f6f8; padding: .8rem 1rem; border-radius: .5rem; white-space: pre-wrap; font-size: .88rem; }
"""


class Picture(NamedTuple):
    """A figure of matplotlib, and what it shows."""

    figure: Any
    caption: str


class Section(NamedTuple):
    """A part of the page: paragraphs, numbers with what they count, reports and pictures, in this order."""

    title: str
    text: Sequence[str] = ()
    numbers: Sequence[tuple[str, str]] = ()
    code: str = ""
    reports: Sequence[Report] = ()
    pictures: Sequence[Picture] = ()


def write_page(file: Path, title: str, sections: Iterable[Section]) -> None:
    """Write the page. Raises: OSError, as writing does."""
    body = "\n".join(_section(section) for section in sections)
    page = (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )
    with whole_file(file) as written:
        written.write(page.encode())


def _section(section: Section) -> str:
    parts = [f"<h2>{escape(section.title)}</h2>"] if section.title else []
    parts += [f"<p>{escape(text)}</p>" for text in section.text]
    if section.numbers:
        boxes = "".join(f"<div><b>{escape(number)}</b>{escape(what)}</div>" for number, what in section.numbers)
        parts.append(f'<div class="numbers">{boxes}</div>')
    if section.code:
        parts.append(f"<pre>{escape(section.code)}</pre>")
    for report in section.reports:
        parts.append(f'<div class="scroll">{html_table(report.title, report.heads, report.rows)}</div>')
    for picture in section.pictures:
        parts.append(f"<figure>{_svg(picture.figure)}<figcaption>{escape(picture.caption)}</figcaption></figure>")
    return "\n".join(parts)


def _svg(figure: Any) -> str:
    """The figure as an element of the page, without what only a file of its own has."""
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None})
    text = written.getvalue()
    return text[text.index("<svg") :]
