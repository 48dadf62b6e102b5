"""``WatchedRun``: an off-step in which hooks watch values, made again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runhooks.contract import PreparedRun


class WatchedRun(PreparedRun):
    """A run of what its caller asks for, together with what hooks watch.

    Args:
        fetches: What the caller asks for.
        run: The run of both, whose result is a list: that of the caller first.
        watch: Called with the rest of the list after each run.
    """

    __slots__ = ("_run", "_watch")

    def __init__(self, fetches: Any, run: PreparedRun, watch: Callable[[list[Any]], None]) -> None:
        self._run = run
        self._watch = watch
        super().__init__(fetches, run.fed or (), run.steps)

    @property
    def off_steps(self) -> float:
        """As that of the run itself."""
        return self._run.off_steps

    @off_steps.setter
    def off_steps(self, off_steps: float) -> None:
        self._run.off_steps = off_steps

    def is_fed(self, feed_dict: Any) -> bool:
        return self._run.is_fed(feed_dict)

    def foresee(self, off_steps: float) -> None:
        self._run.foresee(off_steps)

    def again(self, feed_dict: Any) -> Any:
        result, *watched = self._run.again(feed_dict)
        self._watch(watched)
        return result
