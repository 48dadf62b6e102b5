"""``RecordingHook``: a hook that records how it was called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)


class RecordingHook(SessionRunHook):
    """A hook that appends ``(name, method)`` to ``calls`` whenever it is called.

    Args:
        name: The name in ``calls``.
        calls: The list to append to; hooks may share one. None: a new one.
        fetches: What to fetch in every run, if anything.
        feed_dict: What to feed in every run, if anything.

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
        self._asked = None
        if fetches is not None or feed_dict is not None:
            self._asked = SessionRunArgs(fetches, feed_dict)

    @property
    def methods(self) -> list[str]:
        """The names of the methods called so far, in order."""
        return [method for name, method in self.calls if name == self.name]

    def record(self, method: str) -> None:
        """Record a call. A test may override it to do something more at that moment."""
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
