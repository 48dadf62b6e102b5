"""``CoordinatedSession``: makes the failure of a thread the failure of the loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from runhooks.contract import SessionRunHook
from runhooks.session.coordinator import Coordinator
from runhooks.session.hooked import HookedSession
from runhooks.session.session import Session


class CoordinatedSession:
    """A hooked session, and the coordinator of the threads that work beside it."""

    def __init__(
        self, raw: Session, hooked: HookedSession, coord: Coordinator, stop_grace_period_secs: float
    ) -> None:
        self.raw = raw
        self.hooked = hooked
        self.coord = coord
        self._grace_secs = stop_grace_period_secs
        #: The hook that has asked the coordinator to stop when the session was created, or None.
        self.stopped_by: str | None = None

    @property
    def stop_reason(self) -> str | None:
        """The name of the hook that has asked to stop, or which thread has and why; or None."""
        return self.hooked.stop_reason or self.stopped_by or self.coord.stop_reason

    def should_stop(self) -> bool:
        """Whether a hook or a thread has asked to stop; raises what a thread failed with."""
        self.coord.raise_requested_exception()
        return self.stop_reason is not None

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
        hooks: Iterable[SessionRunHook] | None = None,
    ) -> Any:
        """``HookedSession.run``; raises what a thread failed with, which may be why a run fails."""
        if self.coord.should_stop():
            self.coord.raise_requested_exception()
        try:
            return self.hooked.run(fetches, feed_dict, options, run_metadata, hooks)
        except Exception as error:
            self._raise_thread_failure(error)
            raise

    def _raise_thread_failure(self, error: BaseException) -> None:
        try:
            self.coord.raise_requested_exception()
        except Exception as cause:
            if cause is error:
                raise
            raise cause from error

    def close(self) -> None:
        """Stop the threads, wait for them, and close the raw session."""
        self.coord.request_stop()
        try:
            self.coord.join(
                stop_grace_period_secs=self._grace_secs,
                ignore_live_threads=True,
            )
        finally:
            self.raw.close()
