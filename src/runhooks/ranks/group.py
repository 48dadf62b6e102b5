"""``Group``: the processes of one training, the key-value store they share, and the current one."""

from __future__ import annotations

import json
import os
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from runhooks import arguments, clock
from runhooks.errors import DeadlineExceededError, PeerFailedError, UnavailableError
from runhooks.ranks.requests import Requests

_T = TypeVar("_T")

#: Between two looks into the store: a tenth of the wait so far, within these limits, in seconds.
_LOOK_AGAIN_SECS = (0.0002, 0.05)
_LOOK_FOR_FAILURE_SECS = 0.1


class Group(ABC):
    """The processes of one training, and the key-value store that they share.

    Any thread may call any method, and none uses the framework's collective operations: ranks wait
    for keys. Every wait except that of ``listen`` ends: with the result, with ``PeerFailedError``
    if a rank has failed, with ``UnavailableError`` if the store is gone or does not answer for
    ``silence_secs``, or this process is a fork, or with ``DeadlineExceededError``.

    An adapter for a runtime implements ``store_get``, ``store_set``, ``store_set_once``,
    ``store_delete``, ``store_listen`` and ``abort``. They raise ``UnavailableError`` when the store
    is gone. One thread makes all requests but those of ``store_listen``, which another calls.

    Args:
        rank: The number of this process, from 0.
        size: How many processes there are.

    Attributes:
        rank: The number of this process.
        size: How many processes there are.
        chief: The rank that writes event files and logs and commits checkpoints.
        barrier_secs: The default time in seconds that ranks wait for each other.
        grace_secs: The seconds after another rank's failure that this rank has to leave its current
            work, before the runtime is aborted and finally the process is ended.
        silence_secs: The seconds without a sign of life after which a process counts as failed,
            and without an answer after which the store does.
        error: What has failed on this rank beside its loop; None if nothing has.
    """

    #: What the runtime is called in messages.
    runtime: ClassVar[str] = "the group"

    #: Whether all ranks must ask for the same in the same run, since a run is one program of them.
    runs_one_program: ClassVar[bool] = False

    #: Whether each rank is a process of its own.
    has_own_process: ClassVar[bool] = True

    barrier_secs: float = 600.0
    grace_secs: float = 30.0
    silence_secs: float = 100.0

    def __init__(self, rank: int, size: int) -> None:
        arguments.whole(1, size=size)
        arguments.whole(0, rank=rank)
        if rank >= size:
            raise ValueError(f"rank must be below size={size}, got {rank}")
        self.rank = rank
        self.size = size
        self.chief = 0
        self.error: Exception | None = None
        self._training = 0
        self._process = os.getpid()
        self._requests = Requests()
        self._passed: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def is_chief(self) -> bool:
        """Whether this process writes event files and logs, and commits checkpoints."""
        return self.rank == self.chief

    def start_training(self) -> None:
        """Begin a new training; keys, barriers and failures of earlier ones no longer count.

        All ranks start their trainings in the same order.
        """
        with self._lock:
            self._training += 1
            self._passed.clear()
            self.error = None

    def set(self, key: str, value: str) -> None:
        """Set or replace ``key``."""
        self.request(self.store_set, self._key(key), value)

    def set_once(self, key: str, value: str) -> str:
        """Set ``key`` unless a rank already has, and return its value."""
        return self.request(self.store_set_once, self._key(key), value)

    def get(self, key: str) -> str | None:
        """Return the value of ``key``; None if nobody has set it."""
        return self.request(self.store_get, self._key(key))

    def delete(self, key: str) -> None:
        """Delete ``key``; nothing happens if it is not set."""
        self.request(self.store_delete, self._key(key))

    def listen(self, key: str) -> str:
        """Wait without a limit until ``key`` is set, and return its value; for threads.

        Unlike ``gather`` it heeds no failure and costs the store nothing.
        """
        return self.store_listen(self._key(key))

    def gather(self, name: str, value: str, timeout_secs: float | None = None) -> list[str]:
        """Return the ``value`` of every rank, in order, once all ranks have called it.

        Args:
            name: What the ranks do; each calls it equally often under that name.
            value: What this rank contributes.
            timeout_secs: How many seconds to wait; None: ``barrier_secs``.

        Raises:
            PeerFailedError: If a rank has failed, also if it is this one.
            DeadlineExceededError: Naming the ranks that were missing.
        """
        arguments.instance(str, name=name, value=value)
        secs = self._secs(timeout_secs)
        deadline = clock.monotonic() + secs
        with self._lock:
            self._passed[name] += 1
            turn = self._passed[name]
        place = f"at/{name}/{turn}"
        self.set(f"{place}/{self.rank}", value)
        collect = self._collect if self.rank == 0 else self._collected
        together = collect(place, deadline)
        if together is None:
            missing = [rank for rank in range(self.size) if self.get(f"{place}/{rank}") is None]
            raise self.too_late(name, missing, secs)
        if self.rank == 0 and turn > 1:  # whoever is here has left the one before
            self._forget(f"at/{name}/{turn - 1}")
        values: list[str] = json.loads(together)
        return values

    def barrier(self, name: str, timeout_secs: float | None = None) -> None:
        """Return once all ranks have called it, like ``gather`` without values."""
        self.gather(name, "", timeout_secs)

    def fail(self, cause: str, rank: int | None = None) -> None:
        """Tell all ranks that this one, or ``rank``, has failed. The first failure counts."""
        failed = self.rank if rank is None else rank
        self.set_once("failed", json.dumps([failed, cause, self.rank]))

    def failure(self) -> PeerFailedError | None:
        """Return the error for the failure of another rank; None if none has failed.

        Also for that of this rank, if it is another that says so.
        """
        found, told_by = self._failure()
        return None if found is None or found.rank == told_by == self.rank else found

    def failed_rank(self) -> int | None:
        """Return the rank that has failed, which may be this one; None if none has."""
        found, _ = self._failure()
        return None if found is None else found.rank

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
    def store_listen(self, key: str) -> str:
        """Return the value of ``key`` once it is set."""

    def abort(self) -> None:  # noqa: B027 - not every runtime can
        """Make hanging collective operations raise, if the runtime can; the group ends."""

    def _key(self, key: str) -> str:
        return f"runhooks/{self._training}/{key}"

    def _failure(self) -> tuple[PeerFailedError | None, int | None]:
        """Return the failure that counts, and the rank that has told of it."""
        found = self.get("failed")
        if found is None:
            return None, None
        rank, cause, told_by = json.loads(found)
        return PeerFailedError(rank, cause), told_by

    def _secs(self, timeout_secs: float | None) -> float:
        arguments.not_negative(timeout_secs=timeout_secs)
        return self.barrier_secs if timeout_secs is None else timeout_secs

    def _wait(self, key: str, deadline: float) -> str | None:
        start = looked = clock.monotonic()
        shortest, longest = _LOOK_AGAIN_SECS
        while (value := self.get(key)) is None:
            now = clock.monotonic()
            if now >= deadline or now - looked >= _LOOK_FOR_FAILURE_SECS:
                looked = now
                failure, _ = self._failure()
                if failure is not None:  # also that of this rank: nobody comes to meet it any more
                    raise failure
            if now >= deadline:
                return None
            time.sleep(min(max(shortest, (now - start) / 10), longest, deadline - now))
        return value

    def _collect(self, place: str, deadline: float) -> str | None:
        values = []
        for rank in range(self.size):
            value = self._wait(f"{place}/{rank}", deadline)
            if value is None:
                return None
            values.append(value)
        together = json.dumps(values)
        self.set(f"{place}/all", together)
        return together

    def _collected(self, place: str, deadline: float) -> str | None:
        return self._wait(f"{place}/all", deadline)

    def _forget(self, place: str) -> None:
        for last in (*range(self.size), "all"):
            self.delete(f"{place}/{last}")

    def too_late(self, name: str, missing: Iterable[int], secs: float) -> DeadlineExceededError:
        """Return the error for ranks that have not reached ``name`` within ``secs`` seconds."""
        ranks = ", ".join(map(str, missing)) or "0"  # 0 has not told the others that all are here
        return DeadlineExceededError(
            f"waited {secs:g} seconds for all {self.size} ranks at {name!r}: rank {ranks} has not "
            "come; all ranks must make the same calls, and see whether it hangs or is slow"
        )


class LocalGroup(Group):
    """A rank in a thread of one process, for tests; ``LocalGroup.together(n)`` creates all ranks.

    Args:
        rank: The number of this rank, from 0.
        size: How many ranks there are.
        memory: The memory that they share; None: a new one.
    """

    runtime: ClassVar[str] = "one process"
    has_own_process: ClassVar[bool] = False

    def __init__(self, rank: int, size: int, memory: _Memory | None = None) -> None:
        super().__init__(rank, size)
        self._memory = memory or _Memory()

    @classmethod
    def together(cls, size: int) -> list[LocalGroup]:
        """Return the ``size`` ranks of a new group."""
        memory = _Memory()
        return [cls(rank, size, memory) for rank in range(size)]

    def request(self, act: Callable[..., _T], *args: Any) -> _T:
        self.check_process()
        return act(*args)  # memory answers at once

    def store_get(self, key: str) -> str | None:
        return self._memory.values.get(key)

    def store_set(self, key: str, value: str) -> None:
        with self._memory.changed:
            self._memory.values[key] = value
            self._memory.changed.notify_all()

    def store_set_once(self, key: str, value: str) -> str:
        with self._memory.changed:
            self._memory.changed.notify_all()
            return self._memory.values.setdefault(key, value)

    def store_delete(self, key: str) -> None:
        with self._memory.changed:
            self._memory.values.pop(key, None)

    def store_listen(self, key: str) -> str:
        with self._memory.changed:
            self._memory.changed.wait_for(lambda: key in self._memory.values)
            return self._memory.values[key]


class AloneGroup(LocalGroup):
    """A process that trains alone and waits for nobody."""

    def __init__(self) -> None:
        super().__init__(0, 1)


class _Memory:
    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.changed = threading.Condition()


class _Stack(threading.local):
    def __init__(self) -> None:
        self.groups: list[Group] = []


_ALONE = AloneGroup()
_stack = _Stack()
_finders: list[Callable[[], Group | None]] = []


def find_group_with(find: Callable[[], Group | None]) -> None:
    """Ask ``find`` for the group of this process; it returns None if it has none."""
    _finders.append(find)


def current_group() -> Group:
    """Return the group of this process: of ``torch.distributed`` or ``jax.distributed``.

    An ``AloneGroup`` if neither is initialized, or has one process. Imports no framework.
    """
    if _stack.groups:
        return _stack.groups[-1]
    found = (find() for find in _finders)
    return next((group for group in found if group is not None and group.size > 1), _ALONE)


@contextmanager
def entered(group: Group) -> Iterator[None]:
    """Make ``group`` the current group of this thread inside the ``with`` block."""
    _stack.groups.append(group)
    try:
        yield
    finally:
        _stack.groups.pop()
