"""How a progress hook shows its line: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import logging
import math
import shutil
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TextIO

from runhooks import clock
from runhooks.arrays import to_numpy

_BAR_WIDTH = 24
_MARKS = 20


class Display(Protocol):
    """Shows lines of text.

    Attributes:
        interval_secs: The least time from one line to the next.
        bar_width: The width of the bar in characters; 0: no bar.
    """

    interval_secs: float
    bar_width: int

    def show(self, line: str) -> None:
        """Show ``line``."""
        ...

    def finish(self) -> None:
        """Leave the last line as it is; other output may follow."""
        ...


class TerminalDisplay:
    """Writes each line over the last one."""

    interval_secs = 0.1
    bar_width = _BAR_WIDTH

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._open = False
        self._eraser = _BeforeLogs(self._erase)

    def show(self, line: str) -> None:
        self._eraser.attach()
        # A line that wraps could not be written over; the last column makes some terminals wrap.
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(f"\r{line[:width]}\x1b[K")
        self._stream.flush()
        self._open = True

    def finish(self) -> None:
        self._eraser.detach()
        if self._open:
            self._stream.write("\n")
            self._stream.flush()
        self._open = False

    def _erase(self) -> None:
        if self._open:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
        self._open = False


class _BeforeLogs(logging.Handler):
    """Calls ``act`` before the root logger's handlers write a record, which needs a free line."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self._act = act

    def attach(self) -> None:
        handlers = logging.getLogger().handlers
        # As the only handler it would disable logging's last resort, which shows warnings.
        if handlers and self not in handlers:
            handlers.insert(0, self)

    def detach(self) -> None:
        logging.getLogger().removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._act()


class LineDisplay:
    """Writes lines, one after the other, for a file or a pipe."""

    interval_secs = 5.0
    bar_width = 0

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def finish(self) -> None:
        pass


def display_for(stream: TextIO) -> Display:
    """Return the display for ``stream``."""
    return TerminalDisplay(stream) if stream.isatty() else LineDisplay(stream)


class Rate:
    """Measures steps per second over the last marks, all but the first."""

    def __init__(self) -> None:
        self._is_first = True
        self._marks: deque[tuple[float, int]] = deque(maxlen=_MARKS)

    def mark(self, step: int) -> float | None:
        """Mark that ``step`` is reached now; return steps per second, None at first.

        The time after the first mark may be that of compilation, and does not count.
        """
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
        last_step = None  # the run goes on beyond, to nobody knows where
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
    single = _single(value)
    if isinstance(single, float):
        return f"{single:.4g}"
    try:
        return " ".join(str(single).split())
    except Exception:  # noqa: BLE001 (the class is the user's)
        return f"<{type(value).__name__}>"


def _single(value: Any) -> Any:
    """Return the element of an array of size 1, of any library; else ``value`` itself."""
    try:
        # The shape is known without copying a large array from its device.
        is_single = hasattr(value, "shape") and math.prod(value.shape) == 1
        return to_numpy(value).item() if is_single else value
    except Exception:  # noqa: BLE001 (it has no values yet, or is not an array)
        return value
