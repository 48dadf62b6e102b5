"""``GarbageCollectionHook``: collects garbage at steps of its own, and at no other time."""

from __future__ import annotations

import gc
import threading

from runhooks import arguments
from runhooks.contract import (
    RawSession,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.hooks.global_step import required_global_step, step_of
from runhooks.trigger import Due, Timer, Trigger

_EVERY_N_STEPS = 1000


class GarbageCollectionHook(SessionRunHook):
    """Turns Python's automatic garbage collection off while training, and collects when due.

    A collection stops the process for a moment, and the others that wait for it in every step:
    with this hook all collect at the same steps. ``every_n_steps`` or ``trigger``: when, the first
    step included. ``generation``: what ``gc.collect`` is given. 2 collects everything; 1 is faster,
    but what outlives one collection and is then part of a cycle is kept for good.

    Automatic collection is as it was once the last session with such a hook has ended, well or by
    an exception.

    Raises ValueError unless exactly one of ``every_n_steps`` and ``trigger`` is given, or if
    ``generation`` is not 0, 1 or 2.
    """

    def __init__(
        self,
        every_n_steps: int | None = _EVERY_N_STEPS,
        generation: int = 2,
        *,
        trigger: Trigger | None = None,
    ) -> None:
        if generation not in (0, 1, 2):
            raise ValueError(f"generation must be 0, 1 or 2, got {generation!r}")
        if trigger is not None and every_n_steps == _EVERY_N_STEPS:
            every_n_steps = None
        arguments.exactly_one(every_n_steps=every_n_steps, trigger=trigger)
        arguments.steps(every_n_steps=every_n_steps)
        arguments.instance(Trigger, trigger=trigger)
        self._timer = Timer(trigger or Trigger(every_steps=every_n_steps))
        self._generation = generation
        self._is_off = False

    def begin(self) -> None:
        required_global_step(self)

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._timer.reset()
        self._timer.start(step_of(session))
        if not self._is_off:
            self._is_off = True
            _automatic.turn_off()

    def next_due(self) -> Due | None:
        return self._timer.due()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = step_of(run_context.session)
        if self._timer.should_trigger_for_step(step):
            gc.collect(self._generation)
            self._timer.update_last_triggered_step(step)

    def end(self, session: RawSession) -> None:
        if self._timer.should_trigger_at_end(step_of(session)):
            gc.collect(self._generation)
        self._turn_back()

    def on_exception(self, session: RawSession | None, exception: BaseException) -> None:
        self._turn_back()

    def _turn_back(self) -> None:
        if self._is_off:
            self._is_off = False
            _automatic.turn_back()


class _Automatic:
    """Automatic collection, which is one for the process, as the hooks of all sessions want it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hooks = 0
        self._was_on = False

    def turn_off(self) -> None:
        with self._lock:
            if self._hooks == 0:
                self._was_on = gc.isenabled()
                gc.disable()
            self._hooks += 1

    def turn_back(self) -> None:
        with self._lock:
            self._hooks -= 1
            if self._hooks == 0 and self._was_on:
                gc.enable()


_automatic = _Automatic()
