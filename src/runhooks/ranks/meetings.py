"""``Meetings``: ranks wait for each other, and rank 0 concludes from what each brings."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from runhooks import clock
from runhooks.errors import DeadlineExceededError
from runhooks.ranks.exchange import Exchange
from runhooks.ranks.store import RankStore

_CAME, _ASKS, _CONCLUDED, _LATE = "came", "asks who is late", "concluded", "late"


class Meetings:
    """One rank's part in the meetings of a training.

    Args:
        store: The store of the ranks.
        exchange: What they tell each other.
    """

    def __init__(self, store: RankStore, exchange: Exchange) -> None:
        self._store = store
        self._exchange = exchange
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()
        self._came: defaultdict[str, dict[int, str]] = defaultdict(dict)  # known to rank 0
        self._conclusions: dict[str, str] = {}
        self._late: dict[str, list[int]] = {}
        exchange.handle(_CAME, self._take)
        exchange.handle(_ASKS, self._name_missing)
        exchange.handle(_CONCLUDED, self._keep)
        exchange.handle(_LATE, self._give_up)

    def agree(
        self, name: str, value: str, conclude: Callable[[Sequence[str]], str], secs: float
    ) -> str:
        """Return what rank 0 concludes from the values of all ranks, as ``Group.agree`` does."""
        deadline = clock.monotonic() + secs
        with self._lock:
            self._held[name] += 1
            meeting = f"{name}/{self._held[name]}"
        self._exchange.need(meeting)
        try:
            if not self._exchange.wait_until(self._exchange.has_entered, deadline):
                raise self._too_late(name, [0], secs)
            self._exchange.say(_CAME, meeting, value)
            if self._store.rank == 0:
                self._lead(meeting, conclude, deadline)
            elif not self._is_over(meeting, deadline):
                self._ask_who_is_late(meeting)
        finally:
            self._exchange.release(meeting)
        missing = self._late.pop(meeting, None)
        if missing is not None:
            raise self._too_late(name, missing, secs)
        return self._conclusions.pop(meeting)

    def _lead(
        self, meeting: str, conclude: Callable[[Sequence[str]], str], deadline: float
    ) -> None:
        came, size = self._came[meeting], self._store.size
        name, _, turn = meeting.rpartition("/")
        if not self._exchange.is_attended:
            self._exchange.set(f"at/{name}", turn)
        if not self._exchange.wait_until(
            lambda: len(came) == size or self._is_told(meeting), deadline
        ):
            self._name_missing(0, meeting)
        elif not self._is_told(meeting):
            values = [came[rank] for rank in range(size)]
            self._exchange.tell(_CONCLUDED, meeting, conclude(values))
            self._exchange.trim()
        self._is_over(meeting, deadline)  # or there is a failure

    def _ask_who_is_late(self, meeting: str) -> None:
        """Ask rank 0, if it listens: in a training, or because it has come."""
        name, _, turn = meeting.rpartition("/")
        if self._exchange.is_attended or self._exchange.get(f"at/{name}") == turn:
            self._exchange.say(_ASKS, meeting)
            if self._is_over(meeting, clock.monotonic() + self._store.grace_secs):
                return
        self._late[meeting] = [0]

    def _is_told(self, meeting: str) -> bool:
        return meeting in self._conclusions or meeting in self._late

    def _is_over(self, meeting: str, deadline: float) -> bool:
        return self._exchange.wait_until(lambda: self._is_told(meeting), deadline)

    def _take(self, rank: int, meeting: str, value: str) -> None:
        self._came[meeting][rank] = value
        self._exchange.notify()

    def _name_missing(self, _: int, meeting: str) -> None:
        came = self._came[meeting]
        if len(came) < self._store.size and not self._is_told(meeting):
            missing = [rank for rank in range(self._store.size) if rank not in came]
            self._exchange.tell(_LATE, meeting, missing)

    def _keep(self, meeting: str, conclusion: str) -> None:
        self._conclusions[meeting] = conclusion
        self._close(meeting)

    def _give_up(self, meeting: str, missing: list[int]) -> None:
        self._late[meeting] = missing
        self._close(meeting)

    def _close(self, meeting: str) -> None:
        self._came.pop(meeting, None)
        self._exchange.forget(meeting)

    def _too_late(self, name: str, missing: Iterable[int], secs: float) -> DeadlineExceededError:
        ranks = ", ".join(map(str, missing))
        return DeadlineExceededError(
            f"waited {secs:g} seconds for all {self._store.size} ranks at {name!r}: rank {ranks} "
            "has not come; all ranks must make the same calls, and see whether it hangs or is slow"
        )
