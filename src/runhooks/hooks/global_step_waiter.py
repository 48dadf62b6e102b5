"""``GlobalStepWaiterHook``: waits for the global step to reach a value."""

from __future__ import annotations

import math

from runhooks import arguments
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    StopSignal,
)
from runhooks.engines.foreign import session_of
from runhooks.errors import OutOfRangeError
from runhooks.hooks.helpers.base import TensorFlowHook, latest_step_of, log_of
from runhooks.trigger import Due

_LOOK_AGAIN_SECS = 0.5
_LOG_AGAIN_STEPS = 1000


class GlobalStepWaiterHook(TensorFlowHook):
    """Delays the first run until the global step has reached ``wait_until_step``.

    As in ``tf.compat.v1.train``. Use it for workers that start one after the other, while other
    threads or processes advance the global step.

    If the session is asked to stop, the first run raises OutOfRangeError, which ends the loop
    normally. If the coordinator is asked to stop, only the wait ends.

        hooks = [rh.GlobalStepWaiterHook(wait_until_step=100)]  # of a worker that joins later

    Args:
        wait_until_step: The global step to wait for.
    """

    def __init__(self, wait_until_step: int) -> None:
        arguments.given(wait_until_step=wait_until_step)
        arguments.steps(-math.inf, wait_until_step=wait_until_step)
        self._wait_until_step = wait_until_step
        self._worker_is_started = False
        self._coord: StopSignal | None = None

    def begin(self) -> None:
        super().begin()
        self._worker_is_started = self._wait_until_step <= 0

    def after_create_session(self, session: RawSession, coord: StopSignal | None) -> None:
        self._coord = coord

    def next_due(self) -> Due | None:
        return Due() if self._worker_is_started else None

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        if not self._worker_is_started:
            self._wait(run_context.session)
            self._worker_is_started = True
        return None

    def _wait(self, session: RawSession) -> None:
        # Polls: another process may change the global step, and nothing announces that.
        stop = session_of(session).stop_request
        logged: int | None = None
        while (step := latest_step_of(session)) < self._wait_until_step:
            if self._coord is not None and self._coord.should_stop():
                return
            if logged is None or step - logged >= _LOG_AGAIN_STEPS:
                log_of(session).info(
                    "waiting for the global step to reach %d: it is %d", self._wait_until_step, step
                )
                logged = step
            if stop.wait(_LOOK_AGAIN_SECS):
                raise OutOfRangeError(
                    f"the wait for global step {self._wait_until_step} has ended at {step}: "
                    f"{stop.reason}"
                )
