"""``LocalGroup``: ranks that share the memory of one process; ``AloneGroup`` is one of these."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from runhooks.ranks.group import Group

_T = TypeVar("_T")


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
