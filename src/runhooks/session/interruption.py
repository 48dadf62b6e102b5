"""``Interruption``: SIGTERM and Ctrl-C end a loop well instead of in the middle of a step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class Interruption:
    """Inside ``with``, SIGTERM and the first SIGINT call ``on_interrupt(signal_number)``.

    That is all they do: the callback sets a flag, and whoever runs the loop finishes the step. It
    is called in the main thread between two bytecodes, so it must neither wait nor take a lock.
    The second SIGINT raises KeyboardInterrupt at once. A handler of the user is called as well,
    after the callback; a signal that the process ignores stays ignored.

    Python handles signals in the main thread alone: in any other this does nothing.
    """

    def __init__(self, on_interrupt: Callable[[int], object]) -> None:
        self._on_interrupt = on_interrupt
        self._interrupted = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                previous = signal.getsignal(number)
                # None: a handler that was not set from Python, and cannot be put back from here.
                if previous is not signal.SIG_IGN and previous is not None:
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        while self._previous:
            number, previous = self._previous.popitem()
            if signal.getsignal(number) == self._handle:  # else somebody has taken it over
                signal.signal(number, previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self._interrupted:
                raise KeyboardInterrupt
            self._interrupted = True
        self._on_interrupt(number)
        previous = self._previous.get(number)
        if callable(previous) and previous is not signal.default_int_handler:
            previous(number, frame)
