"""What a checkpoint keeps of a timer, so that a resumed run triggers at the same steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runhooks.trigger import SecondOrStepTimer


def timer_state(timer: SecondOrStepTimer) -> dict[str, Any]:
    """The step that triggered last; nothing if none has."""
    step = timer.last_triggered_step()
    return {} if step is None else {"last_triggered_step": step}


def load_timer(timer: SecondOrStepTimer, state: Mapping[str, Any]) -> None:
    """Take back what ``timer_state`` returned. A timer in seconds counts them from now."""
    timer.update_last_triggered_step(state["last_triggered_step"])


def rewind_timer(timer: SecondOrStepTimer, step: int) -> None:
    """Reset ``timer`` if it triggered after ``step``, at which a session starts without a state."""
    last = timer.last_triggered_step()
    if last is not None and last > step:
        timer.reset()
