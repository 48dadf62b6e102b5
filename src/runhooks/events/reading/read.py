"""``read``: event files to columns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from runhooks.events.reading.runs import Runs
from runhooks.events.reading.tag_registry import Wanted


def read(
    path: str | os.PathLike[str],
    *,
    tags: str | Sequence[str] | None = None,
    kinds: str | Sequence[str] | None = None,
    strict: bool = False,
    purge: bool = True,
) -> Runs:
    """Return the runs at ``path``: an event file, a run directory, or a directory above runs.

    ``tags``: patterns as of a shell (``loss*``); what matches none is not decoded. ``kinds``: those
    of ``Run``, likewise. Every check of every record is verified: what fails is skipped, up to the
    next record that is sound, and listed in ``damages``; if ``strict`` it raises. ``purge``: where
    a session starts again at a step, what earlier ones wrote from that step on is dropped, as
    TensorBoard does.

    Raises FileNotFoundError if there is nothing at ``path``; ValueError for an unknown kind;
    DataLossError, if ``strict``, at the first damage.
    """
    return Runs(Path(path), Wanted(tags, kinds), strict, purge)
