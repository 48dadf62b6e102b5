"""``MemoryWriter``: summaries kept as values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from runhooks.events import Scalars, SessionStatus
from runhooks.events.reading.messages import SESSION_LOG
from runhooks.events.writing.write_queue import WriteQueue
from runhooks.summary.sinks.points import PointSink, SummaryPoint
from runhooks.summary.writer import QueuedWriter


class MemoryWriter(QueuedWriter):
    """Keeps everything in memory, decoded, for tests and notebooks.

    When a session restarts at a step, points from that step on are dropped, as TensorBoard does. A
    ``MemoryWriter`` cannot be pickled: another process would write to its own memory.
    """

    def __init__(self) -> None:
        self._memory = _Memory()
        super().__init__(WriteQueue(self._memory))

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a MemoryWriter cannot be pickled, since another process has its own memory: use a "
            "JsonLinesWriter"
        )

    @property
    def points(self) -> list[SummaryPoint]:
        """All points in the order they were added. Raises the error of one that failed."""
        self.flush()
        return list(self._memory.points)

    def columns(self, tag: str) -> Scalars:
        """Return the points of the scalar ``tag``, as ``events.read`` does.

        Raises:
            KeyError: There is no such scalar; the message lists those that exist.
        """
        scalars = [point for point in self.points if point.kind == "scalar"]
        points = [point for point in scalars if point.tag == tag]
        if not points:
            tags = sorted({point.tag for point in scalars})
            raise KeyError(f"there is no scalar {tag!r}, there are {tags}")
        return Scalars(
            np.array([point.step for point in points], np.int64),
            np.array([point.value for point in points], np.float64),
            np.array([point.wall_time for point in points], np.float64),
        )


class _Memory(PointSink):
    name = "the memory writer"

    def __init__(self) -> None:
        super().__init__()
        self.points: list[SummaryPoint] = []

    def write_points(self, points: Sequence[SummaryPoint]) -> None:
        for point in points:
            if point.kind == SESSION_LOG and point.value.status == SessionStatus.START:
                self.points = [kept for kept in self.points if kept.step < point.step]
            elif point.kind != SESSION_LOG:
                self.points.append(point)
