"""``StopAtStepHook``: stop the loop at a step."""

from __future__ import annotations

from runhooks import arguments
from runhooks.contract import (
    RawSession,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.hooks.global_step import required_global_step, step_of
from runhooks.hooks.log import log_of
from runhooks.trigger import Due


class StopAtStepHook(SessionRunHook):
    """Asks to stop when the global step has reached ``last_step``.

    ``num_steps`` in its place: that many steps after the one at which the session starts. As in
    ``tf.compat.v1.train``; but a run that is resumed at its last step, or after it, makes no
    further one.

    Raises ValueError unless exactly one of the two is given, and for one below zero.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        arguments.exactly_one(num_steps=num_steps, last_step=last_step)
        arguments.steps(0, num_steps=num_steps, last_step=last_step)
        self._num_steps = num_steps
        self._given_last_step = last_step
        self._last_step = last_step

    def begin(self) -> None:
        required_global_step(self)
        self._last_step = self._given_last_step

    def after_create_session(self, session: RawSession, coord: StopSignal | None) -> None:
        step = step_of(session)
        if self._last_step is None:
            assert self._num_steps is not None
            self._last_step = step + self._num_steps
        if step >= self._last_step and coord is not None:
            log = log_of(session)
            log.info("the global step is %d: nothing to do up to %d", step, self._last_step)
            coord.request_stop()

    def next_due(self) -> Due | None:
        return None if self._last_step is None else Due(step=self._last_step)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        assert self._last_step is not None
        if step_of(run_context.session) >= self._last_step:
            run_context.request_stop()
