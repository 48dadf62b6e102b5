"""``Placement``: which hooks of a training are called on which of its ranks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

from runhooks import clock
from runhooks.contract import SessionRunHook
from runhooks.graph.objects import StatefulObjects
from runhooks.ranks import Group

_MARGIN_SECS = 0.001


class GroupTime:
    """The time by which hooks of all ranks act: it moves only when the ranks agree on it.

    It is counted from the start of the training, by the clock of the chief, and told in seconds
    of the monotonic clock of this process.
    """

    def __init__(self) -> None:
        self._start = clock.monotonic()
        self.now = self._start

    def strike(self) -> str:
        """Return the time of this rank, for all to take."""
        # What is due for the chief must be due for all, however their clocks are rounded.
        return repr(clock.monotonic() - self._start + _MARGIN_SECS)

    def take(self, text: str) -> None:
        """Take the time that ``strike`` has returned, here or on another rank."""
        self.now = max(self.now, self._start + float(text))

    def inside(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``call``, for which the time stands still."""

        def called(*args: Any) -> Any:
            with clock.standing_at(self.now):
                return call(*args)

        return called


class Placement:
    """Says where hooks run, and which of them live by the time of the group.

    Args:
        group: The ranks.
        objects: What the steps of the training change, if it is no variable.
    """

    def __init__(self, group: Group, objects: StatefulObjects | None) -> None:
        self._group = group
        self._objects = objects
        self.time = GroupTime()

    def is_here(self, hook: SessionRunHook) -> bool:
        """Return whether ``hook`` is called on this rank."""
        return self._group.is_chief or self.is_shared(hook)

    def is_shared(self, hook: SessionRunHook) -> bool:
        """Return whether all ranks call ``hook``, in the same runs.

        Where a run is one program of all ranks they must all ask for the same, also for what only
        the chief writes; where they hold parts of objects, what may be made of these.
        """
        if self._group.runs_one_program or runs_on(hook) == "all":
            return True
        return getattr(hook, "asks_on_all", False) and self._holds_parts

    @cached_property
    def _holds_parts(self) -> bool:
        objects = self._objects
        return objects is not None and any(map(objects.is_spread, objects.names))

    def time_of(self, hook: SessionRunHook) -> AbstractContextManager[None]:
        """Return the context of a call of ``hook`` outside of runs."""
        return clock.standing_at(self.time.now) if self.is_shared(hook) else nullcontext()


def runs_on(hook: SessionRunHook) -> str:
    """Return where ``hook`` runs, ``"chief"`` or ``"all"``; foreign hooks run on all ranks."""
    return getattr(hook, "runs_on", "all")
