"""Finds checkpoints in a directory, TensorFlow's among them.

The latest was saved last: a run may have gone back to an earlier step.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

from runhooks import clock
from runhooks.checkpoint.files import modified, place_of, printable
from runhooks.checkpoint.format import (
    Checkpoint,
    checkpoint_of,
    looks_like_checkpoint,
    read_manifest,
)
from runhooks.checkpoint.lock import CLAIMS
from runhooks.errors import DataLossError, NotFoundError
from runhooks.stores.interruption import reading_threads
from runhooks.stores.path import AnyPath, StorePath

#: Ends the names of folders with the states of hooks of TensorFlow's checkpoints.
HOOK_STATES = ".hooks"

_INDEX = ".index"
_DATA = re.compile(r"(.+)\.data-\d{5}-of-\d{5}")
#: The name of a checkpoint, and the step in it.
NAME = re.compile(r".+-(\d+)")


def holds_hook_states(path: AnyPath) -> bool:
    """Return whether ``path`` has the states of hooks alone, of a checkpoint of TensorFlow."""
    return path.name.endswith(HOOK_STATES)


def tensorflow_checkpoint_near(path: AnyPath) -> str | None:
    """Return what to say of ``path`` if TensorFlow has to do with it."""
    where = printable(path)
    if holds_hook_states(path) and looks_like_checkpoint(path):
        it = where.removesuffix(HOOK_STATES)
        return f"{where} has the states of hooks alone: {_read(it)} the checkpoint itself"
    if path.name and path.with_name(path.name + _INDEX).is_file():
        return f"{where} is a checkpoint of TensorFlow: {_read(where)} it"
    if latest := _latest_of_tensorflow(path):
        return f"the checkpoints in {where} are TensorFlow's: {_read(printable(latest))} one"
    return None


def check_no_tensorflow_checkpoints(checkpoint_dir: str | os.PathLike[str]) -> None:
    """Raise ValueError if a directory has checkpoints of TensorFlow."""
    found = _latest_of_tensorflow(place_of(checkpoint_dir))
    if found:
        latest = printable(found)
        raise ValueError(
            f"checkpoint_dir {os.fspath(checkpoint_dir)!r} has checkpoints of TensorFlow, "
            f"the latest {latest!r}, which only sessions of a tf.Graph can restore: give another "
            "checkpoint_dir to start over. To begin with its weights, write them to a .npz file "
            f"with tf.train.load_checkpoint({latest!r}).get_tensor(name), and give "
            "Scaffold(init_from=rh.InitFrom('weights.npz'))"
        )


def _read(path: str) -> str:
    return f"tf.train.load_checkpoint({path!r}) reads"


def _latest_of_tensorflow(directory: AnyPath) -> AnyPath | None:
    files: dict[str, float] = {}  # when they were written
    with suppress(FileNotFoundError, NotADirectoryError):
        below = directory.files() if isinstance(directory, StorePath) else directory.iterdir()
        for path in below:
            with suppress(FileNotFoundError):  # just removed
                if path.parent == directory and path.is_file():
                    files[path.name] = path.stat().st_mtime
    names = {match[1] for file in files if (match := _DATA.fullmatch(file))}
    saved = {name: files[name + _INDEX] for name in names if name + _INDEX in files}
    return directory / max(saved, key=lambda it: (saved[it], it)) if saved else None


def find_checkpoints(checkpoint_dir: str | os.PathLike[str]) -> list[Checkpoint]:
    """Return the checkpoints in a directory, damaged ones too, in the order of saving, or of steps.

    Raises ValueError if one has a newer format.
    """
    directory = place_of(checkpoint_dir)
    paths = _paths(directory)
    while True:
        if isinstance(directory, StorePath):
            with reading_threads() as threads:
                found = list(threads.map(_look_at, paths))
        else:
            found = list(map(_look_at, paths))
        listed, paths = paths, _paths(directory)
        # If one was removed meanwhile, there may be a newer one that is not listed.
        if paths >= listed:
            return sorted(filter(None, found), key=lambda it: (it.wall_time, it.step, it.path))


def checkpoints(checkpoint_dir: str | os.PathLike[str]) -> list[str]:
    """Return the paths of the complete checkpoints in a directory, in the order of saving.

    Complete: the manifest is sound, and each file has the size that it states.
    """
    return [str(it.path) for it in find_checkpoints(checkpoint_dir) if it.complete]


def latest_checkpoint(checkpoint_dir: str | os.PathLike[str]) -> str | None:
    """Return the path of the newest complete checkpoint, or None if there is none.

    Raises:
        FileNotFoundError: The bucket of a URL does not exist.
        OSError: The store cannot be reached.
    """
    return next(reversed(checkpoints(checkpoint_dir)), None)


def checkpoint_step(path: str | os.PathLike[str]) -> int | None:
    """Return the global step of a checkpoint; None if its graph had none.

    Raises NotFoundError or DataLossError if it is not complete.
    """
    return read_manifest(place_of(path)).global_step


def _paths(directory: AnyPath) -> set[AnyPath]:
    found: set[AnyPath] = set()
    if isinstance(directory, StorePath):  # its bucket must be there, unlike a folder on a disk
        names = directory.store.folders(directory.key)
        found.update(directory / name for name in names if name != CLAIMS)
    else:
        with suppress(FileNotFoundError, NotADirectoryError):
            found.update(directory.iterdir())
    return {path for path in found if not holds_hook_states(path)}


def _look_at(path: AnyPath) -> Checkpoint | None:
    try:
        if not looks_like_checkpoint(path):
            return None
        try:
            return checkpoint_of(path, read_manifest(path))
        except DataLossError:
            name = NAME.fullmatch(path.name)
            time = min(max(modified(path), 0), clock.wall())
            return Checkpoint(path, int(name[1]), time, time, complete=False) if name else None
    except (NotFoundError, FileNotFoundError):  # just removed
        return None
