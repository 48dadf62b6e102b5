"""``KeptBuffers``: the buffers of variables that a checkpoint is being written from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from runhooks.graph.tensor import Variable


class HostValues(NamedTuple):
    """How the values of variables get to the host for a checkpoint that is written beside runs.

    Attributes:
        read: From leaves of the values to what NumPy reads as arrays, now or later and in any
            thread. Runs do not change them.
        release: To call, in any thread, when these are needed no more.
    """

    read: Callable[[Sequence[Any]], list[Any]]
    release: Callable[[], None]


class KeptBuffers(ABC):
    """What lets a session write a checkpoint from the very buffers of its variables.

    It is for engines whose runs take over the buffers of the variables that they assign.
    """

    @abstractmethod
    def host_values(self, values: Mapping[Variable, Any]) -> HostValues | None:
        """Return how to write ``values``; None: copy them, and use the memory again."""

    @abstractmethod
    def concern(self, changed: Collection[Variable]) -> bool:
        """Whether a run that changes these variables is to be made by ``Engine.keeping_run``."""

    @abstractmethod
    def close(self) -> None:
        """Let go of all memory but that of the checkpoint being written; the session is over."""
