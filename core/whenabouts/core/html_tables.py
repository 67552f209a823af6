"""Reports as HTML, for notebooks and as pages: a sentence, and a table. Whatever comes from data is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> str:
    """A title, a table, and a note below it.

    >>> print(html_table("Pairs", ["key", "n"], [["<a>", 2]], note="of 3"))
    <p><b>Pairs</b></p>
    <table><thead><tr><th>key</th><th>n</th></tr></thead><tbody>
    <tr><td>&lt;a&gt;</td><td>2</td></tr>
    </tbody></table>
    <p>of 3</p>
    """
    lines = [f"<p><b>{escape(title)}</b></p>", "<table><thead>" + _row(heads, "th") + "</thead><tbody>"]
    lines += [_row(row, "td") for row in rows]
    lines.append("</tbody></table>")
    if note:
        lines.append(f"<p>{escape(note)}</p>")
    return "\n".join(lines)


def html_page(title: str, body: str) -> str:
    """A whole page: without scripts, and without references to others.

    >>> html_page("a < b", "<p>text</p>").splitlines()[1].partition("<style>")[0]
    '<html lang="en"><head><meta charset="utf-8"><title>a &lt; b</title>'
    """
    style = "body{font:14px sans-serif;margin:2em;max-width:50em}td{padding:2px 12px 2px 0;text-align:left}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{style}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _row(cells: Iterable[object], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"
