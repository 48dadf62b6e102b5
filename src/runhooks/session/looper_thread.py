"""``LooperThread``: calls a function again and again until its coordinator says to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runhooks import arguments, clock
from runhooks.session.coordinator import Coordinator


class LooperThread(threading.Thread):
    """A daemon thread that calls ``target(*args, **kwargs)`` until its coordinator says to stop.

    An error in a call goes to ``coord.request_stop``. A subclass may override ``run_loop``
    instead of giving a ``target``, and ``start_loop`` and ``stop_loop``, called once in the thread.

    Args:
        coord: The coordinator.
        timer_interval_secs: The seconds from one call to the next; 0 or None: no pause.
        target: The function to call.
        args: Its positional arguments.
        kwargs: Its keyword arguments.

    Raises:
        ValueError: If ``coord`` is not a Coordinator, or ``args`` or ``kwargs`` are given without a
            ``target``.
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
            return self._coord.should_stop()
        return self._coord.wait_for_stop(max(0.0, moment - clock.monotonic()))
