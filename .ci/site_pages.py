"""Gathers the pages of the documentation site in build/pages, from which MkDocs makes build/site.

    python .ci/site_pages.py            gathers the pages
    python .ci/site_pages.py --finish   adds to the built site what its maker leaves out

Pages are written for readers of the repository: their links are paths in it. Here each page gets its place on the site,
and each link the place of its target. What pages link to outside of docs/ comes along: text as a page, anything else as
a file. The reference is made from the objects, the gallery from executed notebooks, and llms.txt from all of them.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import yaml
from notebook_pages import notebook_page
from reference_pages import reference_pages

ROOT = Path(__file__).resolve().parent.parent
PAGES, NOTEBOOKS, SITE = (ROOT / "build" / name for name in ("pages", "notebooks", "site"))
LINK = re.compile(r"\[([^]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
SOURCES = {".py": "python", ".java": "java", ".toml": "toml", "": "text"}
FOREIGN_SCRIPT = "https://unpkg.com/iframe-worker/shim"
NOT_ON_THE_LANDING_PAGE = re.compile(r"^## Test\n.*?(?=^## )", re.MULTILINE | re.DOTALL)


def site_path(path: PurePosixPath) -> PurePosixPath:
    """Where a file of the repository is on the site.

    >>> [str(site_path(PurePosixPath(path))) for path in ("docs/spark.md", "README.md", "examples/a.py", "docs/a.svg")]
    ['spark.md', 'index.md', 'source/examples/a.md', 'a.svg']
    """
    if path.parts[0] == "docs":
        at = path.relative_to("docs")
        return at.with_suffix(".md") if path.suffix == ".ipynb" else at
    if path.suffix == ".md" and len(path.parts) == 1:
        return PurePosixPath("index.md" if path.stem == "README" else f"{path.stem.lower()}.md")
    at = PurePosixPath("source", *path.parts)
    return at.with_name(f"{path.stem}.md") if path.suffix in SOURCES else at


class Pages:
    """The files of the site in a folder. Notebooks are taken, with their outputs, from another one."""

    def __init__(self, folder: Path, notebooks: Path) -> None:
        self._folder = folder
        self._notebooks = notebooks
        self._done: set[PurePosixPath] = set()

    def add(self, path: PurePosixPath) -> None:
        """A file of the repository, and what it links to. Raises FileNotFoundError for a link to nothing."""
        if path in self._done:
            return
        self._done.add(path)
        source, target = ROOT / path, self._folder / site_path(path)
        if not source.is_file():
            raise FileNotFoundError(f"{path} does not exist, and a page links to it")
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            text = source.read_text()
            if path.name == "README.md" and len(path.parts) == 1:
                text = NOT_ON_THE_LANDING_PAGE.sub("", text)
            elif path.name == "README.md":  # in the repository a folder lists its pages
                others = [other.name for other in sorted(source.parent.glob("[0-9]*.md"))]
                text += "\n" + "".join(f"- [{other}]({other})\n" for other in others)
            target.write_text(_outside_code(text, lambda line: self._linked(line, path)))
        elif path.suffix == ".ipynb":
            *pictures, (_, page) = notebook_page(self._notebooks / path.name)
            for name, picture in pictures:
                target.with_name(name).write_bytes(picture)
                self._done.add(path.with_name(name))
            target.write_text(_outside_code(page.decode(), lambda part: self._linked(part, path)))
        elif path.suffix in SOURCES:
            target.write_text(f"# {path}\n\n``````{SOURCES[path.suffix]}\n{source.read_text()}``````\n")
        else:
            shutil.copy(source, target)

    def write(self, name: str, text: str) -> None:
        """A page that is made here; its links are those of the site."""
        target = self._folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def _linked(self, text: str, path: PurePosixPath) -> str:
        def moved(match: re.Match[str]) -> str:
            words, written, anchor = match[1], match[2], match[3] or ""
            if "://" in written or written.startswith("mailto:"):
                return match[0]
            to = PurePosixPath(os.path.normpath(path.parent / written))
            if (ROOT / to).is_dir():
                to /= "README.md"
            self.add(to)
            if words.endswith(".md"):  # a path is a fine name in the repository, a title on the site
                words = (ROOT / to).read_text().partition("\n")[0].lstrip("# ")
            return f"[{words}]({os.path.relpath(site_path(to), site_path(path).parent)}{anchor})"

        return LINK.sub(moved, text)


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    """A page with its prose changed. What is fenced is kept, but for two things that GitHub and MkDocs differ in.

    MkDocs wants four columns where a list's item continues, and colours prompts only in blocks that say so.
    """
    parts, at = [], 0
    for block in FENCED.finditer(text):
        parts += [_prose(change(text[at : block.start()])), _code(block[0])]
        at = block.end()
    return "".join([*parts, _prose(change(text[at:]))])


FENCED = re.compile(r"^( *`{3,})[^\n]*\n.*?^\1$", re.MULTILINE | re.DOTALL)


def _prose(text: str) -> str:
    return re.sub(r"^ {3}(?=\S)", "    ", text, flags=re.MULTILINE)


def _code(block: str) -> str:
    if block.startswith("   `"):
        block = re.sub(r"^ {3}", "    ", block, flags=re.MULTILINE)
    return re.sub(r"\n\n( *`+)$", r"\n\1", block.replace("```python\n>>>", "```pycon\n>>>"))


def sections(nav: object, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """The pages of a MkDocs navigation: the titles on the way to each, and its path."""
    if isinstance(nav, str):
        yield names, nav
    elif isinstance(nav, dict):
        for name, part in nav.items():
            yield from sections(part, (*names, name))
    elif isinstance(nav, list):
        for part in nav:
            yield from sections(part, names)


def first_sentence(page: str) -> str:
    """The first sentence below a page's title, without marks, for a list of pages.

    >>> first_sentence("# Title\\n\\nOne [link](a.md) and `code`.\\nMore.")
    'One link and code.'
    """
    _, _, body = page.partition("\n")
    for paragraph in re.split(r"\n\s*\n", body):
        if re.match(r"\s*[A-Z`]", paragraph) and not paragraph.lstrip().startswith("```"):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", lambda match: match[1] or "", " ".join(paragraph.split()))
            return re.split(r"(?<=[.?])\s", plain, maxsplit=1)[0]
    return ""


def llms_txt(nav: object, about: str, folder: Path) -> str:
    """The list of pages for language models, in the form of llmstxt.org: links to their Markdown beside the HTML."""
    parts: list[str] = [f"# whenabouts\n\n> {about}\n"]
    last = ""
    for (section, *names), path in sections(nav):
        if not names:
            continue
        if section != last:
            parts.append(f"\n## {section}\n")
            last = section
        page = (folder / path).read_text()
        parts.append(f"- [{': '.join(names)}]({path}): {first_sentence(page) or page.splitlines()[0].lstrip('# ')}")
    return "\n".join(parts) + "\n"


def gather(folder: Path, notebooks: Path) -> None:
    """Write all pages. Raises FileNotFoundError for a link to a file that does not exist."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = Pages(folder, notebooks)
    for path in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"):
        pages.add(PurePosixPath(path))
    for file in (*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / "docs" / "site").glob("*")):
        pages.add(PurePosixPath(file.relative_to(ROOT).as_posix()))
    for name, text in reference_pages():
        pages.write(f"reference/{name}", text)
    config = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=_Lenient)
    pages.write("llms.txt", llms_txt(config["nav"], config["site_description"], folder))


def finish(site: Path, pages: Path) -> None:
    """Put the Markdown of pages beside their HTML, for llms.txt, and the search's one foreign script by our own."""
    for page in pages.rglob("*.md"):
        shutil.copy(page, site / page.relative_to(pages))
    for path in site.rglob("*.html"):
        own = os.path.relpath(site / "site" / "offline.js", path.parent)
        path.write_text(path.read_text().replace(FOREIGN_SCRIPT, own))


class _Lenient(yaml.SafeLoader):
    """Reads MkDocs' settings, in which names of Python functions are tags."""


_Lenient.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)

if __name__ == "__main__":
    if "--finish" in sys.argv:
        finish(SITE, PAGES)
    else:
        gather(PAGES, NOTEBOOKS)
