"""``FakeClock``: a clock that a test moves by hand."""

from __future__ import annotations

from types import TracebackType

from runhooks import clock


class FakeClock:
    """A clock that advances only when ``advance`` is called.

    Inside its ``with`` block, everything in runhooks uses this clock:

        with FakeClock() as clock:
            clock.advance(60)

    Args:
        start: Where ``monotonic()`` starts, in seconds.
        wall_start: Where ``wall()`` starts, in seconds since the epoch.
    """

    def __init__(self, start: float = 0.0, wall_start: float = 1_700_000_000.0) -> None:
        self._now = start
        self._wall_offset = wall_start - start

    def monotonic(self) -> float:
        """Return the time as ``time.monotonic`` does, in seconds."""
        return self._now

    def wall(self) -> float:
        """Return the time as ``time.time`` does, in seconds since the epoch."""
        return self._now + self._wall_offset

    def advance(self, secs: float) -> None:
        """Advance both clocks by ``secs`` seconds."""
        if secs < 0:
            raise ValueError(f"secs must not be negative, got {secs}")
        self._now += secs

    def __enter__(self) -> FakeClock:
        self._installed = clock.use(self)
        self._installed.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._installed.__exit__(exc_type, exc, traceback)
