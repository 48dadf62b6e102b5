"""Compare two runs: ``python -m bench.compare before.json after.json``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from bench.findings import all_tables
from bench.results import Results, load
from bench.table import Spread, is_noisy
from bench.text import number

MOVED = 0.15  # a ratio that has moved by more is shown


def lines_of(before: Results, after: Results) -> Iterator[str]:
    """Yield the ratios that have moved, of the topics that both runs have."""
    old, new = _ratios(before), _ratios(after)
    changes = {key: new[key]["median"] / old[key]["median"] - 1 for key in new if key in old}
    moved = [key for key, change in changes.items() if abs(change) > MOVED]
    yield f"\n{len(moved)} of {len(changes)} ratios have moved by more than {MOVED:.0%}"
    for key in moved:
        medians = [number(ratio["median"]) for ratio in (old[key], new[key])]
        noisy = ", noisy" if is_noisy(old[key]) or is_noisy(new[key]) else ""
        yield f"{': '.join(key)}: {' -> '.join(medians)} ({changes[key]:+.0%}{noisy})"


def _ratios(results: Results) -> dict[tuple[str, str], Spread]:
    return {
        (title, row["name"]): row["ratio"]
        for title, table in all_tables(results)
        for row in table["rows"]
        if row["name"] != row["base"]
    }


if __name__ == "__main__":
    print(*lines_of(*[load(Path(path)) for path in sys.argv[1:3]]), sep="\n")
