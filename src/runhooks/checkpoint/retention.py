"""Which checkpoints to keep. A plain rule over times, so that a restarted run goes by it too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from runhooks.checkpoint.format import Checkpoint


class Retention(NamedTuple):
    """Keeps the newest ``max_to_keep``, and of those before one every ``every_secs`` seconds.

    With ``max_to_keep`` None it keeps all.
    """

    max_to_keep: int | None
    every_secs: float

    def superseded(self, saved: Sequence[Checkpoint]) -> list[Checkpoint]:
        """Those of ``saved``, a series in the order of saving, that need not be kept.

        The first that is kept for its age is at least ``every_secs`` from the series' start.
        """
        if self.max_to_keep is None or len(saved) <= self.max_to_keep:
            return []
        last_kept = saved[-1].series_start
        unneeded = []
        for checkpoint in saved[: -self.max_to_keep]:
            if checkpoint.wall_time >= last_kept + self.every_secs:
                last_kept = checkpoint.wall_time
            else:
                unneeded.append(checkpoint)
        return unneeded
