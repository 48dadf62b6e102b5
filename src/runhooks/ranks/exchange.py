"""``Exchange``: what the ranks of one training tell each other; ``Meetings``, which stand on it.

A rank tells rank 0 something by a message in rank 0's inbox; rank 0 tells all by an entry in a
log. One thread of each rank, its *ear*, waits for the next of these. Whoever tells of a failure
first writes it to the log itself.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from runhooks import clock
from runhooks.errors import DeadlineExceededError, OpError, PeerFailedError, UnavailableError
from runhooks.ranks.store import RankStore

_LOOKS = 10  # into the store in ``RankStore.silence_secs``
_LINGER_SECS = 5.0  # that an ear stays when nobody needs it

BYE = "bye"
_FAILED, _HELLO, _NOTHING = "failed", "hello", "nothing"
_TRAINING, _BYES = "training", "byes"
_CAME, _ASKS, _ENDED = "came", "asks who is late", "ended"


class Exchange:
    """One rank's part in the exchange of a training, whose keys begin with ``place``.

    Attributes:
        failure: Of a rank, which may be this one, or of the store: nothing is told any more.
        is_attended: Whether this rank listens all the time.
        at_failure: Called with the error to raise here; None: this rank tells of its own.
    """

    def __init__(self, store: RankStore, place: str) -> None:
        self._store = store
        self._place = place
        self._is_host = store.rank == 0
        self._handlers: dict[str, Callable[..., None]] = {
            _HELLO: lambda rank, word: store.welcome(word),
            _FAILED: lambda rank, *failure: self._end_with_failure(*failure),
            BYE: self._take_bye,
            _NOTHING: lambda rank: None,
        }
        self._order = threading.RLock()  # of what rank 0 takes and tells
        self._changed = threading.Condition()  # not held while the store is asked
        self._needs: set[str] = set()
        self._ear: threading.Thread | None = None
        self._waits_in_store = False
        self._is_lost = False
        self._heard = 0  # entries
        self._heard_by = [0] * store.size
        self._trimmed = 0  # entries that all have heard
        self._others = frozenset(range(1, store.size))
        self._gone: set[int] = set()
        self.is_attended = False
        self.failure: Exception | None = None
        self.at_failure: Callable[[Exception | None], None] = lambda error: None

    def handle(self, kind: str, handler: Callable[..., None]) -> None:
        """Call ``handler`` with what is told, or with who says it to rank 0 and what."""
        self._handlers[kind] = handler

    def need(self, what: str) -> None:
        """Listen until ``release(what)`` or a failure."""
        with self._changed:
            self._needs.add(what)
            self._changed.notify_all()
            if self._ear is not None or self._is_lost:
                return
            self._ear = threading.Thread(target=self._listen, name="runhooks-rank-ear", daemon=True)
            try:
                self._ear.start()
            except RuntimeError as error:
                self._ear = None
                raise UnavailableError(
                    f"no thread can be started that listens to the other ranks: {error}"
                ) from error

    def release(self, what: str) -> None:
        with self._changed:
            self._needs.discard(what)
            is_idle = not self._needs and self._waits_in_store and not self._is_lost
        self._wake(is_idle)  # else it waits there when this process exits

    def forget(self, what: str) -> None:
        """As ``release``, in the ear, which does not wait in the store."""
        with self._changed:
            self._needs.discard(what)
            self._changed.notify_all()

    def attend(self) -> None:
        self.is_attended = True
        if self.failure is None:
            self.need(_TRAINING)

    def leave(self) -> None:
        """Listen no more, but for what is needed; on rank 0, until the others have said bye."""
        if self._is_host:
            self.need(_BYES)
        self.is_attended = False
        self.release(_TRAINING)

    def say(self, kind: str, *content: Any) -> None:
        """Tell rank 0."""
        if self._is_host:
            with self._order:
                self._handlers[kind](0, *content)
        else:
            self._push(kind, *content)

    def tell(self, kind: str, *content: Any) -> None:
        """On rank 0, tell all ranks, also this one."""
        said = json.dumps([kind, *content])
        with self._order:
            if self.failure is None:
                self._hear(self._set_once(f"log/{self._heard + 1}", said))

    def trim(self) -> None:
        """On rank 0, delete what all ranks have heard."""
        with self._order:
            self._heard_by[0] = self._heard
            last = min(self._heard_by)
            for entry in range(self._trimmed + 1, last + 1):
                self._store.request(self._store.store_delete, f"{self._place}log/{entry}")
            self._trimmed = last

    def fail(self, rank: int, cause: str) -> None:
        """Tell all ranks that ``rank`` has failed. The first failure counts.

        Who comes later tells of the first, too, whose teller may have died. No lock is held: the
        collector may drop a session, which tells of it, wherever it runs.
        """
        said = json.dumps([_FAILED, rank, cause, self._store.rank])
        first, entry = self._set_once(_FAILED, said), 0
        while True:
            entry = max(entry, self._heard) + 1
            is_written = self._set_once(f"log/{entry}", first) == first
            # Else all have heard of another entry, since trimmed.
            if is_written and (self._heard < entry or self.failure is not None):
                break
        self._push(*json.loads(first))

    def look(self) -> None:
        found = self.get(_FAILED)
        if found is not None and self._store.has_entered:
            self._end_with_failure(*json.loads(found)[1:])

    def wait_until(self, done: Callable[[], bool], deadline: float) -> bool:
        """Return whether ``done()`` is true in time; raise what has failed."""
        while True:
            secs = min(deadline - clock.monotonic(), self._store.silence_secs / _LOOKS)
            with self._changed:
                is_told = self._changed.wait_for(lambda: done() or self.failure is not None, secs)
                if done():
                    return True
                if is_told:
                    raise self._raised()
            if clock.monotonic() >= deadline:
                return False
            self.look()

    def wait_for_byes(self, secs: float, failed: int | None = None) -> None:
        """On rank 0, wait until the others, ``failed`` excepted, need the store no more."""
        others = self._others - {failed}
        with self._changed:
            self._changed.wait_for(lambda: others <= self._gone or self._is_lost, secs)
            is_needed = _BYES in self._needs
        if is_needed:  # else the ear has taken the last bye
            self.release(_BYES)

    def lose(self, error: Exception) -> None:
        """End the exchange: the store cannot be used."""
        with self._changed:
            self._is_lost = True
        self._end(error)

    def set(self, key: str, value: str) -> None:
        self._store.request(self._store.store_set, self._place + key, value)

    def get(self, key: str) -> str | None:
        return self._store.request(self._store.store_get, self._place + key)

    def close(self) -> None:
        with self._changed:
            is_deaf, self._is_lost = self._waits_in_store, True
            self._changed.notify_all()
        self._wake(is_deaf)

    def notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _wake(self, is_waiting: bool) -> None:
        if is_waiting and self._is_host:
            with suppress(OpError):
                self._push(_NOTHING)

    def _listen(self) -> None:
        inbox, store = self._place + "inbox", self._store
        try:
            if not store.has_entered:
                store.enter(inbox)
                self.notify()
            while self._stays():
                if self._is_host:
                    self._take(*json.loads(store.store_pop(inbox)))
                else:
                    self._hear(store.store_listen(f"{self._place}log/{self._heard + 1}"))
        except Exception as error:  # noqa: BLE001 - whoever waits raises it
            self.lose(error)

    def _stays(self) -> bool:
        with self._changed:
            self._waits_in_store = False
            if self._changed.wait_for(lambda: bool(self._needs) or self._is_lost, _LINGER_SECS):
                self._waits_in_store = not self._is_lost
            if not self._waits_in_store:
                self._ear = None
            return self._waits_in_store

    def _take(self, rank: int, heard: int, kind: str, *content: Any) -> None:
        with self._order:
            self._heard_by[rank] = max(self._heard_by[rank], heard)
            self._handlers[kind](rank, *content)

    def _hear(self, entry: str) -> None:
        kind, *content = json.loads(entry)
        self._heard += 1
        if kind == _FAILED:
            self._end_with_failure(*content)
        else:
            self._handlers[kind](*content)

    def _take_bye(self, rank: int) -> None:
        with self._changed:
            self._gone.add(rank)
            if self._others <= self._gone:
                self._needs.discard(_BYES)
            self._changed.notify_all()

    def _end_with_failure(self, rank: int, cause: str, told_by: int) -> None:
        is_own = rank == told_by == self._store.rank
        self._end(PeerFailedError(rank, cause), is_own)

    def _end(self, error: Exception, is_own: bool = False) -> None:
        with self._changed:
            if self.failure is not None:
                return
            self.failure = error
            # Rank 0, where the store may be, stays until the others have heard of it.
            is_awaited = self._is_host and (self.is_attended or _BYES in self._needs)
            self._needs = {_BYES} if is_awaited else set()
            self._changed.notify_all()
        self.at_failure(None if is_own else error)

    def _raised(self) -> Exception:
        assert self.failure is not None
        if isinstance(self.failure, PeerFailedError):  # one for each caller
            return PeerFailedError(self.failure.rank, self.failure.cause)
        return self.failure

    def _push(self, kind: str, *content: Any) -> None:
        said = json.dumps([self._store.rank, self._heard, kind, *content])
        self._store.request(self._store.store_push, self._place + "inbox", said)

    def _set_once(self, key: str, value: str) -> str:
        return self._store.request(self._store.store_set_once, self._place + key, value)


class Meetings:
    """One rank's part in the meetings, in which rank 0 concludes from what all bring."""

    def __init__(self, store: RankStore, exchange: Exchange) -> None:
        self._store = store
        self._exchange = exchange
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()
        self._came: defaultdict[str, dict[int, str]] = defaultdict(dict)  # known to rank 0
        self._ended: dict[str, str | list[int]] = {}  # a conclusion, or who was missing
        exchange.handle(_CAME, self._take)
        exchange.handle(_ASKS, self._name_missing)
        exchange.handle(_ENDED, self._end)

    def agree(
        self, name: str, value: str, conclude: Callable[[Sequence[str]], str], secs: float
    ) -> str:
        deadline = clock.monotonic() + secs
        with self._lock:
            self._held[name] += 1
            meeting = f"{name}/{self._held[name]}"
        self._exchange.need(meeting)
        try:
            if not self._exchange.wait_until(lambda: self._store.has_entered, deadline):
                raise self._too_late(name, [0], secs)
            self._exchange.say(_CAME, meeting, value)
            if self._store.rank == 0:
                self._lead(meeting, conclude, deadline)
            elif not self._is_over(meeting, deadline):
                self._ask_who_is_late(meeting)
        finally:
            self._exchange.release(meeting)
        end = self._ended.pop(meeting)
        if isinstance(end, list):
            raise self._too_late(name, end, secs)
        return end

    def _lead(
        self, meeting: str, conclude: Callable[[Sequence[str]], str], deadline: float
    ) -> None:
        came, size = self._came[meeting], self._store.size
        name, _, turn = meeting.rpartition("/")
        if not self._exchange.is_attended:
            self._exchange.set(f"at/{name}", turn)
        if not self._exchange.wait_until(
            lambda: len(came) == size or meeting in self._ended, deadline
        ):
            self._name_missing(0, meeting)
        elif meeting not in self._ended:
            values = [came[rank] for rank in range(size)]
            self._exchange.tell(_ENDED, meeting, conclude(values))
            self._exchange.trim()
        self._is_over(meeting, deadline)  # or there is a failure

    def _ask_who_is_late(self, meeting: str) -> None:
        name, _, turn = meeting.rpartition("/")
        if self._exchange.is_attended or self._exchange.get(f"at/{name}") == turn:
            self._exchange.say(_ASKS, meeting)
            if self._is_over(meeting, clock.monotonic() + self._store.grace_secs):
                return
        self._ended[meeting] = [0]

    def _is_over(self, meeting: str, deadline: float) -> bool:
        return self._exchange.wait_until(lambda: meeting in self._ended, deadline)

    def _take(self, rank: int, meeting: str, value: str) -> None:
        self._came[meeting][rank] = value
        self._exchange.notify()

    def _name_missing(self, _: int, meeting: str) -> None:
        came = self._came[meeting]
        if len(came) < self._store.size and meeting not in self._ended:
            missing = [rank for rank in range(self._store.size) if rank not in came]
            self._exchange.tell(_ENDED, meeting, missing)

    def _end(self, meeting: str, end: str | list[int]) -> None:
        self._ended[meeting] = end
        self._came.pop(meeting, None)
        self._exchange.forget(meeting)

    def _too_late(self, name: str, missing: Iterable[int], secs: float) -> DeadlineExceededError:
        ranks = ", ".join(map(str, missing))
        return DeadlineExceededError(
            f"waited {secs:g} seconds for all {self._store.size} ranks at {name!r}: rank {ranks} "
            "has not come; all ranks must make the same calls, and see whether it hangs or is slow"
        )
