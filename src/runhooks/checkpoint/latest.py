"""Finding checkpoints in a directory."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from runhooks.checkpoint.format import looks_like_checkpoint, read_manifest
from runhooks.checkpoint.manifest import Manifest
from runhooks.errors import DataLossError, NotFoundError

_STEP_IN_NAME = re.compile(r".+-(\d+)(\.replaced)?")


class Found(NamedTuple):
    """A folder that is a checkpoint, or was: then ``manifest`` is None."""

    path: Path
    step: int
    manifest: Manifest | None


def find_checkpoints(checkpoint_dir: str | os.PathLike[str]) -> list[Found]:
    """The checkpoints in a directory, damaged ones too, in the order of their steps.

    The manifest alone is looked at. A checkpoint of a graph without a global step comes first.
    Raises ValueError for one of a newer format.
    """
    directory = Path(checkpoint_dir)
    if not directory.is_dir():
        return []
    found = [_look_at(path) for path in directory.iterdir() if not path.name.startswith(".tmp-")]
    # Of two with one step, the one that was to be replaced is the older.
    return sorted(
        filter(None, found), key=lambda it: (it.step, not it.path.name.endswith(".replaced"))
    )


def checkpoints(checkpoint_dir: str | os.PathLike[str]) -> list[str]:
    """The paths of the complete checkpoints in a directory, oldest step first."""
    return [str(it.path) for it in find_checkpoints(checkpoint_dir) if it.manifest is not None]


def latest_checkpoint(checkpoint_dir: str | os.PathLike[str]) -> str | None:
    """The path of the complete checkpoint with the highest step, or None if there is none."""
    return next(reversed(checkpoints(checkpoint_dir)), None)


def checkpoint_step(path: str | os.PathLike[str]) -> int | None:
    """The global step of a checkpoint; None if its graph had none.

    Raises NotFoundError if it is not there, DataLossError if its manifest is damaged.
    """
    return read_manifest(Path(path)).global_step


def _look_at(path: Path) -> Found | None:
    if not looks_like_checkpoint(path):
        return None
    try:
        manifest = read_manifest(path)
    except NotFoundError:  # removed just now
        return None
    except DataLossError:
        name = _STEP_IN_NAME.fullmatch(path.name)
        return Found(path, int(name[1]), None) if name else None
    step = manifest.global_step
    return Found(path, -1 if step is None else step, manifest)
