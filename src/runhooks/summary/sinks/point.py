"""``SummaryPoint``: one value of one step, for those who want values and not messages."""

from __future__ import annotations

from typing import Any, NamedTuple


class SummaryPoint(NamedTuple):
    """What was written under ``tag`` at ``step``. ``wall_time``: seconds since the epoch.

    ``value``: a float if ``kind`` is scalar; of any other kind what the points of that kind of an
    ``events.Run`` hold; the hyperparameters by name if it is hparams. Of kind session_log the tag
    is empty and the value a ``SessionLog``.
    """

    tag: str
    kind: str
    step: int
    wall_time: float
    value: Any
