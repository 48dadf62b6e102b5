"""``PreparedRun``: a run that a session is ready to make again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from runhooks.graph.nest import FetchList, KnownFetches
from runhooks.graph.tensor import Operation, Tensor


class PreparedRun:
    """A run of some fetches, with some feeds, in one session.

    Attributes:
        fetches: Whoever gives this very object asks for this run.
        is_of: Returns whether this is a run of the fetches it is given, as far as that is quickly
            said.
        fed: None if nothing is fed; else the keys of the feed_dict.
        lasts: Whether it may be made again without being found again.
        steps: By how much it increases the global step.
        off_steps: How often it can be made before a hook is due, as far as steps and runs go. 0 if
            that is unknown, as when anything else has looked at variables since.
    """

    __slots__ = ("fed", "fetches", "is_of", "lasts", "off_steps", "steps")

    def __init__(
        self, fetches: Any, feed_keys: Iterable[Any], steps: int = 0, off_steps: float = 0
    ) -> None:
        self.lasts = True
        self.steps = steps
        self.off_steps = off_steps
        keys = dict.fromkeys(feed_keys)
        self.fed: Any = keys.keys() if keys else None
        is_whole = isinstance(fetches, (Tensor, Operation, str, FetchList))
        # What else is given may change until it is given again.
        self.fetches = fetches if is_whole else self
        self.is_of: Callable[[Any], bool] = KnownFetches(fetches).is_the_same_as

    def is_fed(self, feed_dict: Any) -> bool:
        """Return whether ``feed_dict`` feeds what this run is fed, as far as is quickly said."""
        return type(feed_dict) is dict and feed_dict.keys() == self.fed

    def foresee(self, off_steps: float) -> None:
        """Set ``off_steps``, where it is noticed if anything else looks at variables."""

    def again(self, feed_dict: Any) -> Any:
        """Make the run, as ``RawSession.run`` does; return the values of the fetches."""
        raise NotImplementedError
