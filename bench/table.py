"""The figures of a table: medians, quartiles, ratios, and how costs grow.

They are plain dicts and lists, as they are kept in ``results.json``.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NotRequired, TypedDict

from bench.measure import Contender, Effort, Role, measure

#: Quartiles of a ratio that are further apart than this part of it: the machine was not quiet.
NOISY = 0.25

Rounds = Mapping[str, Sequence[float]]


class Spread(TypedDict):
    """The median of some rounds, and their lower and upper quartile."""

    median: float
    low: float
    high: float


class Row(TypedDict):
    """What one contender costs.

    ``ratio`` is to the row ``base``; ``added`` the difference to it, for a contender that is over
    another; ``budget`` is the goal for that, ``most`` the one for ``ratio``. ``advantage``, of a
    peer, is how many times what ours costs it costs; ``beside`` names the row of ours. All are
    taken within each turn.
    """

    name: str
    role: Role
    cost: Spread
    base: str
    ratio: Spread
    added: NotRequired[Spread]
    budget: NotRequired[float]
    most: NotRequired[float]
    beside: NotRequired[str]
    advantage: NotRequired[Spread]
    why: NotRequired[str]


class Table(TypedDict):
    """One thing, done by several contenders. The less it costs, the better."""

    title: str
    unit: str
    turns: int
    rows: list[Row]


class Growth(TypedDict):
    """The same at several sizes: one table each; ``axis`` says of what."""

    title: str
    axis: str
    sizes: list[int]
    tables: list[Table]


def measured(
    title: str, contenders: Sequence[Contender], effort: Effort, turns: int, times: int
) -> Table:
    """Measure contenders that do it ``times`` times a round; microseconds."""
    turns, times = effort.turns(turns), effort.times(times)
    return tabulated(title, "µs", contenders, measure(contenders, turns, times))


def grown(
    title: str,
    axis: str,
    sizes: Sequence[int],
    contenders: Callable[[int], Sequence[Contender]],
    effort: Effort,
    turns: int,
    times: int,
) -> Growth:
    """Measure the contenders of each size; microseconds."""
    tables = [measured(title, contenders(size), effort, turns, times) for size in sizes]
    return Growth(title=title, axis=axis, sizes=list(sizes), tables=tables)


def tabulated(title: str, unit: str, contenders: Sequence[Contender], rounds: Rounds) -> Table:
    """Make a table of what was measured; a contender that is not in ``rounds`` has no row."""
    shown = [contender for contender in contenders if contender.name in rounds]
    ours = next((contender.name for contender in shown if contender.role == "ours"), None)
    rows = [_row(contender, shown[0].name, ours, rounds) for contender in shown]
    return Table(title=title, unit=unit, turns=len(rounds[shown[0].name]), rows=rows)


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float | None:
    """Return the slope of log cost over log size, fitted to the sizes within ten of the largest.

    None if a cost is not above zero: what is added may be nothing.
    """
    pairs = [pair for pair in zip(sizes, costs, strict=True) if pair[0] * 10 >= sizes[-1]]
    if len(pairs) < 2 or min(cost for _, cost in pairs) <= 0:
        return None
    logs = [(math.log(size), math.log(cost)) for size, cost in pairs]
    return statistics.linear_regression(*zip(*logs, strict=True)).slope


def aims(row: Row) -> list[tuple[Spread, float, str]]:
    """Return what a row has goals for, each with the goal, and "times" if it is a ratio."""
    found = [(row["added"], row["budget"], "")] if "budget" in row else []
    return [*found, (row["ratio"], row["most"], "times")] if "most" in row else found


def is_noisy(ratio: Spread) -> bool:
    return ratio["high"] - ratio["low"] > NOISY * ratio["median"]


def by_size(growth: Growth) -> dict[str, list[float]]:
    """Return the medians of each row by size; of a row over another also what it adds."""
    costs: dict[str, list[float]] = {}
    for table in growth["tables"]:
        for row in table["rows"]:
            costs.setdefault(row["name"], []).append(row["cost"]["median"])
            if "added" in row:
                name = f"{row['name']}, what it adds"
                costs.setdefault(name, []).append(row["added"]["median"])
            if "most" in row:
                name = f"{row['name']}, times {row['base']}"
                costs.setdefault(name, []).append(row["ratio"]["median"])
                costs.setdefault(f"{name}: goal", []).append(row["most"])
    return costs


def _row(contender: Contender, first: str, ours: str | None, rounds: Rounds) -> Row:
    mine, base = rounds[contender.name], contender.over or first
    row = Row(
        name=contender.name,
        role=contender.role,
        cost=_spread(mine),
        base=base,
        ratio=_ratio(mine, rounds[base]),
    )
    if contender.over is not None:
        row["added"] = _spread([a - b for a, b in zip(mine, rounds[base], strict=True)])
    if contender.budget is not None:
        row["budget"] = contender.budget
    if contender.most is not None:
        row["most"] = contender.most
    if contender.role == "peer" and ours is not None:
        row["beside"] = contender.beside or ours
        row["advantage"] = _ratio(mine, rounds[row["beside"]])
    if contender.why:
        row["why"] = contender.why
    return row


def _ratio(mine: Sequence[float], theirs: Sequence[float]) -> Spread:
    return _spread([a / b for a, b in zip(mine, theirs, strict=True)])


def _spread(samples: Sequence[float]) -> Spread:
    if len(samples) < 2:
        return Spread(median=samples[0], low=samples[0], high=samples[0])
    low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Spread(median=median, low=low, high=high)
