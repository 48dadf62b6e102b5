"""``ProgressHook``: shows how far the loop has come."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TextIO

from runhooks import arguments, clock
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunValues,
    StopSignal,
)
from runhooks.hooks.helpers.named_tensors import NamedTensors
from runhooks.hooks.helpers.progress_display import Rate, display_for, progress_line
from runhooks.hooks.helpers.session import next_step_of, required_global_step, step_of
from runhooks.hooks.helpers.timed_hook import TimedHook
from runhooks.ranks import current_group
from runhooks.trigger import Due, Timer, Trigger


class ProgressHook(TimedHook):
    """Shows step, speed and time left: a bar in a terminal, a line every 5 seconds elsewhere.

    A tensor is shown as of the last step that fetched it, up to ``every_n_steps`` ago. Tensors are
    fetched at fixed steps, independent of when they are shown, so a resumed run fetches and
    computes the same as an uninterrupted one. The speed is measured from the second display on,
    because the time before it may include compilation.

        hooks = [rh.ProgressHook(2000, ["loss"])]

    Args:
        last_step: The last global step; None: unknown, so no bar is shown. Beyond it there is none.
        tensors: A tensor or its name to show as well, a list of these, or a dict of them by label.
        every_n_steps: Fetch the tensors at step 1 and at the multiples of this number.
        stream: The text file to write to; None: ``sys.stderr``.
    """

    runs_on = "chief"
    asks_on_all: ClassVar[bool] = True

    def __init__(
        self,
        last_step: int | None = None,
        tensors: Mapping[str, Any] | Iterable[Any] = (),
        every_n_steps: int = 10,
        stream: TextIO | None = None,
    ) -> None:
        arguments.given(every_n_steps=every_n_steps)
        arguments.steps(last_step=last_step, every_n_steps=every_n_steps)
        if stream is not None and not hasattr(stream, "write"):
            raise TypeError(f"stream must be an open text file, got {stream!r}")
        super().__init__(Timer(Trigger(every_steps=every_n_steps, on_steps=[1])))
        self._last_step = last_step
        self._tensors = NamedTensors(tensors)
        self._display = display_for(stream or sys.stderr)

    def begin(self) -> None:
        required_global_step(self)
        self._fetches = self._tensors.fetches()
        self._is_shown = current_group().is_chief or self.runs_on == "all"
        self._timer.reset()

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._timer.start(step_of(session))
        self._rate = Rate()
        self._values: Mapping[Any, Any] | None = None
        self._next_show = -math.inf

    def next_due(self) -> Due | None:
        fetch = self._timer.due().step if self._fetches else math.inf
        return Due(step=fetch, time=self._next_show)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        due = self._timer.should_trigger_for_step(next_step_of(run_context))
        if self._fetches and due:
            return SessionRunArgs(self._fetches)
        return None

    def warm_up(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        return SessionRunArgs(self._fetches) if self._fetches else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = step_of(run_context.session)
        if run_values.results is not None:
            self._values = run_values.results
            self._timer.update_last_triggered_step(step)
        if clock.monotonic() >= self._next_show:
            self._show(step)

    def end(self, session: RawSession) -> None:
        self._show(step_of(session))
        self._display.finish()

    def on_exception(self, session: RawSession | None, exception: BaseException) -> None:
        self._display.finish()

    def _show(self, step: int) -> None:
        values = [] if self._values is None else self._tensors.labelled(self._values)
        rate = self._rate.mark(step)
        if self._is_shown:
            self._display.show(
                progress_line(step, self._last_step, rate, values, self._display.bar_width)
            )
        self._next_show = clock.monotonic() + self._display.interval_secs
