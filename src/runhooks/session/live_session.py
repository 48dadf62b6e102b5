"""``LiveSession``: a raw session in use, its hooks, and the coordinator of its threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from runhooks.contract import RawSession
from runhooks.session.coordinator import Coordinator
from runhooks.session.hooked import HookedSession


class CoordinatedCreator(NamedTuple):
    """The raw session and its coordinator, as TensorFlow's session has them; None after its end."""

    tf_sess: RawSession | None
    coord: Coordinator | None


@dataclass
class LiveSession:
    """A raw session in use, with its hooks and the coordinator of the threads beside it."""

    raw: RawSession
    coord: Coordinator
    hooked: HookedSession
    #: The hook that asked the coordinator to stop while the session opened, or None.
    stopped_by: str | None = None

    @property
    def as_created(self) -> CoordinatedCreator:
        """What TensorFlow's session has in its place."""
        return CoordinatedCreator(self.raw, self.coord)

    @property
    def stop_reason(self) -> str | None:
        """The hook that has asked to stop, or the thread that has and why; None: nobody has."""
        return self.hooked.stop_reason or self.stopped_by or self.coord.stop_reason

    def close(self, grace_secs: float) -> None:
        """Stop the threads, wait for them up to ``grace_secs``, and close the raw session."""
        self.coord.request_stop()
        try:
            self.coord.join(stop_grace_period_secs=grace_secs, ignore_live_threads=True)
        finally:
            self.raw.close()
