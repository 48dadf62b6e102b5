"""When a hook acts: ``SecondOrStepTimer`` decides it, ``Due`` says it in advance.

A step trigger means "at least n steps since the last time", never ``step % n``: a step that jumps,
a recovery and several steps in one run are then safe.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from runhooks import arguments, clock


class Due(NamedTuple):
    """The earliest moment at which a hook has something to do; the first of the three counts.

    ``step``: the run that is expected to take the global step to this value. ``time``: in seconds
    of ``clock.monotonic()``. ``runs``: the n-th run from now, 1 being the next one.
    """

    step: float = math.inf
    time: float = math.inf
    runs: float = math.inf


class SecondOrStepTimer:
    """Triggers at most once every n steps or every n seconds, and at the first step it sees.

    As TensorFlow's class of this name. Give exactly one of ``every_secs`` (seconds) and
    ``every_steps`` (steps).

    Raises ValueError if both or neither are given, or one is not above zero.
    """

    def __init__(self, every_secs: float | None = None, every_steps: int | None = None) -> None:
        arguments.exactly_one(every_secs=every_secs, every_steps=every_steps)
        arguments.positive(every_secs=every_secs, every_steps=every_steps)
        self._every_secs = every_secs
        self._every_steps = every_steps
        self.reset()

    def reset(self) -> None:
        """Forget when it last triggered; the next step triggers."""
        self._last_step: int | None = None
        self._last_time: float | None = None

    def should_trigger_for_step(self, step: int) -> bool:
        """Whether ``step`` triggers: never twice in a row for one and the same step."""
        if self._last_step is None or self._last_time is None:
            return True
        if step == self._last_step:
            return False
        if self._every_secs is not None:
            return clock.monotonic() >= self._last_time + self._every_secs
        assert self._every_steps is not None
        return step >= self._last_step + self._every_steps

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Note that ``step`` triggered now; return the seconds and steps since the time before."""
        now = clock.monotonic()
        if self._last_step is None or self._last_time is None:
            elapsed: tuple[float | None, int | None] = None, None
        else:
            elapsed = now - self._last_time, step - self._last_step
        self._last_time, self._last_step = now, step
        return elapsed

    def last_triggered_step(self) -> int | None:
        """The step that triggered last, or None."""
        return self._last_step

    def due(self) -> Due:
        """When it triggers next."""
        if self._last_step is None or self._last_time is None:
            return Due(step=-math.inf)
        if self._every_secs is not None:
            return Due(time=self._last_time + self._every_secs)
        assert self._every_steps is not None
        return Due(step=self._last_step + self._every_steps)
