"""``NextDue``: the moment at which the next hook of a session is due."""

from __future__ import annotations

import math
from collections.abc import Iterable

from runhooks import clock
from runhooks.graph.base import StepPart
from runhooks.session.scheduled_hook import ScheduledHook


class NextDue:
    """The least of the moments at which hooks are due, beside those that are called in every run.

    Attributes:
        always: Whether there are hooks that are called in every run.
        step: The global step.
        run: The number of the run.
        time: The time, by the monotonic clock; None: no hook goes by it.
        shared_time: The time at which a hook that lives by the time of the group is due.
    """

    def __init__(self) -> None:
        self.always = False
        self.step = self.run = math.inf
        self.time: float | None = None
        self.shared_time = math.inf

    def is_reached(self, step: int, run: int, part: StepPart) -> bool:
        """Return whether a hook is due in the run ``run``, which is to lead to ``step``.

        A hook that goes by steps or seconds is not due in a run of a part of a step.
        """
        if self.always or run >= self.run:
            return True
        return part is not StepPart.PART and (
            step >= self.step or (self.time is not None and clock.monotonic() >= self.time)
        )

    def find(self, hooks: Iterable[ScheduledHook]) -> bool:
        """Set it anew; return whether a hook is due already by the time of the group."""
        step, run, time, shared_time = math.inf, math.inf, math.inf, math.inf
        self.always = is_due = False
        for hook in hooks:
            if hook.always:
                self.always = True
                continue
            step, run = min(step, hook.step), min(run, hook.run)
            if (shared := hook.shared_time) is None:
                time = min(time, hook.time)
            elif shared.now < hook.time:
                shared_time = min(shared_time, hook.time)
            else:
                is_due = True
        self.step, self.run, self.shared_time = step, run, shared_time
        self.time = time if time < math.inf else None
        return is_due

    def runs_until(self, step: int, stride: int, runs: int) -> float:
        """Return how many runs can be made before a hook is due, as far as steps and runs go.

        Args:
            step: The global step now.
            stride: How many steps each of them makes.
            runs: How many were made.
        """
        by_steps = self.step - stride - step
        if by_steps < math.inf:
            by_steps = -(-by_steps // stride)
        return min(by_steps, self.run - 1 - runs)
