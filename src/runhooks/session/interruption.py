"""SIGTERM and Ctrl-C end a loop well, not in the middle of a step."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any
from weakref import WeakMethod

from runhooks.stores.interruption import interrupt


class Interruption:
    """Inside ``with``, SIGTERM and the first SIGINT call ``on_interrupt(number)``, a bound method.

    It must neither wait nor take a lock. The second SIGINT raises KeyboardInterrupt. A handler of
    the user is called after it; an ignored signal stays ignored. After the first signal a handler
    of SIGCHLD raises no more: torch's would break the step because a worker of a loader has got the
    signal too.

    It acts only in the main thread, not in a forked child. Several may be left in any order and
    thread: a handler still installed then does what the one before it would have done. One is left
    as well when the object of the method is gone.
    """

    def __init__(self, on_interrupt: Callable[[int], object]) -> None:
        self._interrupted = False
        self._is_over = False
        self._process = os.getpid()
        self._previous: dict[int, Any] = {}
        # Handlers must not keep a session alive that nobody closed.
        self._on_interrupt = WeakMethod(on_interrupt, self._left_behind)

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                previous = _present(number, signal.getsignal(number))
                # None: it was not set from Python, and cannot be restored.
                if previous is not signal.SIG_IGN and previous is not None:
                    self._previous[number] = previous
                    signal.signal(number, self._handle)
        return self

    @property
    def _has_exited(self) -> bool:
        """Whether its handler only hands on, as all do in a forked child."""
        return self._is_over or os.getpid() != self._process

    def _left_behind(
        self, _: object, is_finalizing: Callable[[], bool] = sys.is_finalizing
    ) -> None:
        if not is_finalizing():  # else the modules it would need are gone
            self.__exit__()

    def __exit__(self, *exc_info: object) -> None:
        self._is_over = True
        if threading.current_thread() is threading.main_thread():
            own = self._handle, self._handle_child
            for number in self._previous:
                if signal.getsignal(number) in own:  # else it was taken over
                    signal.signal(number, _present(number, self._handle))

    def _take_over_child(self, number: int) -> None:
        is_taken = number in self._previous
        while not is_taken:
            with suppress(Exception):  # it may be called, and raise, until then
                handler = signal.getsignal(number)
                if callable(handler):
                    self._previous[number] = handler
                    signal.signal(number, self._handle_child)
                is_taken = True

    def _handle_child(self, number: int, frame: FrameType | None) -> None:
        with suppress(Exception):
            self._previous[number](number, frame)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        on_interrupt = self._on_interrupt()
        if self._has_exited or on_interrupt is None:
            _hand_on(number, frame, _present(number, self._handle))
            return
        self._take_over_child(signal.SIGCHLD)
        if number == signal.SIGINT:
            if self._interrupted:
                interrupt()  # stores do not wait, either
                raise KeyboardInterrupt
            self._interrupted = True
        on_interrupt(number)
        previous = _present(number, self._previous[number])
        if callable(previous) and previous is not signal.default_int_handler:
            previous(number, frame)


def tell_stopping(when: bytes) -> None:
    """Tell the terminal that Ctrl-C was heard."""
    with suppress(OSError):  # a handler may interrupt print
        os.write(2, b"\nstopping%s; press Ctrl-C again to interrupt it\n" % when)


def _present(number: int, handler: Any) -> Any:
    """Return ``handler``, or the one beneath it if its interruption is over."""
    owner = getattr(handler, "__self__", None)
    if isinstance(owner, Interruption) and owner._has_exited:
        return _present(number, owner._previous[number])
    return handler


def _hand_on(number: int, frame: FrameType | None, handler: Any) -> None:
    if _present(number, signal.getsignal(number)) is handler:
        signal.signal(number, handler)  # it may ask whether it is the one that was set
    if callable(handler):
        handler(number, frame)
    else:  # the system's own, which cannot be called
        signal.signal(number, handler)
        signal.raise_signal(number)
