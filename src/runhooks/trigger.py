"""When a hook acts: ``Trigger`` describes it, ``Timer`` follows it, ``Due`` announces it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

from runhooks import arguments, clock

_MOST_PARTS = 1000  # of an epoch


class Due(NamedTuple):
    """When a hook next has something to do; the earliest of these counts.

    Attributes:
        step: In the run expected to take the global step there.
        time: In seconds of ``clock.monotonic()``.
        runs: In the n-th run from now; 1 is the next.
        epoch: In the run expected to end so many epochs.
    """

    step: float = math.inf
    time: float = math.inf
    runs: float = math.inf
    epoch: float | Fraction = math.inf


def earliest(*dues: Due | None) -> Due | None:
    """Return the earliest of each kind in ``dues``; None, every run, if one is None."""
    known = [due for due in dues if due is not None]
    if len(known) < len(dues):
        return None
    return Due(*(min(moments) for moments in zip(*known, strict=True)))


class EpochsDone(Protocol):
    """How many epochs a session has trained on: ``session.epochs``."""

    def done_at(self, step: int) -> Fraction:
        """Return how many at ``step``: the present one, or that after the next run."""


@dataclass(frozen=True)
class Trigger:
    """Says when a hook acts: as soon as any of its conditions is met.

    Args:
        every_steps: At the multiples of this number, or the first step after a skipped one.
        every_secs: So many seconds after the last time or the start of the session; 0: each step.
        every_epochs: At the last step of every so many epochs; 0.5: also in the middle of each,
            where the data have a length.
        on_steps: At these global steps, or the first step after a skipped one.
        at_end: When the loop ends normally, unless the hook has acted at that step.

    Raises:
        ValueError: If nothing is given, or for steps below 1, seconds below 0, epochs below 0.001.
        TypeError: For a wrong type.
    """

    every_steps: int | None = None
    every_secs: float | None = None
    on_steps: Collection[int] = ()
    at_end: bool = False
    every_epochs: float | None = None

    def __post_init__(self) -> None:
        arguments.steps(every_steps=self.every_steps)
        arguments.not_negative(every_secs=self.every_secs)
        _check_epochs("every_epochs", self.every_epochs)
        arguments.instance(Collection, on_steps=self.on_steps)
        arguments.instance(bool, at_end=self.at_end)
        for step in self.on_steps:
            arguments.steps(on_steps=step)
        object.__setattr__(self, "on_steps", tuple(sorted(map(int, self.on_steps))))
        cadences = self.every_steps, self.every_secs, self.every_epochs
        if cadences == (None, None, None) and not (self.on_steps or self.at_end):
            raise ValueError(
                "a Trigger needs at least one of every_steps, every_secs, every_epochs, on_steps "
                "and at_end"
            )


def _check_epochs(name: str, value: float | None) -> None:
    arguments.positive(**{name: value})
    if value is not None and not 1 / _MOST_PARTS <= value < math.inf:
        raise ValueError(
            f"{name} must be at least {1 / _MOST_PARTS}, and finite, got {value!r}: for a smaller "
            "part of an epoch, go by steps"
        )


class Timer:
    """Follows a trigger from step to step, for your own hooks.

    ``trigger`` is an attribute, too. ``docs/write-a-hook.md`` has examples.
    """

    def __init__(self, trigger: Trigger) -> None:
        self.trigger = trigger
        self._on_steps = sorted(trigger.on_steps)
        self._epochs: EpochsDone | None = None
        self.reset()

    def reset(self) -> None:
        """Start over at step 0; seconds count from now."""
        self._last_step: int | None = None
        self._passed = 0  # steps that were used or missed
        self._passed_epochs = Fraction(0)
        self._since, self._since_wall = clock.hook_times()
        self.triggered_at = 0.0

    def start(self, step: int, epochs: EpochsDone | None = None) -> None:
        """Note that a session starts at ``step``; forget what was triggered at later steps.

        If nothing has triggered yet, seconds count from now. ``epochs`` are ``session.epochs``;
        ValueError if the trigger goes by epochs and there are none.
        """
        if self._last_step is not None and self._last_step > step:
            self.reset()
        if self._last_step is None:
            self._since, self._since_wall = clock.hook_times()
        self._passed = step
        if self.trigger.every_epochs is not None:
            if epochs is None:
                raise no_epochs(f"{self.trigger}")
            self._epochs = epochs
            self._passed_epochs = epochs.done_at(step)

    def should_trigger_for_step(self, step: int) -> bool:
        """Return whether ``step`` triggers; the one that triggered last does not."""
        if step == self._last_step:
            return False
        if self._epochs is not None and self._epochs.done_at(step) >= self._next_epoch():
            return True
        return step >= self._next_step() or self._secs_have_passed()

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Note that ``step`` triggers; return the seconds and steps since the last time.

        They are None the first time.
        """
        now, wall = clock.hook_times()
        elapsed: tuple[float | None, int | None] = None, None
        if self._last_step is not None:
            elapsed = clock.monotonic() - self.triggered_at, step - self._last_step
        self.triggered_at = clock.monotonic()
        self._since, self._since_wall, self._last_step = now, wall, step
        self._passed = max(self._passed, step)
        if self._epochs is not None:
            self._passed_epochs = self._epochs.done_at(step)
        return elapsed

    def last_triggered_step(self) -> int | None:
        """Return the step that triggered last, or None."""
        return self._last_step

    def should_trigger_at_end(self, step: int) -> bool:
        """Return whether the end of the loop, at ``step``, triggers."""
        return self.trigger.at_end and step != self._last_step

    def due(self) -> Due:
        """Return when it triggers next."""
        return Due(step=self._next_step(), time=self._next_time(), epoch=self._next_epoch())

    def state_dict(self) -> dict[str, Any]:
        """Return the step that triggered last, if any."""
        return {} if self._last_step is None else {"last_triggered_step": self._last_step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned; seconds count from now."""
        self.reset()
        self._epochs = None
        if "last_triggered_step" in state:
            self.update_last_triggered_step(state["last_triggered_step"])

    def _next_step(self) -> float:
        index = bisect_right(self._on_steps, self._passed)
        on_step = self._on_steps[index] if index < len(self._on_steps) else math.inf
        if self.trigger.every_steps is None:
            return on_step
        return min(on_step, self._next_regular_step(self.trigger.every_steps))

    def _next_regular_step(self, every_steps: int) -> float:
        return (self._passed // every_steps + 1) * every_steps

    def _next_epoch(self) -> float | Fraction:
        if self.trigger.every_epochs is None:
            return math.inf
        every = Fraction(self.trigger.every_epochs).limit_denominator(_MOST_PARTS)
        return (self._passed_epochs // every + 1) * every

    def _secs_have_passed(self) -> bool:
        secs = self.trigger.every_secs
        if secs is None:
            return False
        # One clock stands still while a computer sleeps; the other may be set back.
        now, wall = clock.hook_times()
        return now >= self._next_time() or wall >= self._since_wall + secs

    def _next_time(self) -> float:
        if self.trigger.every_secs is None:
            return math.inf
        return self._since + self.trigger.every_secs


class FirstStepTimer(Timer):
    """A timer that triggers at the first step, then n steps or seconds later."""

    def _next_step(self) -> float:
        return -math.inf if self._last_step is None else super()._next_step()

    # Programs read these names of TensorFlow's timers.

    @property
    def _every_steps(self) -> int | None:
        return self.trigger.every_steps

    @property
    def _every_secs(self) -> float | None:
        return self.trigger.every_secs

    @property
    def _last_triggered_step(self) -> int | None:
        return self._last_step

    @property
    def _last_triggered_time(self) -> float | None:
        return None if self._last_step is None else self._since_wall

    def _next_regular_step(self, every_steps: int) -> float:
        assert self._last_step is not None, "else any step triggers"
        return self._last_step + every_steps


class SecondOrStepTimer(FirstStepTimer):
    """A timer that triggers at the first step, then every n steps or seconds, as in TensorFlow.

    ``every_secs=0``: at every step. ValueError if both or neither are given, for steps below 1 and
    seconds below 0.
    """

    def __init__(self, every_secs: float | None = None, every_steps: int | None = None) -> None:
        arguments.exactly_one(every_secs=every_secs, every_steps=every_steps)
        super().__init__(Trigger(every_steps=every_steps, every_secs=every_secs))


def no_epochs(what: str) -> ValueError:
    return ValueError(
        f"{what} goes by epochs, and nothing says when one ends: the data are no loader, list or "
        "other iterable that can be iterated again; give the graph, or rh.inputs, steps_per_epoch, "
        "or a tf.Graph a number in the collection rh.GraphKeys.STEPS_PER_EPOCH"
    )


class DefaultSteps(int):
    """The default of a hook's ``..._steps``; it gives way to any argument."""


class DefaultSecs(float):
    """As ``DefaultSteps``, for an argument in seconds."""


def trigger_of(trigger: Trigger | None, **cadence: float | None) -> Trigger:
    """Return the trigger that the arguments of a hook ask for; ValueError unless one is given.

    Those not named ``..._secs`` or ``..._epochs`` are steps.
    """
    given: dict[str, Any] = {**cadence, "trigger": trigger}
    defaults = DefaultSteps | DefaultSecs
    explicit = {name: value for name, value in given.items() if not isinstance(value, defaults)}
    if any(value is not None for value in explicit.values()):
        given = {name: explicit.get(name) for name in given}
    arguments.exactly_one(**given)
    arguments.instance(Trigger, trigger=trigger)
    if trigger is not None:
        return trigger
    ((name, value),) = ((name, value) for name, value in given.items() if value is not None)
    if name.endswith("_secs"):
        arguments.not_negative(**{name: value})
        return Trigger(every_secs=value)
    if name.endswith("_epochs"):
        _check_epochs(name, value)
        return Trigger(every_epochs=value)
    arguments.steps(**{name: value})
    return Trigger(every_steps=int(value))


def timer_of(trigger: Trigger | None, **cadence: float | None) -> Timer:
    return Timer(trigger_of(trigger, **cadence))


def tensorflow_timer_of(trigger: Trigger | None, **cadence: float | None) -> Timer:
    """Return the timer of a hook of TensorFlow's; all but ``trigger`` act as there."""
    chosen = trigger_of(trigger, **cadence)
    return Timer(chosen) if trigger is not None else FirstStepTimer(chosen)
