"""``PointWriter``: the base of all writers that have a ``PointSink`` to write to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runhooks import clock
from runhooks.summary.address import step_now
from runhooks.summary.kinds.scalar import numbers_now
from runhooks.summary.queued_writer import QueuedWriter


class PointWriter(QueuedWriter):
    """A writer whose scalars keep the precision in which they are given."""

    def scalars(self, step: int, values: Mapping[str, Any]) -> None:
        numbers = numbers_now(values)
        at, now = step_now(step, list(numbers)), clock.wall()
        for tag, number in numbers.items():
            self._put(tag, number, at, now)
        self._start_step = None
