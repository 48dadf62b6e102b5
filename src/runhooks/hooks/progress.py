"""``ProgressHook``: a line with the step, the speed and values that is drawn again and again."""

from __future__ import annotations

import logging
import math
import shutil
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TextIO

from runhooks import arguments, clock
from runhooks.arrays import to_numpy
from runhooks.contract import (
    RawSession,
    SessionRunContext,
    SessionRunValues,
    StopSignal,
)
from runhooks.engines.foreign import session_of
from runhooks.hooks.base import (
    FetchingHook,
    acts_here,
    step_of,
)
from runhooks.trigger import Due, Timer, Trigger


class Display(logging.Handler):
    """Shows lines: each over the last one in a terminal, one after the other elsewhere.

    The first handler of the root logger, it frees the line for records of the others.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        # What stands in for sys.stderr often has no isatty.
        self._is_terminal = hasattr(stream, "isatty") and stream.isatty()
        self.interval_secs = 0.1 if self._is_terminal else 5.0
        self.bar_width = 24 if self._is_terminal else 0
        self._is_open = False

    def show(self, line: str) -> None:
        if self._is_terminal:
            handlers = logging.getLogger().handlers
            # As the only one, it would disable logging's last resort, which shows warnings.
            if handlers and self not in handlers:
                handlers.insert(0, self)
            # A line that wraps cannot be written over; some terminals wrap in the last column.
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
    """Measures steps per second over the last marks, not the first, where runs may compile."""

    def __init__(self) -> None:
        self._is_first = True
        self._marks: deque[tuple[float, int]] = deque(maxlen=20)

    def mark(self, step: int) -> float | None:
        """Mark ``step``, reached now; return steps per second, None at first."""
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
    """Return the line for ``step`` of ``last_step``, if known, with ``values`` by label."""
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
        # Without copying a large array from its device.
        if hasattr(value, "shape") and math.prod(value.shape) == 1:
            value = to_numpy(value).item()
        return f"{value:.4g}" if isinstance(value, float) else " ".join(str(value).split())
    except Exception:  # noqa: BLE001 (the class is the user's)
        return f"<{type(value).__name__}>"


class ProgressHook(FetchingHook):
    """Shows step, speed and time left: a bar in a terminal, a line every 5 seconds elsewhere.

    A tensor is shown as of the last step that fetched it. The speed is measured from the second
    display on, so without compilation.

        hooks = [rh.ProgressHook(2000, ["loss"])]

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
    """Return the step at which a session, now at ``step``, has drawn all data; None: unknown."""
    epochs = session_of(session).epochs
    left = None if epochs is None else epochs.draws_left
    return None if left is None else step + left
