"""``Coordinator`` stops threads together; ``LooperThread`` is one of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from runhooks import arguments, clock
from runhooks.errors import add_note, cause, described, ends_of_input

_log = logging.getLogger("runhooks")

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


class Coordinator:
    """Asks threads to stop, waits for them, and raises the error of the first one that failed.

    Like TensorFlow's. Each thread checks ``should_stop()``, and reports its error with
    ``request_stop``.

    Args:
        clean_stop_exception_types: Errors that only ask to stop; None: ``OutOfRangeError``.

    Attributes:
        stop_requested: As ``should_stop()``.
        given_reason: The ``reason`` of ``request_stop``, or None.
        stop_reason: Which thread has asked first, and why, or None.
        stopped_in: That thread, or None.
        joined: Whether ``join`` has returned or raised.
    """

    def __init__(
        self, clean_stop_exception_types: Iterable[type[BaseException]] | None = None
    ) -> None:
        clean = clean_stop_exception_types
        self._clean_stop_types = ends_of_input() if clean is None else tuple(clean)
        self._lock = threading.Condition()
        self.stop_requested = self.joined = False
        self.given_reason: str | None = None
        self.stopped_in: threading.Thread | None = None
        self._error: BaseException | None = None
        self.stop_reason: str | None = None
        self._registered_threads: set[threading.Thread] = set()

    def should_stop(self) -> bool:
        """Return whether a stop was requested."""
        return self.stop_requested

    def request_stop(
        self, ex: BaseException | ExcInfo | None = None, *, reason: str | None = None
    ) -> None:
        """Ask all threads to stop.

        Args:
            ex: The reason: an exception, or the result of ``sys.exc_info()``. ``join`` raises that
                of the first request; after ``join``, it is raised immediately.
            reason: Why a hook asks, for ``session.stop_reason``. Not in TensorFlow's.

        Raises:
            TypeError: If ``ex`` is not an exception.
        """
        error = ex[1] if isinstance(ex, tuple) and len(ex) == 3 else ex
        if not isinstance(error, BaseException | None):
            raise TypeError(f"ex must be an exception, or sys.exc_info() of one, got {ex!r}")
        if isinstance(error, self._clean_stop_types):
            error = None
        with self._lock:
            if self.joined and error is not None:
                raise error
            if self.stop_requested:
                return
            self.stop_reason = _reason(threading.current_thread(), error)
            if error is not None:
                _log.info("%s; all threads are asked to stop", self.stop_reason)
            self._error = error
            self.given_reason = reason
            self.stopped_in = threading.current_thread()
            self.stop_requested = True
            self._lock.notify_all()

    def clear_stop(self) -> None:
        """Forget the request to stop, and its reason."""
        with self._lock:
            self.stop_requested = self.joined = False
            self._error = self.stop_reason = self.given_reason = self.stopped_in = None

    @contextmanager
    def stop_on_exception(self) -> Iterator[None]:
        """Catch any exception in the ``with`` block and pass it to ``request_stop``."""
        try:
            yield
        except BaseException as error:  # noqa: BLE001 - join raises it in the main thread
            self.request_stop(error)

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Wait up to ``timeout`` seconds for a request to stop; return whether there is one."""
        with self._lock:
            return self._lock.wait_for(self.should_stop, timeout)

    def register_thread(self, thread: threading.Thread) -> None:
        """Make ``join`` wait for ``thread`` as well."""
        with self._lock:
            self._registered_threads.add(thread)

    def has_registered(self, thread: threading.Thread) -> bool:
        """Return whether ``join`` waits, or is to wait, for ``thread``."""
        with self._lock:
            return thread in self._registered_threads

    def join(
        self,
        threads: Iterable[threading.Thread] | None = None,
        stop_grace_period_secs: float = 120,
        ignore_live_threads: bool = False,
    ) -> None:
        """Wait until ``threads`` and the registered ones have ended.

        Args:
            threads: Those besides the registered ones.
            stop_grace_period_secs: How long they have after a request to stop.
            ignore_live_threads: Whether threads that still run cause only a warning.

        Raises:
            BaseException: The error that was given to ``request_stop``.
            RuntimeError: If threads still run, perhaps the calling one; it names them.
        """
        with self._lock:
            waited_for = [t for t in self._registered_threads.union(threads or ()) if t.is_alive()]
        self._wait_for_end_or_stop(waited_for)
        deadline = clock.monotonic() + stop_grace_period_secs
        for thread in waited_for:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - clock.monotonic()))
        with self._lock:
            self.joined = True
            self._registered_threads.clear()
        live = sorted(t.name for t in waited_for if t.is_alive())
        message = (
            f"Coordinator stopped with threads still running {stop_grace_period_secs} seconds "
            f"after they were asked to stop: {', '.join(live)}; they must check should_stop() or "
            "wait in wait_for_stop()"
        )
        if live and (ignore_live_threads or self._error is not None):
            _log.warning(message)
        self.raise_requested_exception()
        if live and not ignore_live_threads:
            raise RuntimeError(message)

    def raise_requested_exception(self) -> None:
        """Raise the error that was given to ``request_stop``, if any."""
        if self._error is not None:
            raise self._error

    def _wait_for_end_or_stop(self, threads: Sequence[threading.Thread]) -> None:
        ended = False

        def watch() -> None:
            nonlocal ended
            for thread in threads:
                thread.join()
            with self._lock:
                ended = True
                self._lock.notify_all()

        if threads and not self.stop_requested:
            # Only a join sees a thread end.
            threading.Thread(target=watch, name="coordinator-join", daemon=True).start()
            with self._lock:
                self._lock.wait_for(lambda: ended or self.stop_requested)


def _reason(thread: threading.Thread, error: BaseException | None) -> str:
    """Return why ``thread`` asks to stop; note a failure of any but the main one on ``error``."""
    name = f"the thread {thread.name!r}"
    if error is None:
        return f"{name} asked the coordinator to stop"
    if isinstance(error, ends_of_input()):
        return f"{name} has reached the end of its input: {cause(error)}"
    if thread is not threading.main_thread():
        add_note(error, f"in {name}")
    return f"{name} failed: {described(error)}"


class LooperThread(threading.Thread):
    """A daemon thread that calls ``target(*args, **kwargs)`` until its coordinator says to stop.

    An error in a call goes to ``coord.request_stop``. A subclass may override ``run_loop`` instead
    of giving a ``target``, and ``start_loop`` and ``stop_loop``, called once in the thread.

    Args:
        coord: The coordinator.
        timer_interval_secs: From one call to the next; 0 or None: no pause.
        target: The function.
        args: Its positional arguments.
        kwargs: Its keyword arguments.

    Raises:
        ValueError: If ``coord`` is not a Coordinator, or arguments are given without a ``target``.
    """

    def __init__(
        self,
        coord: Coordinator,
        timer_interval_secs: float | None,
        target: Callable[..., object] | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if not hasattr(coord, "stop_on_exception"):  # TensorFlow's has it too
            raise ValueError(f"coord must be a Coordinator, got {coord!r}")
        arguments.not_negative(timer_interval_secs=timer_interval_secs)
        arguments.function(target=target)
        if target is None and (args or kwargs):
            raise ValueError(f"args={args!r} and kwargs={kwargs!r} need a target to be given to")
        super().__init__(daemon=True)
        self._coord = coord
        self._interval_secs = timer_interval_secs
        self._call = (target, tuple(args or ()), dict(kwargs or {}))
        coord.register_thread(self)

    @staticmethod
    def loop(
        coord: Coordinator,
        timer_interval_secs: float | None,
        target: Callable[..., object],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> LooperThread:
        """Create one, start it and return it."""
        looper = LooperThread(coord, timer_interval_secs, target, args, kwargs)
        looper.start()
        return looper

    def run(self) -> None:
        with self._coord.stop_on_exception():
            self.start_loop()
            next_time = clock.monotonic()
            while not self._stopped_before(next_time):
                next_time += self._interval_secs or 0.0
                self.run_loop()
            self.stop_loop()

    def start_loop(self) -> None:
        """Called when the thread starts."""

    def run_loop(self) -> None:
        """Called again and again."""
        target, args, kwargs = self._call
        if target is not None:
            target(*args, **kwargs)

    def stop_loop(self) -> None:
        """Called when the thread stops on request."""

    def _stopped_before(self, moment: float) -> bool:
        if self._interval_secs is None:
            return self._coord.should_stop()  # without a lock
        return self._coord.wait_for_stop(max(0.0, moment - clock.monotonic()))
