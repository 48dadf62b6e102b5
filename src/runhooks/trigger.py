"""When a hook acts: ``Trigger`` says it, a ``Timer`` follows it, ``Due`` says it in advance.

A step trigger means "at least n steps since the last time", never ``step % n``: a step that jumps,
a recovery and several steps in one run are then safe.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from runhooks import arguments, clock


class Due(NamedTuple):
    """The earliest moment at which a hook has something to do; the first of the three counts.

    ``step``: the run that is expected to take the global step to this value. ``time``: in seconds
    of ``clock.monotonic()``. ``runs``: the n-th run from now, 1 being the next one.
    """

    step: float = math.inf
    time: float = math.inf
    runs: float = math.inf


@dataclass(frozen=True)
class Trigger:
    """When a hook acts: as soon as any of what is given here says so. A plain value.

    ``every_steps``, ``every_secs``: at the first step, then once that many steps or seconds have
    passed since the last time; 0 seconds: at every step. ``on_steps``: at these global steps, or
    the first step after one that is jumped over. ``at_end``: when the loop ends well, unless it
    acted at that very step.

    Raises ValueError if nothing is given, for steps not above zero and for seconds below,
    TypeError for what is of another kind.
    """

    every_steps: int | None = None
    every_secs: float | None = None
    on_steps: Collection[int] = ()
    at_end: bool = False

    def __post_init__(self) -> None:
        arguments.steps(every_steps=self.every_steps)
        arguments.not_negative(every_secs=self.every_secs)
        arguments.instance(Collection, on_steps=self.on_steps)
        arguments.instance(bool, at_end=self.at_end)
        for step in self.on_steps:
            arguments.steps(on_steps=step)
        if not (self.is_repeated or self.on_steps or self.at_end):
            raise ValueError(
                "a Trigger needs at least one of every_steps, every_secs, on_steps and at_end"
            )

    @property
    def is_repeated(self) -> bool:
        """Whether it acts again and again, and so at the first step too."""
        return self.every_steps is not None or self.every_secs is not None


class Timer:
    """Follows a trigger from step to step: it is asked at a step, and told when that is used."""

    def __init__(self, trigger: Trigger) -> None:
        self._trigger = trigger
        self._on_steps = sorted(trigger.on_steps)
        self._passed = -math.inf  # what is asked of steps up to here is done, or was missed
        self.reset()

    @property
    def trigger(self) -> Trigger:
        """What it follows."""
        return self._trigger

    def reset(self) -> None:
        """Forget when it last triggered; the next step triggers, if any is repeated."""
        self._last_step: int | None = None
        self._last_time: float | None = None
        self._last_wall = math.inf

    def start(self, step: int) -> None:
        """Note that a session starts at ``step``: what was triggered after it never happened."""
        if self._last_step is not None and self._last_step > step:
            self.reset()
        self._passed = step

    def should_trigger_for_step(self, step: int) -> bool:
        """Whether ``step`` triggers: never twice in a row for one and the same step."""
        if step == self._last_step:
            return False
        return step >= self._next_step() or self._secs_have_passed()

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Note that ``step`` triggered now; return the seconds and steps since the time before."""
        now = clock.monotonic()
        if self._last_step is None or self._last_time is None:
            elapsed: tuple[float | None, int | None] = None, None
        else:
            elapsed = now - self._last_time, step - self._last_step
        self._last_time, self._last_wall, self._last_step = now, clock.wall_as_told(), step
        self._passed = max(self._passed, step)
        return elapsed

    def last_triggered_step(self) -> int | None:
        """The step that triggered last, or None."""
        return self._last_step

    def should_trigger_at_end(self, step: int) -> bool:
        """Whether the end of the loop, at ``step``, triggers."""
        return self._trigger.at_end and step != self._last_step

    def due(self) -> Due:
        """When it triggers next."""
        return Due(step=self._next_step(), time=self._next_time())

    def state_dict(self) -> dict[str, Any]:
        """The step that triggered last, for a hook's ``state_dict``; nothing if none has."""
        return {} if self._last_step is None else {"last_triggered_step": self._last_step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state_dict`` returned. Seconds are counted from now."""
        self.reset()
        if state:
            self.update_last_triggered_step(state["last_triggered_step"])

    def _next_step(self) -> float:
        if self._trigger.is_repeated and self._last_step is None:
            return -math.inf
        index = bisect_right(self._on_steps, self._passed)
        on_step = self._on_steps[index] if index < len(self._on_steps) else math.inf
        if self._trigger.every_steps is None or self._last_step is None:
            return on_step
        return min(on_step, self._last_step + self._trigger.every_steps)

    def _secs_have_passed(self) -> bool:
        secs = self._trigger.every_secs
        if secs is None:
            return False
        # One clock stands still while a computer sleeps, the other may be set back.
        return (
            clock.monotonic() >= self._next_time() or clock.wall_as_told() >= self._last_wall + secs
        )

    def _next_time(self) -> float:
        if self._trigger.every_secs is None or self._last_time is None:
            return math.inf
        return self._last_time + self._trigger.every_secs


class SecondOrStepTimer(Timer):
    """Triggers at most once every n steps or every n seconds, and at the first step it sees.

    As TensorFlow's class of this name. Give exactly one of ``every_secs`` (seconds) and
    ``every_steps`` (steps).

    Raises ValueError if both or neither are given, and as ``Trigger``.
    """

    def __init__(self, every_secs: float | None = None, every_steps: int | None = None) -> None:
        arguments.exactly_one(every_secs=every_secs, every_steps=every_steps)
        super().__init__(Trigger(every_steps=every_steps, every_secs=every_secs))


def timer_of(trigger: Trigger | None, **cadence: float | None) -> Timer:
    """The timer of a hook that takes ``<..>_steps``, ``<..>_secs`` or, in place of both, a trigger.

    Raises ValueError, naming the arguments, unless exactly one of the three is given.
    """
    arguments.exactly_one(**cadence, trigger=trigger)
    arguments.instance(Trigger, trigger=trigger)
    steps = {name: value for name, value in cadence.items() if name.endswith("_steps")}
    arguments.steps(**steps)
    arguments.not_negative(**cadence)
    if trigger is not None:
        return Timer(trigger)
    (every_steps,) = steps.values()
    (every_secs,) = (value for name, value in cadence.items() if name not in steps)
    return Timer(Trigger(None if every_steps is None else int(every_steps), every_secs))
