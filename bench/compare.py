"""Compare two runs: ``python -m bench.compare before.json after.json``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from bench.findings import all_tables
from bench.results import Results, load
from bench.text import number

MOVED = 0.15  # a ratio that has moved by more is shown


def lines_of(before: Results, after: Results) -> Iterator[str]:
    """Yield the ratios that have moved, of the topics that both runs have."""
    old, new = _ratios(before), _ratios(after)
    both = old.keys() & new.keys()
    moved = [key for key in new if key in both and abs(new[key] / old[key] - 1) > MOVED]
    yield f"\n{len(moved)} of {len(both)} ratios have moved by more than {MOVED:.0%}"
    for key in moved:
        title, name = key
        change = new[key] / old[key] - 1
        yield f"{title}: {name}: {number(old[key])} -> {number(new[key])} ({change:+.0%})"


def _ratios(results: Results) -> dict[tuple[str, str], float]:
    return {
        (title, row["name"]): row["ratio"]["median"]
        for title, table in all_tables(results)
        for row in table["rows"]
        if row["name"] != row["base"]
    }


if __name__ == "__main__":
    print(*lines_of(*[load(Path(path)) for path in sys.argv[1:3]]), sep="\n")
