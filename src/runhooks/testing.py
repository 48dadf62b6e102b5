"""For tests of hooks and loops."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from runhooks import clock
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.events import Event, read_records
from runhooks.summary import Summary

__all__ = ["FakeClock", "RecordingHook", "read_events"]


class FakeClock:
    """A clock that only ``advance`` moves; all of runhooks uses it inside its ``with`` block.

    Args:
        start: Where ``monotonic()`` starts, in seconds.
        wall_start: Where ``wall()`` starts, in seconds since the epoch.
    """

    def __init__(self, start: float = 0.0, wall_start: float = 1_700_000_000.0) -> None:
        self._now = start
        self._wall_offset = wall_start - start

    def monotonic(self) -> float:
        """Return the seconds since some moment, as ``time.monotonic``."""
        return self._now

    def wall(self) -> float:
        """Return the seconds since the epoch, as ``time.time``."""
        return self._now + self._wall_offset

    def advance(self, secs: float) -> None:
        """Advance both clocks by ``secs`` seconds; ValueError: they are negative."""
        if secs < 0:
            raise ValueError(f"secs must not be negative, got {secs}")
        self._now += secs

    def __enter__(self) -> FakeClock:
        self._installed = clock.use(self)
        self._installed.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._installed.__exit__(*error)


class RecordingHook(SessionRunHook):
    """A hook that appends ``(name, method)`` to ``calls`` whenever it is called.

    Args:
        name: The name in ``calls``.
        calls: A list, which hooks may share. None: a new one.
        fetches: What to fetch in every run.
        feed_dict: What to feed in every run.

    Attributes:
        results: The results that ``after_run`` received, one per run.
        exceptions: The exceptions that ``on_exception`` received.
    """

    def __init__(
        self,
        name: str = "hook",
        calls: list[tuple[str, str]] | None = None,
        *,
        fetches: Any = None,
        feed_dict: Mapping[Any, Any] | None = None,
    ) -> None:
        self.name = name
        self.calls = [] if calls is None else calls
        self.results: list[Any] = []
        self.exceptions: list[BaseException] = []
        is_asking = fetches is not None or feed_dict is not None
        self._asked = SessionRunArgs(fetches, feed_dict) if is_asking else None

    @property
    def methods(self) -> list[str]:
        """The methods called so far, in order."""
        return [method for name, method in self.calls if name == self.name]

    def record(self, method: str) -> None:
        """Record a call; a test may override it to do more at that moment."""
        self.calls.append((self.name, method))

    def begin(self) -> None:
        self.record("begin")

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self.record("after_create_session")

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        self.record("before_run")
        return self._asked

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        self.record("after_run")
        self.results.append(run_values.results)

    def end(self, session: RawSession) -> None:
        self.record("end")

    def on_exception(self, session: RawSession | None, exception: BaseException) -> None:
        self.record("on_exception")
        self.exceptions.append(exception)


class RecordedValue(NamedTuple):
    step: int
    tag: str
    value: float | bytes
    wall_time: float


def read_events(path: str | os.PathLike[str]) -> list[RecordedValue]:
    """Return the values of an event file, or of those of a directory, in order.

    They have ``step``, ``tag``, ``value`` (a float for a scalar, else the bytes of its
    ``Summary.Value``) and ``wall_time``. What was written again after a recovery comes twice.

    Raises:
        FileNotFoundError: If nothing is there.
        DataLossError: If a file is damaged.
    """
    path = Path(path)
    files = sorted(path.glob("*.tfevents.*")) if path.is_dir() else [path]
    return [it for file in files for it in _values(file)]


def _values(path: Path) -> Iterator[RecordedValue]:
    with path.open("rb") as file:
        for event in map(Event.FromString, read_records(file, str(path))):
            if isinstance(event.summary, bytes):
                for value in Summary.FromString(event.summary):
                    yield RecordedValue(event.step, value.tag, value.data, event.wall_time)
