"""``ProgressHook``: shows how far the loop has come."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from runhooks import arguments, clock
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.hooks.global_step import next_step_of, required_global_step, step_of
from runhooks.hooks.named_tensors import NamedTensors
from runhooks.hooks.progress_display import Rate, display_for, progress_line
from runhooks.trigger import Due, SecondOrStepTimer


class ProgressHook(SessionRunHook):
    """Shows step, speed and time left: a bar on a terminal, a line every 5 seconds elsewhere.

    ``last_step``: where it ends; None: not known, no bar. ``tensors``: what else to show, as a
    dict by label or as a list; fetched once in ``every_n_steps`` steps and shown until the next
    time. ``stream``: where to; None: ``sys.stderr``.

    The fetches go by steps, and only what is shown by time: a run that is resumed fetches at the
    steps of one that was never stopped, and so computes the same.
    """

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
            raise TypeError(f"stream must be a text file that is open, got {stream!r}")
        self._last_step = last_step
        self._tensors = NamedTensors(tensors)
        self._timer = SecondOrStepTimer(every_steps=every_n_steps)
        self._display = display_for(stream or sys.stderr)

    def begin(self) -> None:
        required_global_step(self)
        self._fetches = self._tensors.fetches()
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

    def state_dict(self) -> Mapping[str, Any]:
        return self._timer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._timer.load_state_dict(state)

    def _show(self, step: int) -> None:
        values = [] if self._values is None else self._tensors.labelled(self._values)
        rate = self._rate.mark(step)
        self._display.show(
            progress_line(step, self._last_step, rate, values, self._display.bar_width)
        )
        self._next_show = clock.monotonic() + self._display.interval_secs
