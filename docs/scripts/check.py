"""Checks the site in build/site: each link, picture and anchor is there, and nothing is fetched."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SITE = Path(__file__).parents[2] / "build" / "site"
#: Attributes whose address a browser fetches when it shows a page.
FETCHED = {("img", "src"), ("link", "href"), ("script", "src"), ("iframe", "src")}


class Page(HTMLParser):
    """The addresses and anchors of a page.

    Attributes:
        links: Each address in it, with the tag and the attribute that it stands in.
        anchors: What an address may name after ``#``.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[tuple[str, str, str]] = []
        self.anchors = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name"):
                self.anchors.add(value or "")
            elif name in ("href", "src") and value and value != "javascript:void(0)":
                self.links.append((tag, name, value))


def main() -> int:
    """Say what is wrong, and return 1 if anything is."""
    pages = {path: Page(path) for path in sorted(SITE.rglob("*.html"))}
    if not pages:
        sys.stderr.write(f"there is no site in {SITE}: run make docs\n")
        return 1
    # The page for addresses that are not there does not know where it stands.
    faults = [f for path in pages if path.name != "404.html" for f in faults_of(path, pages)]
    for fault in faults:
        sys.stderr.write(f"{fault}\n")
    return 1 if faults else 0


def faults_of(path: Path, pages: dict[Path, Page]) -> Iterator[str]:
    """Yield what is wrong with the addresses of a page."""
    for tag, attribute, link in pages[path].links:
        url = urlsplit(link)
        if url.scheme or url.netloc:
            if (tag, attribute) in FETCHED and url.scheme != "data":
                yield f"{path.relative_to(SITE)} fetches {link}"
            continue
        target = (path.parent / unquote(url.path)).resolve() if url.path else path
        if target.is_dir():
            target /= "index.html"
        if not target.is_file():
            yield f"{path.relative_to(SITE)} links to {link}, which is not there"
        elif target in pages and unquote(url.fragment) not in pages[target].anchors:
            yield f"{path.relative_to(SITE)} links to {link}, where there is no such heading"


if __name__ == "__main__":
    sys.exit(main())
