"""Hooks that show values: ``LoggingTensorHook``, and ``ProgressHook`` with step and speed."""

from __future__ import annotations

import logging
import math
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, ClassVar, TextIO

import numpy as np

from runhooks import arguments, clock
from runhooks.arrays import library_of, to_numpy
from runhooks.arrays.registry import NO_LIBRARY
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunValues,
    StopSignal,
)
from runhooks.engines.foreign import session_of
from runhooks.graph.base import get_default_graph
from runhooks.hooks.base import (
    FetchingHook,
    NamedTensors,
    TensorFlowHook,
    acts_here,
    check_for_end,
    log_of,
    next_step_of,
    required_global_step,
    step_of,
    step_or_none,
)
from runhooks.trigger import Due, SecondOrStepTimer, Timer, Trigger


class LoggingTensorHook(TensorFlowHook):
    """Logs tensors at level INFO, in the first run and then at a cadence.

    As in ``tf.compat.v1.train``.

        hooks = [rh.LoggingTensorHook(["loss", "global_step"], every_n_iter=100)]

    Args:
        tensors: A tensor or its name, a list of these, or a dict of them by label.
        every_n_iter: Log every this many runs of the session.
        every_n_secs: Log every this many seconds.
        at_end: Whether to log them at the end as well; without a cadence, only then.
        formatter: Returns the line for a dict of values by label, or by list element.
        trigger: At which global steps to log.

    Raises:
        ValueError: Unless exactly one cadence is given, or ``at_end`` alone. In ``begin``: if
            tensors to log at the end need feeds or inputs.
    """

    runs_on = "chief"
    asks_on_all: ClassVar[bool] = True

    def __init__(
        self,
        tensors: Mapping[str, Any] | Iterable[Any],
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[Any, Any]], str] | None = None,
        *,
        trigger: Trigger | None = None,
    ) -> None:
        arguments.steps(-math.inf, every_n_iter=every_n_iter)
        if every_n_iter is not None and every_n_iter < 1:
            raise ValueError(f"invalid every_n_iter: it must be above 0, got {every_n_iter!r}")
        arguments.positive(every_n_secs=every_n_secs)
        arguments.instance(Trigger, trigger=trigger)
        arguments.function(formatter=formatter)
        cadence = {"every_n_iter": every_n_iter, "every_n_secs": every_n_secs, "trigger": trigger}
        self._timer = _timer_of(cadence, at_end)
        self._named = NamedTensors(tensors)
        self._tensors = self._named.by_key
        self._tag_order = list(self._tensors)
        self._current_tensors: dict[Any, Any] = {}
        self._log_at_end = at_end
        self._trigger = trigger
        self._formatter = formatter
        self._should_trigger = False
        self._iter_count = 0  # what the timer goes by: the number of the run, or the global step
        self._announced: int | None = None  # the run in which the hook is due; it sleeps until then
        self._logged_step: int | None = None
        self._has_line = False  # of this process: a time since the line of another tells nothing
        self._steps_per_run = 1.0  # above 1 if a run makes several, or other workers make some

    def begin(self) -> None:
        self._current_tensors = self._named.fetches()
        if self._trigger is not None:
            required_global_step(self)
        if self._log_at_end or self._timer.trigger.at_end:
            check_for_end(get_default_graph(), self._current_tensors)
        self._logged_step = None
        self._has_line = False
        self._start_over()

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        step, last_step = step_or_none(session), self._logged_step
        if self._trigger is not None:
            if last_step is not None and last_step != self._timer.last_triggered_step():
                self._timer.load_state_dict({"last_triggered_step": last_step})
            self._timer.start(step_of(session), session_of(session).epochs)
        elif step is not None and last_step is not None:
            if step < last_step:
                self._start_over()
            elif self._timer.trigger.every_steps is not None:
                # Nobody counted the runs that the hook slept through before the checkpoint.
                runs_since = round((step - last_step) / self._steps_per_run)
                last_run = self._timer.last_triggered_step()
                if last_run is None:
                    self._timer.update_last_triggered_step(0)
                self._iter_count, self._announced = (last_run or 0) + 1 + runs_since, None

    def next_due(self) -> Due | None:
        due = self._timer.due()
        if self._trigger is not None or due.step == math.inf:
            return due
        self._announced = int(max(due.step, self._iter_count))
        return Due(runs=self._announced - self._iter_count + 1)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        if self._trigger is not None:
            self._iter_count = next_step_of(run_context)
        elif self._announced is not None:
            self._iter_count, self._announced = self._announced, None
        self._should_trigger = self._timer.should_trigger_for_step(self._iter_count)
        return SessionRunArgs(self._current_tensors) if self._should_trigger else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        # Not by _should_trigger: another thread of the session may be between its two calls.
        if run_values.results is not None:
            last_run, last_step = self._timer.last_triggered_step(), self._logged_step
            self._log_values(run_context.session, run_values.results)
            self._logged_step = step = step_or_none(run_context.session)
            counts = last_run is not None and self._trigger is None
            runs = self._iter_count - (last_run or 0) if counts else 0
            if step is not None and last_step is not None and runs and step > last_step:
                self._steps_per_run = (step - last_step) / runs
        if self._trigger is None:
            self._iter_count += 1

    def end(self, session: RawSession) -> None:
        is_logged = step_or_none(session) == self._logged_step
        if self._log_at_end or (self._timer.trigger.at_end and not is_logged):
            self._log_values(session, session.run(self._current_tensors))

    def state_dict(self) -> Mapping[str, Any]:
        if self._logged_step is None:
            return {}
        return {"logged_step": self._logged_step, "steps_per_run": self._steps_per_run}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._logged_step = state.get("logged_step")
        self._steps_per_run = state.get("steps_per_run", 1.0)
        if self._logged_step is None:
            self._start_over()

    def _start_over(self) -> None:
        self._timer.reset()
        self._iter_count, self._announced = 0, None

    def _log_values(self, session: RawSession, values: dict[Any, Any]) -> None:
        self._log = log_of(session)
        if self._trigger is not None:
            self._iter_count = step_of(session)
        self._log_tensors(values)
        if self._timer.last_triggered_step() != self._iter_count:
            self._timer.update_last_triggered_step(self._iter_count)

    def _log_tensors(self, tensor_values: dict[Any, Any]) -> None:
        """Log the values by label or list element; subclasses override it, as in TensorFlow."""
        log = self._log
        secs, _ = self._timer.update_last_triggered_step(self._iter_count)
        is_first, self._has_line = not self._has_line, True
        if self._formatter is not None:
            with np.printoptions(suppress=True):
                log.info("%s", self._formatter(tensor_values))
            return
        line = _line(self._named.labelled(tensor_values))
        log.info("%s", line if secs is None or is_first else f"{line} ({secs:.3f} sec)")


def _timer_of(cadence: Mapping[str, Any], at_end: bool) -> Timer:
    if at_end and not any(it is not None for it in cadence.values()):
        return Timer(Trigger(at_end=True))
    arguments.exactly_one(**cadence)
    if cadence["trigger"] is not None:
        return Timer(cadence["trigger"])
    # Its steps are runs, as in TensorFlow.
    return SecondOrStepTimer(cadence["every_n_secs"], cadence["every_n_iter"])


def _line(labelled: Sequence[tuple[str, Any]]) -> str:
    # Options do not change how a single number is printed, and take longer than that.
    are_numbers = all(library_of(it) is not NO_LIBRARY and np.ndim(it) == 0 for _, it in labelled)
    with nullcontext() if are_numbers else np.printoptions(suppress=True):
        return ", ".join(f"{label} = {library_of(value).text(value)}" for label, value in labelled)


class Display(logging.Handler):
    """Shows lines of text: each over the last one in a terminal, one after the other elsewhere.

    It is the first handler of the root logger, and frees the line for records of the others.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        # What stands in for a file, or for sys.stderr, often has no isatty.
        self._is_terminal = hasattr(stream, "isatty") and stream.isatty()
        self.interval_secs = 0.1 if self._is_terminal else 5.0
        self.bar_width = 24 if self._is_terminal else 0
        self._is_open = False

    def show(self, line: str) -> None:
        if self._is_terminal:
            handlers = logging.getLogger().handlers
            # As the only handler it would disable logging's last resort, which shows warnings.
            if handlers and self not in handlers:
                handlers.insert(0, self)
            # A line that wraps could not be written over; the last column makes some wrap.
            width = shutil.get_terminal_size().columns - 1
            line = f"\r{line[:width]}\x1b[K"
        self._stream.write(line if self._is_terminal else f"{line}\n")
        self._stream.flush()
        self._is_open = self._is_terminal

    def finish(self) -> None:
        """Leave the last line as it is."""
        logging.getLogger().removeHandler(self)
        self._leave("\n")

    def emit(self, record: logging.LogRecord) -> None:
        self._leave("\r\x1b[K")

    def _leave(self, text: str) -> None:
        if self._is_open:
            self._stream.write(text)
            self._stream.flush()
        self._is_open = False


class Rate:
    """Measures steps per second over the last marks, all but the first: it may compile."""

    def __init__(self) -> None:
        self._is_first = True
        self._marks: deque[tuple[float, int]] = deque(maxlen=20)

    def mark(self, step: int) -> float | None:
        """Mark that ``step`` is reached now; return steps per second, None at first."""
        if self._is_first:
            self._is_first = False
            return None
        self._marks.append((clock.monotonic(), step))
        (start_time, start_step), (time, _) = self._marks[0], self._marks[-1]
        return (step - start_step) / (time - start_time) if time > start_time else None


def progress_line(
    step: int,
    last_step: int | None,
    steps_per_sec: float | None,
    values: Iterable[tuple[str, Any]],
    bar_width: int,
) -> str:
    """Return the line for ``step`` of ``last_step`` (None: unknown), with ``values`` by label."""
    if last_step is not None and step > last_step:
        last_step = None
    parts = [f"step {step}"]
    if last_step is not None:
        done = step / last_step if last_step else 1.0
        full = round(done * bar_width)
        bar = f" [{'#' * full}{'-' * (bar_width - full)}]" if bar_width else ""
        parts = [f"{done:4.0%}{bar} step {step}/{last_step}"]
    if steps_per_sec:
        parts.append(f"{steps_per_sec:.4g} steps/s")
        if last_step is not None and step < last_step:
            parts.append(f"{_duration(round((last_step - step) / steps_per_sec))} left")
    parts += [f"{label} {_short(value)}" for label, value in values]
    return "  ".join(parts)


def _duration(secs: int) -> str:
    return f"{secs // 3600}:{secs // 60 % 60:02}:{secs % 60:02}"


def _short(value: Any) -> str:
    try:
        # The shape is known without copying a large array from its device.
        if hasattr(value, "shape") and math.prod(value.shape) == 1:
            value = to_numpy(value).item()
        return f"{value:.4g}" if isinstance(value, float) else " ".join(str(value).split())
    except Exception:  # noqa: BLE001 (the class is the user's)
        return f"<{type(value).__name__}>"


class ProgressHook(FetchingHook):
    """Shows step, speed and time left: a bar in a terminal, a line every 5 seconds elsewhere.

    A tensor is shown as of the last step that fetched it, up to ``every_n_steps`` ago. The speed is
    measured from the second display on, because the time before it may include compilation.

        hooks = [rh.ProgressHook(2000, ["loss"])]
        hooks = [rh.ProgressHook(tensors=["loss"])]  # the data have a length, and the graph epochs

    Args:
        last_step: The last global step, beyond which no bar is shown. None: that at which the
            ``epochs`` of the data end; no bar if they have no length.
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
        if stream is not None and not (hasattr(stream, "write") and hasattr(stream, "flush")):
            raise TypeError(f"stream must be an open text file, got {stream!r}")
        super().__init__(Timer(Trigger(every_steps=every_n_steps, on_steps=[1])), tensors)
        self._last_step = last_step
        self._display = Display(stream or sys.stderr)

    def begin(self) -> None:
        super().begin()
        self._is_shown = acts_here(self)

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        super().after_create_session(session, coord)
        self._rate = Rate()
        self._values: Mapping[Any, Any] | None = None
        self._next_show = -math.inf

    def next_due(self) -> Due | None:
        fetch = math.inf if self._request is None else self._timer.due().step
        return Due(step=fetch, time=self._next_show)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        super().after_run(run_context, run_values)
        if clock.monotonic() >= self._next_show:
            self._show(run_context.session)

    def end(self, session: RawSession) -> None:
        self._show(session)
        self._display.finish()

    def on_exception(self, session: RawSession | None, exception: BaseException) -> None:
        self._display.finish()

    def _take(self, session: RawSession, step: int, values: Any) -> None:
        self._values = values

    def _show(self, session: RawSession) -> None:
        values = [] if self._values is None else self._tensors.labelled(self._values)
        step = step_of(session)
        rate = self._rate.mark(step)
        if self._is_shown:
            last_step = self._last_step or _end_of_data(session, step)
            self._display.show(
                progress_line(step, last_step, rate, values, self._display.bar_width)
            )
        self._next_show = clock.monotonic() + self._display.interval_secs


def _end_of_data(session: RawSession, step: int) -> int | None:
    """Return the step at which a session, now at ``step``, will have drawn all data, if known."""
    epochs = session_of(session).epochs
    left = None if epochs is None else epochs.draws_left
    return None if left is None else step + left
