"""``EarlyStoppingHook``: asks to stop when a function says so."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from runhooks.contract import (
    RawSession,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.hooks.global_step import required_global_step, step_of
from runhooks.trigger import Due, Trigger, timer_of

_log = logging.getLogger("runhooks")

#: How often it looks if nothing else is said; it gives way to a trigger.
RUN_EVERY_SECS = 60.0


class EarlyStoppingHook(SessionRunHook):
    """Asks to stop once ``should_stop()`` is true; ``name`` is what it is called.

    Raises ValueError unless exactly one of the last three arguments is given.
    """

    def __init__(
        self,
        name: str,
        should_stop: Callable[[], bool],
        run_every_secs: float | None,
        run_every_steps: int | None,
        trigger: Trigger | None,
    ) -> None:
        if trigger is not None and run_every_secs == RUN_EVERY_SECS:
            run_every_secs = None
        self._timer = timer_of(
            trigger, run_every_secs=run_every_secs, run_every_steps=run_every_steps
        )
        self._should_stop = should_stop
        self.hook_name = name

    def begin(self) -> None:
        required_global_step(self)
        self._timer.reset()

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._timer.start(step_of(session))

    def next_due(self) -> Due | None:
        return self._timer.due()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = step_of(run_context.session)
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            if self._should_stop():
                _log.info("%s asks to stop at step %d", self.hook_name, step)
                run_context.request_stop()

    def state_dict(self) -> Mapping[str, Any]:
        return self._timer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._timer.load_state_dict(state)
