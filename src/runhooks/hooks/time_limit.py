"""``TimeLimitHook``: stops the loop after a given time."""

from __future__ import annotations

import logging

from runhooks import arguments, clock
from runhooks.contract import SessionRunContext, SessionRunHook, SessionRunValues
from runhooks.hooks.helpers.session import step_or_none
from runhooks.trigger import Due

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
