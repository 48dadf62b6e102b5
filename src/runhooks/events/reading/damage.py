"""``Damage``: a stretch of an event file that could not be read."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Damage(NamedTuple):
    """What was skipped: ``skipped`` bytes of the file ``path`` from byte ``offset`` on."""

    path: Path
    offset: int
    skipped: int
    reason: str
