"""How many lines the loops of the gallery have: ``python -m tests.gallery.lines``.

With ``--write``, the numbers are put into the table of docs/gallery.md, and the loops below it.
"""

import re
import sys
from pathlib import Path

from bench.lines import count, definitions, first_line, of_loops

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "examples" / "gallery"
PAGE = ROOT / "docs" / "gallery.md"
LOOPS = re.compile(r"(<!-- the loops of (\w+) -->\n).*?(<!-- end -->)", re.S)
ROW = re.compile(r"^\| \[(\w+)\.py\]\(\S+\) \| (.+) \| (\S+) \| (\S+) \|$", re.M)


def counts(program):
    """Return how many lines of code ``plain`` and ``hooked`` have, each with what it alone uses."""
    source = Path(program).read_text()
    return tuple(count(source, [it.name for it in loop]) for loop in loops(source))


def loops(source):
    """Return the functions that only ``plain`` uses, with itself, and those of ``hooked``."""
    defined = definitions(source)
    plain, hooked = of_loops(source)
    return [
        sorted((defined[name] for name in names), key=lambda it: it.lineno)
        for names in (plain - hooked, hooked - plain)
    ]


def all_counts():
    return {path.stem: counts(path) for path in sorted(PROGRAMS.glob("*.py"))}


def page_with(found):
    def filled(row):
        name, shows, *_ = row.groups()
        if name not in found:
            return row[0]
        plain, hooked = found[name]
        return f"| [{name}.py](../examples/gallery/{name}.py) | {shows} | {plain} | {hooked} |"

    return LOOPS.sub(with_loops, ROW.sub(filled, PAGE.read_text()))


def with_loops(marks):
    source = (PROGRAMS / f"{marks[2]}.py").read_text()
    tabs = [
        f"/// tab | {title}\n```py\n{code_of(source, loop)}\n```\n///\n"
        for title, loop in zip(("by hand", "under runhooks"), loops(source), strict=True)
    ]
    return f"{marks[1]}\n{''.join(tabs)}\n{marks[3]}"


def code_of(source, nodes):
    lines = source.splitlines()
    return "\n\n\n".join("\n".join(lines[first_line(it) - 1 : it.end_lineno]) for it in nodes)


if __name__ == "__main__":
    for name, (plain, hooked) in all_counts().items():
        print(f"{name}: {plain} lines plain, {hooked} hooked, {hooked - plain:+d}")
    if "--write" in sys.argv:
        PAGE.write_text(page_with(all_counts()))
