"""What the tables come to: how runhooks stands beside its best peers, and what it loses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from bench.results import Results
from bench.table import Row, Spread, Table, aims, is_noisy

LOST = 0.95  # a peer is faster that costs less than this part of what ours costs, most times less


class Standing(NamedTuple):
    """A row of ours, and a peer that does the same. ``times``: what it costs, in costs of ours."""

    what: str
    unit: str
    ours: Row
    peer: Row
    times: float


def all_tables(results: Results, largest: bool = False) -> Iterator[tuple[str, Table]]:
    """Yield each table with its title, those of growths, or the largest, with the size in it."""
    for topic in results["topics"].values():
        for table in topic["tables"]:
            yield table["title"], table
        for growth in topic["growths"]:
            sizes = list(zip(growth["sizes"], growth["tables"], strict=True))
            for size, table in sizes[-1:] if largest else sizes:
                yield f"{growth['title']}, {size:,} {growth['axis']}", table


def standings(table: Table, title: str) -> list[Standing]:
    """Return one for each peer of a table."""
    rows = {row["name"]: row for row in table["rows"]}
    return [
        Standing(title, table["unit"], rows[row["beside"]], row, row["advantage"]["median"])
        for row in table["rows"]
        if "advantage" in row
    ]


def beside_the_best(results: Results) -> list[Standing]:
    """Return, for each row of ours that has peers, the one beside the cheapest of them.

    Of what grows, that is at the largest size.
    """
    best: dict[tuple[str, str], Standing] = {}
    for title, table in all_tables(results, largest=True):
        for standing in sorted(standings(table, title), key=lambda it: -it.times):
            best[title, standing.ours["name"]] = standing
    return list(best.values())


def losses(results: Results) -> list[Standing]:
    """Return each peer that is faster than ours."""
    return [
        standing
        for title, table in all_tables(results)
        for standing in standings(table, title)
        if standing.times < LOST and standing.peer["advantage"]["high"] < 1
    ]


class Miss(NamedTuple):
    """A row that adds more than it is meant to, or costs more times another. ``unit``: of these."""

    what: str
    row: Row
    measured: Spread
    goal: float
    unit: str


def missed(results: Results) -> list[Miss]:
    """Return the goals that are missed."""
    return [
        Miss(title, row, measured, goal, unit or table["unit"])
        for title, table in all_tables(results)
        for row in table["rows"]
        for measured, goal, unit in aims(row)
        if measured["median"] > goal
    ]


def noise(results: Results) -> str:
    """Say how many of the ratios are noisy, and how busy other programs were."""
    rows = [row for _, table in all_tables(results) for row in table["rows"]]
    ratios = [row["ratio"] for row in rows if row["name"] != row["base"]]
    noisy = sum(map(is_noisy, ratios))
    busy = [it["others"] for it in results["topics"].values() if it["others"] is not None]
    others = f"; other programs took up to {max(busy):.0%} of the processors" if busy else ""
    return f"{noisy} of {len(ratios)} ratios are noisy{others}"
