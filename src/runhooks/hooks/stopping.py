"""Hooks that stop the loop at a step, or after a given time."""

from __future__ import annotations

import logging
import math

from runhooks import arguments, clock
from runhooks.contract import (
    RawSession,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.hooks.base import StepReadingHook, log_of, step_of, step_or_none
from runhooks.trigger import Due

#: So many runs without a step are a loop that never ends, not the preparation of a training.
_MANY_RUNS = 200


class StopAtStepHook(StepReadingHook):
    """Asks to stop when the global step has reached ``last_step``.

    As in ``tf.compat.v1.train``, except that a run resumed at or after its last step makes no
    further step.

        hooks = [rh.StopAtStepHook(last_step=2000)]

    Args:
        num_steps: Stop this many steps after the step at which the session starts.
        last_step: Stop at this global step.

    Raises:
        ValueError: Unless exactly one of the two is given, or if it is negative.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        arguments.exactly_one(num_steps=num_steps, last_step=last_step)
        arguments.steps(0, num_steps=num_steps, last_step=last_step)
        # As what is due, which ranks compare.
        self._stops_after = None if num_steps is None else Due(step=num_steps)
        self._stops_at = None if last_step is None else Due(step=last_step)
        self._last_step: float | None = last_step
        self._start: int | None = None  # where the session starts, until the step has moved
        self._runs = 0  # those that did not move it

    def begin(self) -> None:
        super().begin()
        self._last_step = None if self._stops_at is None else self._stops_at.step
        self._start = None

    def after_create_session(self, session: RawSession, coord: StopSignal | None) -> None:
        step = step_of(session)
        self._start, self._runs = step, 0
        if self._last_step is None:
            assert self._stops_after is not None
            self._last_step = step + self._stops_after.step
        if step >= self._last_step and coord is not None:
            log = log_of(session)
            log.info("nothing to train: at step %d, last_step is %d", step, self._last_step)
            coord.request_stop()

    def next_due(self) -> Due | None:
        if self._last_step is None:
            return None
        return Due(step=self._last_step, runs=math.inf if self._start is None else 1)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        assert self._last_step is not None
        step = step_of(run_context.session)
        if step >= self._last_step:
            run_context.request_stop()
        if self._start is not None:
            self._runs += 1
            if step == self._start and self._runs == _MANY_RUNS:
                log_of(run_context.session).warning(
                    "the global step is still %d after %d runs, and StopAtStepHook waits for %d: "
                    "run the train operation, as in session.run('train_op'), and add "
                    "global_step.assign_add(1) to it if it does not count",
                    *(step, self._runs, self._last_step),
                )
            if step > self._start or self._runs == _MANY_RUNS:
                self._start = None


_log = logging.getLogger("runhooks")


class TimeLimitHook(SessionRunHook):
    """Asks to stop when the monitored session has been open for ``secs`` seconds.

    The first run that starts after that time is the last one: leave time for it and for the final
    checkpoint. A resumed run has ``secs`` seconds again, like a job that is queued again. A
    recovery does not restart the clock.

        hooks = [rh.TimeLimitHook(secs=23.5 * 3600)]

    Args:
        secs: The limit in seconds.

    Raises:
        ValueError: If ``secs`` is not above zero.
    """

    def __init__(self, secs: float) -> None:
        arguments.given(secs=secs)
        arguments.positive(secs=secs)
        self._limit = Due(time=secs)  # from the start on; ranks compare what is due
        self._start = 0.0

    def begin(self) -> None:
        self._start, _ = clock.hook_times()

    def next_due(self) -> Due | None:
        return Due(time=self._start + self._limit.time)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        now, _ = clock.hook_times()
        passed = now - self._start
        if passed >= self._limit.time:
            _log.info(
                "asking to stop at step %s: the session has been open for %g seconds, its time "
                "limit is %g",
                step_or_none(run_context.session),
                round(passed, 2),
                self._limit.time,
            )
            run_context.request_stop()
