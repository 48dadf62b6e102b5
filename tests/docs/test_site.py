"""The site shows every page, and its README leads somewhere."""

from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def pages_of(nav):
    for entry in nav:
        for target in entry.values():
            yield from [target] if isinstance(target, str) else pages_of(target)


def test_every_page_is_in_the_navigation():
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    shown = list(pages_of(config["nav"]))
    assert len(shown) == len(set(shown))
    assert set(shown) == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
