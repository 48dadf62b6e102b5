"""Measure contenders side by side.

The machines this runs on are noisy and shared, so that only ratios within one run count. All
contenders take turns, a short round each, many times over; a slow moment then falls on all of
them. A turn begins with another contender than the one before, and each makes a call that is not
timed first: none may profit more than others from what is in the caches of the processor. A
contender's figure is the median of its rounds; what it adds to another is the median of the
differences between the two in the same turn.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

NEVER = 10**9  # a step that no measurement comes to
ROUND_SECS = 4e-3  # on a busy machine most rounds as short as this are not interrupted

Loop = Callable[[int], None]
Role = Literal["ours", "peer", "limit"]


class Contender(NamedTuple):
    """Something to measure.

    Args:
        name: What the table calls it.
        loop: ``loop(n)`` does it n times. A topic that measures in its own way calls it as it says.
        over: The contender that it adds to, and is a multiple of. Default: it is a multiple of the
            first in its table.
        budget: The most that it is meant to add to ``over``, in the unit of the table.
        most: The most times that it is meant to cost what it is a multiple of.
        role: "peer" for the library of somebody else, "limit" for what the machine itself takes,
            such as a bare call or a copy in memory.
        beside: For a peer, the contender of ours that does the same. Default: the first of ours.
        why: Why a peer is faster than ours, or one of ours misses its goal. Shown where that is
            so.
    """

    name: str
    loop: Callable[[Any], Any]
    over: str | None = None
    budget: float | None = None
    role: Role = "ours"
    beside: str | None = None
    why: str = ""
    most: float | None = None


class Effort(NamedTuple):
    """How much is measured: ``quick`` is as little as shows that the programs run."""

    quick: bool = False

    def turns(self, full: int) -> int:
        return min(full, 2) if self.quick else full

    def times(self, full: int) -> int:
        return min(full, 3) if self.quick else full

    def amount(self, full: int) -> int:
        return max(1, full // 100) if self.quick else full

    def sizes(self, *full: int) -> tuple[int, ...]:
        return full[:2] if self.quick else full


def measure(
    contenders: Sequence[Contender], turns: int, times: int, most_secs: float = ROUND_SECS
) -> dict[str, list[float]]:
    """Give each contender ``turns`` rounds of ``times`` calls; return microseconds by round.

    Those whose rounds would take longer than ``most_secs`` are called less often.
    """
    rounds: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    calls = {contender.name: _calls(contender.loop, times, most_secs) for contender in contenders}
    gc.collect()
    gc.disable()
    try:
        for turn in range(turns):
            first = turn % len(contenders)
            for contender in (*contenders[first:], *contenders[:first]):
                contender.loop(1)
                secs = _secs_a_call(contender.loop, calls[contender.name])
                rounds[contender.name].append(secs * 1e6)
    finally:
        gc.enable()
    return rounds


def alternate(
    contenders: Sequence[Contender], turns: int, argument: Any = None
) -> dict[str, list[Any]]:
    """Call ``loop(argument)`` of each contender in ``turns`` turns; return what it returned."""
    returned: dict[str, list[Any]] = {contender.name: [] for contender in contenders}
    for turn in range(turns):
        for contender in contenders if turn % 2 else reversed(contenders):
            returned[contender.name].append(contender.loop(argument))
    return returned


def repeated(once: Callable[[], object]) -> Loop:
    """Return the loop that calls ``once`` again and again."""

    def loop(times: int) -> None:
        for _ in range(times):
            once()

    return loop


def _calls(loop: Loop, times: int, most_secs: float) -> int:
    loop(times)  # compiles, fills caches, takes the first triggers
    few = max(1, times // 10)
    secs = min(_secs_a_call(loop, few) for _ in range(3))
    return int(min(times, max(1, most_secs / secs)))


def _secs_a_call(loop: Loop, times: int) -> float:
    begin = time.perf_counter()
    loop(times)
    return (time.perf_counter() - begin) / times
