"""Finding checkpoints in a directory.

The latest is the one that was saved last, as in TensorFlow: not the one of the highest step, for a
run may have been taken back to an earlier step and go on from there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from runhooks.checkpoint.format import (
    Checkpoint,
    described,
    looks_like_checkpoint,
    read_manifest,
)
from runhooks.errors import DataLossError, NotFoundError

_STEP_IN_NAME = re.compile(r".+-(\d+)(\.replaced)?")


def find_checkpoints(checkpoint_dir: str | os.PathLike[str]) -> list[Checkpoint]:
    """The checkpoints in a directory, damaged ones too, in the order of saving, then of steps.

    Their values are not read. Raises ValueError for one of a newer format.
    """
    while True:
        found = {path: _look_at(path) for path in _paths(Path(checkpoint_dir))}
        # One that another process removes meanwhile gives way to a newer one, not listed yet.
        if all(it or os.path.lexists(path) for path, it in found.items()):
            return sorted(
                filter(None, found.values()), key=lambda it: (it.wall_time, it.step, it.path)
            )


def checkpoints(checkpoint_dir: str | os.PathLike[str]) -> list[str]:
    """The paths of the complete checkpoints in a directory, in the order of saving.

    Complete: the manifest is sound, and each file as long as it says. What is in the files is
    checked when they are read.
    """
    return [str(it.path) for it in find_checkpoints(checkpoint_dir) if it.complete]


def latest_checkpoint(checkpoint_dir: str | os.PathLike[str]) -> str | None:
    """The path of the complete checkpoint that was saved last, or None if there is none."""
    return next(reversed(checkpoints(checkpoint_dir)), None)


def checkpoint_step(path: str | os.PathLike[str]) -> int | None:
    """The global step of a checkpoint; None if its graph had none.

    Raises NotFoundError if it is not there, DataLossError if it is not complete.
    """
    return read_manifest(Path(path)).global_step


def _paths(directory: Path) -> list[Path]:
    try:
        return [path for path in directory.iterdir() if not path.name.startswith(".tmp-")]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _look_at(path: Path) -> Checkpoint | None:
    try:
        if not looks_like_checkpoint(path):
            return None
        try:
            return described(path, read_manifest(path))
        except DataLossError:
            name = _STEP_IN_NAME.fullmatch(path.name)
            time = path.stat().st_mtime
            return Checkpoint(path, int(name[1]), time, time, complete=False) if name else None
    except (NotFoundError, FileNotFoundError):  # removed just now
        return None
