"""Where a rank writes that is not the chief."""

from __future__ import annotations

import os

from runhooks.ranks import current_group


def rank_folder(directory: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return ``directory`` on the chief, and its folder ``rank-1`` on rank 1."""
    group = current_group()
    # Not a Path, which would turn gs:// into gs:/.
    return directory if group.is_chief else f"{os.fspath(directory)}/rank-{group.rank}"
