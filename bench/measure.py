"""Measure contenders side by side, and print what each costs.

The machines this runs on are noisy and shared, so that only ratios within one run count. All
contenders take turns, a short round each, many times over; a slow moment then falls on all of
them. A contender's figure is the median of its rounds; what it adds to another is the median of
the differences between the two in the same turn.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

NEVER = 10**9  # a step that no measurement comes to

Loop = Callable[[int], None]


class Contender(NamedTuple):
    """Something to measure: ``loop(n)`` does it n times.

    ``over`` names the contender that it adds to; ``budget`` is the most it may add, in
    microseconds. A peer of ours has no budget.
    """

    name: str
    loop: Loop
    over: str | None = None
    budget: float | None = None


def measure(contenders: Sequence[Contender], turns: int, times: int) -> dict[str, list[float]]:
    """Give each contender ``turns`` rounds of ``times`` calls; return microseconds by round."""
    rounds: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for contender in contenders:
        contender.loop(times)  # compiles, fills caches, takes the first triggers
    gc.collect()
    gc.disable()
    try:
        for _ in range(turns):
            for contender in contenders:
                begin = time.perf_counter()
                contender.loop(times)
                rounds[contender.name].append((time.perf_counter() - begin) / times * 1e6)
    finally:
        gc.enable()
    return rounds


def table(contenders: Sequence[Contender], rounds: dict[str, list[float]]) -> str:
    """Lines to print: what each takes, and how much it is of, and adds to, the one it is over.

    One that is over no other is shown as a multiple of the first.
    """
    lines = [f"{'':42}{'us':>10}{'ratio':>8}{'adds us':>10}{'budget':>8}"]
    for name, _, over, budget in contenders:
        base = over or contenders[0].name
        median = statistics.median(rounds[name])
        line = f"{name:42}{median:10.2f}{median / statistics.median(rounds[base]):8.2f}"
        if over is not None:
            pairs = zip(rounds[name], rounds[over], strict=True)
            added = statistics.median(mine - theirs for mine, theirs in pairs)
            limit = "" if budget is None else f"{budget:.1f}"
            line += f"{added:10.2f}{limit:>8}  over {over!r}"
        lines.append(line)
    return "\n".join(lines)
