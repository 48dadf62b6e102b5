"""``Proposals``: rank 0 takes what ranks propose, and decides from what all tell of their loops."""

from __future__ import annotations

import json
import math
from collections import deque
from typing import NamedTuple

from runhooks.ranks.exchange import Exchange

STOP, LOOP_ENDED = "stop", "loop ended"

#: What ranks tell rank 0, and what it tells all.
PROPOSE, BEGUN = "propose", "begun"
PROPOSED, DECIDED = "proposed", "decided"


class Proposed(NamedTuple):
    """What ``rank`` proposes."""

    kind: str
    text: str
    rank: int


class Proposals:
    """What is proposed, in turn: one is open until all ranks have told what run they have begun.

    Ranks stop once: of the proposals of a stop the first counts, and is told to all. Loops that
    have ended are no matter of a decision.

    Args:
        size: How many ranks there are.
        exchange: What they tell each other.
    """

    def __init__(self, size: int, exchange: Exchange) -> None:
        self._size = size
        self._exchange = exchange
        self._waiting: deque[Proposed] = deque()
        self._number = 0  # of the one that is open, or was last
        self._is_open = self._is_stopping = False
        self._begun: dict[int, int] = {}
        self._fewest = math.inf  # runs of a loop that has ended

    def take(self, rank: int, kind: str, text: str) -> None:
        """Take what ``rank`` proposes."""
        if kind == LOOP_ENDED:
            runs, step = json.loads(text)
            if runs < self._fewest:  # who has made more waits for nobody that this one does not
                self._fewest = runs
                self._exchange.tell(LOOP_ENDED, rank, runs, step)
            return
        if kind == STOP:
            if self._is_stopping:
                return
            self._is_stopping = True
        self._waiting.append(Proposed(kind, text, rank))
        self._open_next()

    def take_begun(self, rank: int, number: int, run: int) -> None:
        """Take which run ``rank`` has begun last, read since it has heard of ``number``."""
        if number != self._number:
            return
        self._begun[rank] = run
        if len(self._begun) == self._size:
            self._exchange.tell(DECIDED, max(self._begun.values()) + 1)
            self._exchange.trim()
            self._is_open = False
            self._open_next()

    def _open_next(self) -> None:
        if self._waiting and not self._is_open:
            self._is_open = True
            self._number += 1
            self._begun = {}
            self._exchange.tell(PROPOSED, self._number, *self._waiting.popleft())
