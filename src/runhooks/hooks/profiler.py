"""``ProfilerHook``: profiles a few steps every so often."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runhooks import arguments, clock
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.hooks.global_step import engine_of, next_step_of, required_global_step, step_of
from runhooks.hooks.log import log_of
from runhooks.hooks.time_apart import spent_apart
from runhooks.trigger import Due, Trigger, timer_of


class ProfilerHook(SessionRunHook):
    """Profiles ``num_steps`` steps, with the profiler of the engine, every so often.

    ``save_steps``, ``save_secs`` or ``trigger``: how often, counted from the step at which the
    session starts. ``output_dir``: where to. The python engine writes a trace of all Python calls,
    ``timeline-<first step>.json``, for Perfetto or chrome://tracing; the jax engine writes
    ``plugins/profile/step-<first step>``, which TensorBoard shows for the directory and whose
    ``perfetto_trace.json.gz`` Perfetto opens; the torch engine writes
    ``timeline-<first step>.pt.trace.json``, for either. As in ``tf.compat.v1.train``: on a graph of
    TensorFlow each step is a run traced by TensorFlow, ``timeline-<step>.json``, and recorded in
    the event file of the directory. ``show_dataflow`` and ``show_memory``, heeded there alone: show
    what tensors go where, and which are alive.

    The first step of a session, in which things are compiled, is profiled only if ``on_steps`` of
    a trigger name it. A profile holds these steps alone, with all that the device does for them:
    it is waited for before and after. No further step is begun after ``max_secs`` seconds. What
    goes wrong with a profiler is a warning, and the loop goes on. Between its steps the hook
    sleeps.

    Raises ValueError unless exactly one of ``save_steps``, ``save_secs`` and ``trigger`` is given,
    for a number not above zero, and for a trigger ``at_end``, where there is no step to profile.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | os.PathLike[str] = "",
        show_dataflow: bool = True,
        show_memory: bool = False,
        *,
        num_steps: int = 1,
        max_secs: float = 10.0,
        trigger: Trigger | None = None,
    ) -> None:
        self._timer = timer_of(trigger, save_steps=save_steps, save_secs=save_secs)
        arguments.given(num_steps=num_steps, max_secs=max_secs)
        arguments.whole(num_steps=num_steps)
        arguments.positive(max_secs=max_secs)
        if self._timer.trigger.at_end:
            raise ValueError(
                f"trigger must not have at_end, got {trigger!r}: no step is made at the end that "
                "could be profiled"
            )
        self._folder = Path(output_dir)
        self._shown = {"show_dataflow": show_dataflow, "show_memory": show_memory}
        self._num_steps = num_steps
        self._max_secs = max_secs
        self._stop: Callable[[], Path] | None = None  # ends the profile that is being taken
        self._trace: Any = None  # in its place, where runs are traced one by one
        self._last_step: float = math.inf
        self._deadline = math.inf
        self._first_step: int | None = None  # at which the session has started

    def begin(self) -> None:
        required_global_step(self)
        self._timer.reset()
        self._first_step = None

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._finish(session)  # what a lost session has left
        self._start(step_of(session))

    def _start(self, step: int) -> None:
        self._first_step = step
        self._timer.start(step)
        if self._timer.last_triggered_step() is None:
            self._timer.update_last_triggered_step(step)

    def next_due(self) -> Due | None:
        if self._trace is not None:
            return Due(runs=1)
        if self._stop is not None:
            return Due(step=self._last_step, time=self._deadline)
        return self._timer.due()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        session, step = run_context.session, next_step_of(run_context)
        if self._first_step is None:  # a loop of the caller's own told of no session
            self._start(step_of(session))
        if self._is_open:
            if clock.monotonic() >= self._deadline:
                self._close(session)
        elif self._is_due(session, step):
            self._timer.update_last_triggered_step(step)
            self._open(session, step)
        return None if self._trace is None else SessionRunArgs(None, options=self._trace.options)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if not self._is_open:
            return
        session = run_context.session
        step = step_of(session)
        if self._trace is not None:
            self._write(session, step, lambda: self._trace.add(step, run_values.run_metadata))
        if step >= self._last_step or clock.monotonic() >= self._deadline:
            self._close(session)

    def end(self, session: RawSession) -> None:
        if self._is_open:
            self._close(session)

    def on_exception(self, session: RawSession | None, exception: BaseException) -> None:
        self._finish(session)

    def state_dict(self) -> Mapping[str, Any]:
        return self._timer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._timer.load_state_dict(state)

    @property
    def _is_open(self) -> bool:
        return self._stop is not None or self._trace is not None

    def _is_due(self, session: RawSession, step: int) -> bool:
        is_first = step_of(session) == self._first_step and not self._timer.trigger.on_steps
        return not is_first and self._timer.should_trigger_for_step(step)

    def _open(self, session: RawSession, step: int) -> None:
        engine = engine_of(session)
        trace_runs = getattr(engine, "trace_runs", None)
        start_profile: Any = getattr(engine, "start_profile", None)
        if trace_runs is None and start_profile is None:
            text = "no profile of step %d: sessions of this kind have no profiler"
            log_of(session).warning(text, step)
            return
        _wait(session)
        with spent_apart(session):
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                if trace_runs is not None:
                    self._trace = trace_runs(self._folder, **self._shown)
                else:
                    self._stop = start_profile(self._folder, step)
            except Exception as error:  # noqa: BLE001 - training matters more
                log_of(session).warning("no profile of step %d: %r", step, error)
        self._last_step = step + self._num_steps - 1
        self._deadline = clock.monotonic() + self._max_secs

    def _close(self, session: RawSession) -> None:
        try:
            _wait(session)
        finally:
            self._finish(session)

    def _finish(self, session: RawSession | None) -> None:
        stop, self._stop, self._trace = self._stop, None, None
        if stop is not None:
            self._write(session, self._last_step, stop)

    def _write(self, session: RawSession | None, step: float, write: Callable[[], Path]) -> None:
        with spent_apart(session):
            try:
                log_of(session).info("wrote the profile %s", write())
            except Exception as error:  # noqa: BLE001 - training matters more
                log_of(session).warning("the profile up to step %s is lost: %r", step, error)


def _wait(session: RawSession) -> None:
    wait = getattr(session, "wait", None)
    if wait is not None:
        wait()
