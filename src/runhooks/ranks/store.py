"""``RankStore``: the key-value store that the processes of one training share, and who asks it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

from runhooks import arguments
from runhooks.errors import UnavailableError
from runhooks.ranks.requests import Requests

_T = TypeVar("_T")


class RankStore(ABC):
    """What one rank asks of the store of its runtime.

    An adapter for a runtime implements ``store_get``, ``store_set``, ``store_set_once``,
    ``store_delete``, ``store_add`` and ``store_listen``, and the others if it has a better way.
    They raise ``UnavailableError`` when the store is gone. One thread makes all requests but those
    of ``enter``, ``store_listen`` and ``store_pop``, which another calls, because they may wait.

    Args:
        rank: The number of this process, from 0.
        size: How many processes there are.

    Attributes:
        rank: The number of this process.
        size: How many processes there are.
        grace_secs: The seconds after another rank's failure that this rank has to leave its current
            work, before the runtime is aborted and finally the process is ended.
        silence_secs: The seconds without a sign of life after which a process counts as failed,
            and without an answer after which the store does.
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
        """Return ``act(*args)``, which asks the store; UnavailableError if it does not answer."""
        self.check_process()
        return self._requests.answer(self.silence_secs, act, *args)

    def check_process(self) -> None:
        """Raise UnavailableError in a forked child: what it says would count as said by the rank.

        It has neither the threads of the rank nor connections of its own.
        """
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

    def enter(self, inbox: str) -> None:  # noqa: B027 - most have nothing to do
        """Return when the keys of this rank are those of the others; ``has_entered`` is true then.

        Args:
            inbox: The queue in which rank 0 gets messages of a rank that comes: its number, 0,
                "hello" and a word for ``welcome``.
        """

    def welcome(self, word: str) -> None:  # noqa: B027 - nobody says hello
        """On rank 0, let in the rank that has said hello with ``word``."""

    @abstractmethod
    def store_get(self, key: str) -> str | None:
        """Return the value of ``key``, or None, at once."""

    @abstractmethod
    def store_set(self, key: str, value: str) -> None:
        """Set ``key``."""

    @abstractmethod
    def store_set_once(self, key: str, value: str) -> str:
        """Atomically set ``key`` unless it is set, and return its value."""

    @abstractmethod
    def store_delete(self, key: str) -> None:
        """Forget ``key``."""

    @abstractmethod
    def store_add(self, key: str) -> int:
        """Atomically add 1 to the number ``key``, which begins with 0, and return the sum."""

    @abstractmethod
    def store_listen(self, key: str) -> str:
        """Return the value of ``key`` once it is set, without asking again and again."""

    def store_peek(self, keys: Sequence[str]) -> list[str | None]:
        """Return what ``store_get`` does of several keys, for none of which anybody waits."""
        return [self.store_get(key) for key in keys]

    def store_push(self, key: str, value: str) -> None:
        """Put ``value`` at the end of the queue ``key``."""
        self.store_set(f"{key}/{self.store_add(f'{key}/last')}", value)

    def store_pop(self, key: str) -> str:
        """Take the first value of the queue ``key`` once there is one; one rank alone does."""
        place = f"{key}/{self._popped[key] + 1}"
        value = self.store_listen(place)
        self._popped[key] += 1
        self.store_delete(place)
        return value

    def abort(self) -> None:  # noqa: B027 - not every runtime can
        """Make hanging collective operations raise, if the runtime can; the group ends."""
