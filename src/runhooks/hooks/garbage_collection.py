"""``GarbageCollectionHook``: collects garbage when it is due, and at no other time."""

from __future__ import annotations

import gc
import threading

from runhooks.contract import RawSession, StopSignal
from runhooks.hooks.base import PeriodicHook
from runhooks.trigger import DefaultSteps, Trigger, timer_of

_EVERY_N_STEPS = DefaultSteps(1000)


class GarbageCollectionHook(PeriodicHook):
    """Turns Python's automatic garbage collection off while training, and collects when due.

    A collection pauses the process for a moment, and with it all processes that wait for it in
    every step. With this hook, all processes collect when the session starts, and then at the same
    steps.

    Automatic collection is restored when the last session with such a hook has ended, normally or
    not.

        hooks = [rh.GarbageCollectionHook(every_n_steps=1000)]

    Args:
        every_n_steps: Collect at the multiples of this number.
        generation: The argument of ``gc.collect``. 2 collects everything; 1 is faster, but never
            frees objects that outlive one collection and then become part of a cycle.
        trigger: Says when to collect.

    Raises:
        ValueError: If both ``every_n_steps`` and ``trigger`` are given, or if ``generation`` is
            not 0, 1 or 2.
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
        super().__init__(timer_of(trigger, every_n_steps=every_n_steps))
        self._generation = generation
        self._is_off = False

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        super().after_create_session(session, coord)
        if not self._is_off:
            self._is_off = True
            _automatic.turn_off()
            gc.collect(self._generation)

    def end(self, session: RawSession) -> None:
        super().end(session)
        self._restore()

    def on_exception(self, session: RawSession | None, exception: BaseException) -> None:
        self._restore()

    def _act(self, session: RawSession) -> None:
        super()._act(session)
        gc.collect(self._generation)

    def _restore(self) -> None:
        if self._is_off:
            self._is_off = False
            _automatic.restore()


class _Automatic:
    """Python's automatic collection, off while any hook of the process needs that."""

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

    def restore(self) -> None:
        with self._lock:
            self._hooks -= 1
            if self._hooks == 0 and self._was_on:
                gc.enable()


_automatic = _Automatic()
