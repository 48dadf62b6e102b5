"""The key-value store that the processes of one training share, and who asks it."""

from __future__ import annotations

import os
import queue
import threading
import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar, TypeVar

from runhooks import arguments
from runhooks.errors import UnavailableError

_T = TypeVar("_T")

_LOOKS = 10  # a process that was stopped misses only one


class Requests:
    """Asks a store, which may be frozen, in one thread for all others.

    No lock is held, as the collector may drop a session, which tells of it, wherever it runs.
    """

    def __init__(self) -> None:
        self._lost: str | None = None
        self._lines: list[_Line] = []  # of which the first is used

    def answer(self, secs: float, act: Callable[..., _T], *args: Any) -> _T:
        """Return ``act(*args)``; UnavailableError if nobody is answered for ``secs``."""
        line = self._lines[0] if self._lines else self._started()
        if threading.get_ident() == line.thread:
            return act(*args)
        answer: Future[_T] = Future()
        if self._lost is None:
            line.asked.put((answer, act, args))
        looks, answered = 0, line.answered
        while looks < _LOOKS:
            if self._lost is not None:
                raise UnavailableError(self._lost)
            try:
                answer.exception(secs / _LOOKS)
            except TimeoutError:
                # A store that answers others is there.
                looks, answered = (looks + 1 if line.answered == answered else 0), line.answered
                continue
            return answer.result()
        self._lost = (
            f"the store of the ranks has not answered for {secs:g} seconds: its host, rank 0 or "
            "the launcher, may be frozen or cut off"
        )
        raise UnavailableError(self._lost)

    def _started(self) -> _Line:
        line = _Line()
        thread = threading.Thread(target=line.work, name="runhooks-rank-requests", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise UnavailableError(
                f"no thread can be started that asks the store of the ranks: {error}"
            ) from error
        # Two threads that come here at once use the line of one.
        self._lines.append(line)
        if (first := self._lines[0]) is line:
            weakref.finalize(self, line.asked.put, None).atexit = False  # what exits may ask, too
        else:
            line.asked.put(None)
        return first


class _Line:
    """The requests that wait, and the thread that makes them."""

    def __init__(self) -> None:
        self.asked: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], Any] | None]
        self.asked = queue.SimpleQueue()
        self.answered = 0
        self.thread = 0

    def work(self) -> None:
        self.thread = threading.get_ident()
        while (request := self.asked.get()) is not None:
            answer, act, args = request
            try:
                answer.set_result(act(*args))
            except BaseException as error:  # noqa: BLE001 - whoever asks raises it
                answer.set_exception(error)
            self.answered += 1
            del request, answer, act, args  # the group may end while this waits


class RankStore(ABC):
    """What one rank asks of the store of its runtime.

    An adapter implements the abstract methods, and others if its runtime has a better way. They
    raise ``UnavailableError`` when the store is gone. One thread makes all requests but those of
    ``enter``, ``store_listen`` and ``store_pop``, which may wait: another calls these.

    Attributes:
        rank: The number of this process, from 0, of ``size``.
        grace_secs: The seconds that this rank has to leave its work after another has failed. Then
            the runtime is aborted, and the process ended.
        silence_secs: The seconds after which a process without a sign of life, or a store without
            an answer, has failed.
    """

    #: What the runtime is called in messages.
    runtime: ClassVar[str] = "the group"

    grace_secs: float = 30.0
    silence_secs: float = 100.0

    def __init__(self, rank: int, size: int) -> None:
        arguments.whole(1, size=size)
        arguments.whole(0, rank=rank)
        if rank >= size:
            raise ValueError(f"rank must be below size={size}, got {rank}")
        self.rank = rank
        self.size = size
        self._process = os.getpid()
        self._requests = Requests()
        self._popped: Counter[str] = Counter()

    def request(self, act: Callable[..., _T], *args: Any) -> _T:
        """Return ``act(*args)``, which asks the store."""
        self.check_process()
        return self._requests.answer(self.silence_secs, act, *args)

    def check_process(self) -> None:
        """Raise UnavailableError in a forked child: the others would take it for the rank."""
        if os.getpid() != self._process:
            raise UnavailableError(
                f"this process was forked by rank {self.rank}, process {self._process}, and has no "
                "part in its training: end it by os._exit, or start one with multiprocessing's "
                "method 'spawn'"
            )

    @property
    def has_entered(self) -> bool:
        """Whether the keys of this rank are those of the others."""
        return True

    def enter(self, inbox: str) -> None:  # noqa: B027
        """Wait until ``has_entered``.

        In the queue ``inbox`` rank 0 gets, of each rank, its number, 0, "hello" and a word for
        ``welcome``.
        """

    def welcome(self, word: str) -> None:  # noqa: B027
        """On rank 0, let in the rank that has said hello with ``word``."""

    @abstractmethod
    def store_get(self, key: str) -> str | None:
        """Return the value of ``key``, or None, at once."""

    @abstractmethod
    def store_set(self, key: str, value: str) -> None:
        """Set ``key``."""

    @abstractmethod
    def store_set_once(self, key: str, value: str) -> str:
        """Atomically set ``key``, unless it is set, and return its value."""

    @abstractmethod
    def store_delete(self, key: str) -> None:
        """Forget ``key``."""

    @abstractmethod
    def store_add(self, key: str) -> int:
        """Atomically add 1 to ``key``, at first 0, and return the sum."""

    @abstractmethod
    def store_listen(self, key: str) -> str:
        """Return the value of ``key`` once it is set, without polling."""

    def store_peek(self, keys: Sequence[str]) -> list[str | None]:
        """``store_get`` several keys; nobody may wait for one of them."""
        return [self.store_get(key) for key in keys]

    def store_push(self, key: str, value: str) -> None:
        """Put ``value`` at the end of the queue ``key``."""
        self.store_set(f"{key}/{self.store_add(f'{key}/last')}", value)

    def store_pop(self, key: str) -> str:
        """Take the first value of the queue ``key``, once there is one. One rank calls it."""
        place = f"{key}/{self._popped[key] + 1}"
        value = self.store_listen(place)
        self._popped[key] += 1
        self.store_delete(place)
        return value

    def abort(self) -> None:  # noqa: B027
        """Make hanging collective operations raise, if the runtime can; the group ends."""
