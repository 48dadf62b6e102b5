"""``ProfilerHook``."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runhooks import arguments, clock
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunValues,
    StopSignal,
)
from runhooks.engines.foreign import session_of
from runhooks.errors import described
from runhooks.events.place import place, rank_folder
from runhooks.hooks.base import (
    TensorFlowHook,
    TimedHook,
    log_of,
    next_step_of,
    not_training,
    step_of,
)
from runhooks.stores.path import StorePath, path_of
from runhooks.trigger import Due, Trigger, tensorflow_timer_of


class ProfilerHook(TimedHook, TensorFlowHook):
    """Profiles ``num_steps`` steps at a cadence, with the engine's own profiler.

    As in ``tf.compat.v1.train``. Each engine writes its own kind of file to ``output_dir``:

    - python: ``profile-<first step>.pstats``, for ``python -m pstats`` or snakeviz;
    - jax: ``plugins/profile/step-<first step>``, for TensorBoard; the ``perfetto_trace.json.gz`` in
      it is for Perfetto;
    - torch: ``timeline-<first step>.pt.trace.json``, for TensorBoard or Perfetto;
    - TensorFlow: ``timeline-<step>.json`` for each step, for Perfetto or chrome://tracing; and run
      metadata in the event file of the directory.

    The hook waits for the device before and after, so a profile has all work of these steps and no
    other. The first step of a session, which compiles, is profiled only if the ``on_steps`` of a
    trigger name it. A profiler that fails causes a warning.

        trigger = rh.Trigger(on_steps=[100])
        hooks = [rh.ProfilerHook(output_dir="runs/a", num_steps=5, trigger=trigger)]

    Args:
        save_steps: Steps from one profile to the next, counted from the start of the session.
        save_secs: Seconds from one profile to the next.
        output_dir: The directory to write to.
        show_dataflow: Show which tensors go where; TensorFlow only.
        show_memory: Show which tensors are alive; TensorFlow only.
        num_steps: Steps per profile.
        max_secs: After this many seconds, no step is added to a profile.
        trigger: When to profile.

    Raises:
        ValueError: Unless exactly one cadence is given; for a number that is not above zero, and a
            trigger with ``at_end``.
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
        if "_save" in dir(self):
            raise TypeError(
                f"{type(self).__name__} overrides _save, which only TensorFlow's hook calls: "
                "override before_run, after_run or end instead"
            )
        super().__init__(tensorflow_timer_of(trigger, save_steps=save_steps, save_secs=save_secs))
        arguments.given(num_steps=num_steps, max_secs=max_secs)
        arguments.whole(num_steps=num_steps)
        arguments.positive(max_secs=max_secs)
        if self._timer.trigger.at_end:
            raise ValueError(f"trigger must not have at_end, got {trigger!r}: no step comes then")
        self._output_dir = output_dir
        self._write_to(output_dir or ".")
        self._show_dataflow, self._show_memory = show_dataflow, show_memory
        self._num_steps = num_steps
        self._max_secs = max_secs
        self._stop: Callable[[], Path] | None = None
        self._trace: Any = None  # instead, where runs are traced one by one
        self._last_step: float = math.inf
        self._deadline = math.inf
        self._first_step: int | None = None

    def begin(self) -> None:
        super().begin()
        self._first_step = None
        self._write_to(rank_folder(self._output_dir or "."))

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._finish(session)  # the profile that a lost session was in
        self._start(session)

    def _start(self, session: RawSession) -> None:
        self._first_step = step = step_of(session)
        self._count_from_start(session, step)

    def next_due(self) -> Due | None:
        if self._trace is not None:
            return Due(runs=1)
        if self._stop is not None:
            return Due(step=self._last_step, time=self._deadline)
        return self._timer.due()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        session, step = run_context.session, next_step_of(run_context)
        if self._first_step is None:  # TensorFlow's own loop may never call after_create_session
            self._start(session)
        if self._is_open:
            if clock.hook_times()[0] >= self._deadline:
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
        if step >= self._last_step or clock.hook_times()[0] >= self._deadline:
            self._close(session)

    def end(self, session: RawSession) -> None:
        if self._is_open:
            self._close(session)

    def on_exception(self, session: RawSession | None, exception: BaseException) -> None:
        self._finish(session)

    @property
    def _is_open(self) -> bool:
        return self._stop is not None or self._trace is not None

    def _is_due(self, session: RawSession, step: int) -> bool:
        is_first = step_of(session) == self._first_step and not self._timer.trigger.on_steps
        return not is_first and self._timer.should_trigger_for_step(step)

    def _open(self, session: RawSession, step: int) -> None:
        framework = session_of(session).engine
        session_of(session).wait()
        with not_training(session):
            try:
                folder = self._made_folder()
                self._trace = framework.trace_runs(
                    folder,
                    self._directory,
                    session.graph,
                    show_dataflow=self._show_dataflow,
                    show_memory=self._show_memory,
                )
                if self._trace is None:
                    self._stop = framework.start_profile(folder, step)
                if not self._is_open:
                    text = "no profile of step %d: %s has no profiler"
                    log_of(session).warning(text, step, framework.title)
                    return
            except Exception as error:  # noqa: BLE001 - training matters more
                log_of(session).warning("no profile of step %d: %s", step, described(error))
        self._last_step = step + self._num_steps - 1
        self._deadline = clock.hook_times()[0] + self._max_secs

    def _close(self, session: RawSession) -> None:
        try:
            session_of(session).wait()
        finally:
            self._finish(session)

    def _finish(self, session: RawSession | None) -> None:
        stop, self._stop, self._trace = self._stop, None, None
        if stop is not None:
            self._write(session, self._last_step, stop)

    def _write(self, session: RawSession | None, step: float, write: Callable[[], Path]) -> None:
        with not_training(session):
            try:
                log_of(session).info("wrote the profile %s", self._published(write()))
            except Exception as error:  # noqa: BLE001 - training matters more
                text = "the profile up to step %s is lost: %s"
                log_of(session).warning(text, step, described(error))

    def _write_to(self, directory: str | os.PathLike[str]) -> None:
        self._directory = directory
        self._place = path_of(place(output_dir=directory))
        self._temporary: Path | None = None  # what goes to a store is first written there

    def _made_folder(self) -> Path:
        if not isinstance(self._place, StorePath):
            self._place.mkdir(parents=True, exist_ok=True)
            return self._place
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="runhooks-profile-"))
            weakref.finalize(self, shutil.rmtree, self._temporary, ignore_errors=True)
        return self._temporary

    def _published(self, written: Path) -> str:
        """Return where ``written``, in the made folder, is in the end."""
        temporary = self._temporary
        if temporary is None:
            return str(written)
        for file in filter(Path.is_file, list(temporary.rglob("*"))):
            name = file.relative_to(temporary).as_posix()
            (self._place / name).write_bytes(file.read_bytes())
            file.unlink()
        return str(self._place / written.relative_to(temporary).as_posix())
