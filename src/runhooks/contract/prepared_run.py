"""``PreparedRun``: the run that a session has made last, and is ready to make again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from runhooks.graph.nest import FetchList
from runhooks.graph.tensor import Operation, Tensor

_LEAVES = (Tensor, Operation, str)


class PreparedRun:
    """A run of some fetches, with some feeds, in one session.

    Attributes:
        fetches: Whoever gives this very object asks for this run.
        fed: None if nothing is fed; else the keys of the feed_dict.
        steps: By how much it increases the global step.
        off_steps: How often it can be made before a hook is due, as far as steps and runs go. 0 if
            that is unknown, as when anything else has looked at variables since.
    """

    __slots__ = ("_kind", "fed", "fetches", "off_steps", "steps")

    def __init__(self, fetches: Any, feed_keys: Iterable[Any], steps: int = 0) -> None:
        self.steps = steps
        self.off_steps: float = 0
        keys = dict.fromkeys(feed_keys)
        self.fed: Any = keys.keys() if keys else None
        kind = type(fetches)
        is_flat = kind is tuple or kind is list
        if isinstance(fetches, _LEAVES) or kind is FetchList:
            self.fetches, self._kind = fetches, str if kind is str else None
        elif is_flat and all(isinstance(leaf, _LEAVES) for leaf in fetches):
            self.fetches, self._kind = kind(fetches), kind  # the caller's list may change
        else:  # it would have to be compared item by item
            self.fetches, self._kind = object(), None

    def is_of(self, fetches: Any) -> bool:
        """Return whether this is a run of ``fetches``, as far as that is quickly said."""
        try:
            return type(fetches) is self._kind and bool(fetches == self.fetches)
        except (TypeError, ValueError):  # there is something in it that no graph has
            return False

    def is_fed(self, feed_dict: Any) -> bool:
        """Return whether ``feed_dict`` feeds what this run is fed, as far as is quickly said."""
        return type(feed_dict) is dict and feed_dict.keys() == self.fed

    def foresee(self, off_steps: float) -> None:
        """Set ``off_steps``, where it is noticed if anything else looks at variables."""

    def again(self, feed_dict: Any) -> Any:
        """Make the run, as ``RawSession.run`` does; return the values of the fetches."""
        raise NotImplementedError
