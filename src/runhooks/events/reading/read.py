"""``read``: event files to columns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from runhooks.errors import DataLossError
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

    ``tags``: names, or patterns as of a shell (``loss*``); a tag in brackets, ``w[0]``, is found by
    its name too. What matches none is not decoded; if nothing does, the runs have no tags.
    ``kinds``: those of ``Run``, likewise. Every check of every record is verified: what fails is
    skipped, up to the next record that is sound, and listed in ``damages``; if ``strict`` it
    raises. ``purge``: where a session starts again at a step, what earlier ones wrote from that
    step on is dropped, as TensorBoard does.

    Raises FileNotFoundError if there is nothing at ``path``; ValueError for an unknown kind;
    DataLossError if ``path`` is a file in which there is no event, and, if ``strict``, at the first
    damage.
    """
    runs = Runs(Path(path), Wanted(tags, kinds), strict, purge)
    skipped = sum(damage.skipped for damage in runs.damages)
    if runs.path.is_file() and 0 < runs.path.stat().st_size <= skipped:
        raise DataLossError(
            f"{runs.path} must be an event file, but no event is in it: it is a file of another "
            "kind, or all of it is damaged",
            path=str(runs.path),
        )
    return runs
