"""``GlobalStepWaiterHook``: waits until others have made some steps."""

from __future__ import annotations

import math
import time
from typing import Any

from runhooks import arguments
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    StopSignal,
)
from runhooks.errors import OutOfRangeError
from runhooks.hooks.global_step import latest_step_of, required_global_step
from runhooks.hooks.log import log_of
from runhooks.trigger import Due

_LOOK_AGAIN_SECS = 0.5
_LOG_AGAIN_STEPS = 1000


class GlobalStepWaiterHook(SessionRunHook):
    """Holds the first run back until the global step has reached ``wait_until_step``.

    It is for workers that start one after the other, on a global step that others advance: other
    threads of this session, or other processes. A stop of the session ends the wait, and the loop:
    the run that was held back raises OutOfRangeError, which a monitored session takes for a good
    end. A stop of its coordinator ends the wait alone. As in ``tf.compat.v1.train``.
    """

    def __init__(self, wait_until_step: int) -> None:
        arguments.given(wait_until_step=wait_until_step)
        arguments.steps(-math.inf, wait_until_step=wait_until_step)
        self._wait_until_step = wait_until_step
        self._waited = False
        self._coord: StopSignal | None = None

    def begin(self) -> None:
        required_global_step(self)
        self._waited = self._wait_until_step <= 0

    def after_create_session(self, session: RawSession, coord: StopSignal | None) -> None:
        self._coord = coord

    def next_due(self) -> Due | None:
        return Due() if self._waited else None

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        if not self._waited:
            self._wait(run_context.session)
            self._waited = True
        return None

    def _wait(self, session: RawSession) -> None:
        # The global step tells nobody when it changes: it may be another process that changes it.
        stop: Any = getattr(session, "stop_request", None)
        logged: int | None = None
        while (step := latest_step_of(session)) < self._wait_until_step:
            if self._coord is not None and self._coord.should_stop():
                return
            if logged is None or step - logged >= _LOG_AGAIN_STEPS:
                log_of(session).info(
                    "waiting for the global step to reach %d: it is %d", self._wait_until_step, step
                )
                logged = step
            if stop is None:
                time.sleep(_LOOK_AGAIN_SECS)
            elif stop.wait(_LOOK_AGAIN_SECS):
                raise OutOfRangeError(
                    f"the wait for global step {self._wait_until_step} has ended at {step}: "
                    f"{stop.reason}"
                )
