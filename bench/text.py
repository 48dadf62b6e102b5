"""Tables as they are printed."""

from __future__ import annotations

from collections.abc import Iterator

from bench.table import Growth, Row, Table, aims, by_size, exponent, is_noisy
from bench.topics import Topic


def lines_of(topic: Topic) -> Iterator[str]:
    """Yield what is printed of a topic."""
    for table in topic["tables"]:
        yield from _table(table)
    for growth in topic["growths"]:
        yield from _growth(growth)
    if "failed" in topic:
        yield f"\nfailed:\n{topic['failed']}"
    others = topic["others"]
    busy = "" if others is None else f"; others took {others:.0%} of the processors"
    yield f"\n{topic['seconds']:.0f} s{busy}"


def number(value: float) -> str:
    """Three digits, and no more than there are before the point."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def amount(value: float, unit: str) -> str:
    """Return a cost with its unit: 475 ms for 475,000 µs."""
    larger = {"µs": "ms", "ms": "s"}
    while value >= 1000 and unit in larger:
        value, unit = value / 1000, larger[unit]
    return f"{number(value)} {unit}"


def goals(row: Row) -> str:
    """Return what a row is meant to add, or how many times another it is meant to cost."""
    return ", ".join(f"{number(goal)} {unit}".rstrip() for _, goal, unit in aims(row))


def _table(table: Table) -> Iterator[str]:
    yield f"\n{table['title']}: medians of {table['turns']} rounds"
    yield f"{'':48}{table['unit']:>11}{'quartiles':>21}{'ratio':>9}{'adds':>8}{'goal':>12}"
    for row in table["rows"]:
        cost = row["cost"]
        quartiles = f"{number(cost['low'])} - {number(cost['high'])}"
        added = number(row["added"]["median"]) if "added" in row else ""
        line = (
            f"{row['name']:48}{number(cost['median']):>11}{quartiles:>21}"
            f"{number(row['ratio']['median']):>9}{added:>8}{goals(row):>12}{_note(row)}"
        )
        yield line.rstrip()


def _note(row: Row) -> str:
    over = f"  over {row['base']!r}" if "added" in row else ""
    return f"{over}{'  noisy' if is_noisy(row['ratio']) else ''}"


def _growth(growth: Growth) -> Iterator[str]:
    unit = growth["tables"][0]["unit"]
    yield f"\n{growth['title']}: {unit} by {growth['axis']}"
    yield f"{'':48}{''.join(f'{size:>11,}' for size in growth['sizes'])}{'exponent':>11}"
    for name, costs in by_size(growth).items():
        slope = exponent(growth["sizes"], costs)
        shown = "-" if slope is None else f"{slope:.2f}"
        yield f"{name:48}{''.join(f'{number(cost):>11}' for cost in costs)}{shown:>11}"
