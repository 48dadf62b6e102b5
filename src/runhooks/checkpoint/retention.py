"""Which checkpoints to keep. A plain rule over times, so that a restarted run goes by it too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Saved(NamedTuple):
    """A checkpoint that was saved: its ``path``, and when, in seconds since the epoch."""

    path: str
    wall_time: float


class Retention(NamedTuple):
    """Keeps the newest ``max_to_keep``, and of those before one every ``every_secs`` seconds.

    With ``max_to_keep`` None it keeps all.
    """

    max_to_keep: int | None
    every_secs: float

    def superseded(self, saved: Sequence[Saved], series_start: float) -> list[Saved]:
        """Those of ``saved``, oldest first, that need not be kept.

        The first that is kept for its age is at least ``every_secs`` from ``series_start``.
        """
        if self.max_to_keep is None:
            return []
        last_kept = series_start
        unneeded = []
        for checkpoint in saved[: max(0, len(saved) - self.max_to_keep)]:
            if checkpoint.wall_time >= last_kept + self.every_secs:
                last_kept = checkpoint.wall_time
            else:
                unneeded.append(checkpoint)
        return unneeded
