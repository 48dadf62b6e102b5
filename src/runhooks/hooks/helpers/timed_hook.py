"""``TimedHook``: the base class of hooks whose whole state is one timer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runhooks.contract import SessionRunHook
from runhooks.trigger import Timer


class TimedHook(SessionRunHook):
    """A hook that keeps its timer in checkpoints, and nothing else.

    It has no ``next_due``: a session heeds the one that stands beside ``before_run`` and
    ``after_run`` in a class.

    Args:
        timer: Says when the hook acts.
    """

    def __init__(self, timer: Timer) -> None:
        self._timer = timer

    def state_dict(self) -> Mapping[str, Any]:
        return self._timer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._timer.load_state_dict(state)
