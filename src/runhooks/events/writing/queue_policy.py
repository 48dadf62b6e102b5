"""Policies of a full queue: wait, raise, or drop and count."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Literal, Protocol, get_args

#: ``"wait"``: the caller waits until everything added before is written. ``"raise"``: the call
#: raises ``queue.Full``. ``"drop"``: the item is not written, but counted.
OnFull = Literal["wait", "raise", "drop"]

_logger = logging.getLogger("runhooks")


class QueuePolicy(Protocol):
    """A policy; one object for each queue."""

    @property
    def dropped(self) -> int:
        """Number of items that were dropped."""
        ...

    def admits(self, wait_for_room: Callable[[], object]) -> bool:
        """Return whether to add to the full queue; may call ``wait_for_room`` first."""
        ...


class Wait:
    """Lets the caller wait until there is room."""

    dropped = 0

    def admits(self, wait_for_room: Callable[[], object]) -> bool:
        wait_for_room()
        return True


class Raise:
    """Raises ``queue.Full`` with ``name``."""

    dropped = 0

    def __init__(self, name: str) -> None:
        self._name = name

    def admits(self, wait_for_room: Callable[[], object]) -> bool:
        raise queue.Full(
            f"the queue of {self._name} is full: add less, pass a larger max_queue, or wait "
            'with on_full="wait"'
        )


class Drop:
    """Drops items and counts them; logs the first one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._counting = threading.RLock()  # a signal handler may add, too
        self.dropped = 0

    def admits(self, wait_for_room: Callable[[], object]) -> bool:
        with self._counting:
            self.dropped += 1
            first = self.dropped == 1
        if first:
            _logger.warning(
                "the queue of %s is full: new items are dropped, and counted in `dropped`",
                self._name,
            )
        return False


def queue_policy(on_full: OnFull, name: str) -> QueuePolicy:
    """Return the policy ``on_full`` for the queue of ``name``.

    Raises:
        ValueError: If there is no such policy.
    """
    if on_full == "wait":
        return Wait()
    if on_full == "raise":
        return Raise(name)
    if on_full == "drop":
        return Drop(name)
    raise ValueError(f"on_full must be one of {get_args(OnFull)}, got {on_full!r}")
