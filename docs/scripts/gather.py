"""Gathers in build/docs what the site is built from.

The pages of docs/ are plain Markdown, and link to files of the repository: examples, tests,
sources. On the site each of these files is a page of its own; a link to a file that is not there
is an error.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GATHERED = ROOT / "build" / "docs"
LEFT_OUT = {"scripts"}
#: A drawing on a line of its own. In the page it follows the scheme that the reader chooses there.
DRAWING = re.compile(r"^!\[[^]]*\]\((pictures/[^)]+\.svg)\)$", re.MULTILINE)
#: A link or a picture of Markdown: ``](target#anchor)``.
LINK = re.compile(r"\]\((?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
FENCE = re.compile(r"^ *(```+|~~~+).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".toml": "toml", ".sh": "bash", ".yml": "yaml"}


def main() -> int:
    """Fill ``GATHERED`` anew; return 1 if a link of a page or of the README leads nowhere."""
    shutil.rmtree(GATHERED, ignore_errors=True)
    shutil.copytree(DOCS, GATHERED, ignore=shutil.ignore_patterns(*LEFT_OUT))
    pages = sorted(path for path in DOCS.rglob("*.md") if LEFT_OUT.isdisjoint(path.parts))
    missing = [f"{path.relative_to(ROOT)}: {link}" for path in pages for link in gather(path)]
    missing += [f"{path.name}: {link}" for path in ROOT.glob("*.md") for link in broken(path)]
    for link in missing:
        sys.stderr.write(f"a link leads nowhere: {link}\n")
    return 1 if missing else 0


def gather(page: Path) -> list[str]:
    """Write ``page`` with its links into the repository turned to pages; return broken links."""
    target = GATHERED / page.relative_to(DOCS)
    missing = []

    def to_page(link: re.Match[str]) -> str:
        file = (page.parent / link["target"]).resolve()
        if file.is_relative_to(DOCS):
            return link[0]  # the generator checks it
        if not file.is_file():
            missing.append(link[0])
            return link[0]
        shown = os.path.relpath(source_page(file), target.parent)
        return f"]({shown})"

    text = DRAWING.sub(inlined, page.read_text(encoding="utf-8"))
    target.write_text(outside_code(to_page, text), encoding="utf-8")
    return missing


def inlined(drawing: re.Match[str]) -> str:
    """Return the SVG that a line shows, or the line as it is if there is none."""
    file = DOCS / drawing[1]
    if not file.exists():
        return drawing[0]  # the check of the site finds it
    return f'<div class="picture">{file.read_text(encoding="utf-8").strip()}</div>'


def outside_code(replace: Callable[[re.Match[str]], str], text: str) -> str:
    """Return ``text`` with its links replaced, but for those in fenced code."""
    parts: list[str] = []
    start = 0
    for fence in FENCE.finditer(text):
        parts += [LINK.sub(replace, text[start : fence.start()]), fence[0]]
        start = fence.end()
    return "".join([*parts, LINK.sub(replace, text[start:])])


def source_page(file: Path) -> Path:
    """Return the page that shows a file of the repository, and write it if it is not there."""
    name = file.relative_to(ROOT)
    page = GATHERED / "source" / f"{name.as_posix().removesuffix('.md')}.md"
    if not page.exists():
        page.parent.mkdir(parents=True, exist_ok=True)
        text = file.read_text(encoding="utf-8")
        if file.suffix != ".md":
            language = LANGUAGES.get(file.suffix, "text")
            text = f"# {name.as_posix()}\n\n`````{language}\n{text}`````\n"
        page.write_text(text, encoding="utf-8")
    return page


def broken(page: Path) -> Iterator[str]:
    """Yield the links of a Markdown file of the root that lead to no file, or to no heading."""
    for link in LINK.finditer(FENCE.sub("", page.read_text(encoding="utf-8"))):
        file = page.parent / link["target"]
        if not file.is_file() or (link["anchor"] and link["anchor"][1:] not in anchors(file)):
            yield link[0]


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a Markdown file."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.M)
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in words}


if __name__ == "__main__":
    sys.exit(main())
