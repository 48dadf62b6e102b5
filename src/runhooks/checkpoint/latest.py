"""Finds checkpoints in a directory.

The latest is the one that was saved last, as in TensorFlow, not the one with the highest step: a
run may have been taken back to an earlier step and go on from there.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from runhooks import clock
from runhooks.checkpoint.format import (
    Checkpoint,
    described,
    looks_like_checkpoint,
    read_manifest,
)
from runhooks.checkpoint.places import place_of
from runhooks.checkpoint.reading import modified, printable
from runhooks.checkpoint.tensorflow_files import holds_hook_states
from runhooks.errors import DataLossError, NotFoundError
from runhooks.stores.interruption import interrupting
from runhooks.stores.path import AnyPath, StorePath

_log = logging.getLogger("runhooks")

AnyResult = TypeVar("AnyResult")

# In a store, where looking at one takes as long as looking at many.
_MOST_AT_ONCE = 16
_STEP_IN_NAME = re.compile(r".+-(\d+)(\.replaced)?")


def find_checkpoints(checkpoint_dir: str | os.PathLike[str]) -> list[Checkpoint]:
    """Return the checkpoints in a directory, damaged ones too, in the order of saving.

    Checkpoints of one moment come in the order of their steps. Their values are not read.

    Raises:
        ValueError: One has a newer format.
    """
    directory = place_of(checkpoint_dir)
    paths = _paths(directory)
    while True:
        found = list(filter(None, _look_at_all(directory, paths)))
        listed, paths = paths, _paths(directory)
        # If another process has removed one meanwhile, a newer one may be there that is not listed.
        if paths >= listed:
            return sorted(found, key=lambda it: (it.wall_time, it.step, it.path))


def checkpoints(checkpoint_dir: str | os.PathLike[str]) -> list[str]:
    """Return the paths of the complete checkpoints in a directory, in the order of saving.

    Complete means that the manifest is sound and each file has the size that it states. The
    contents of the files are checked when they are read.
    """
    return [str(it.path) for it in find_checkpoints(checkpoint_dir) if it.complete]


def latest_checkpoint(checkpoint_dir: str | os.PathLike[str]) -> str | None:
    """Return the path of the newest complete checkpoint, or None if there is none.

    Raises:
        FileNotFoundError: The bucket of a URL does not exist.
        OSError: The store cannot be reached.
    """
    return next(reversed(checkpoints(checkpoint_dir)), None)


def newest_sound(
    checkpoint_dir: str | os.PathLike[str], read: Callable[[AnyPath], AnyResult]
) -> tuple[AnyPath, AnyResult] | None:
    """Return the newest checkpoint in a directory that ``read`` can read, and what it returns.

    A damaged one is skipped with one warning. None if the directory has no checkpoint.

    Raises:
        DataLossError: All are damaged.
        Exception: What else ``read`` raises. Older ones are not tried.
    """
    tried: set[AnyPath] = set()
    damaged = []
    while untried := [it.path for it in find_checkpoints(checkpoint_dir) if it.path not in tried]:
        path = untried[-1]
        tried.add(path)
        try:
            return path, read(path)
        except NotFoundError:  # another process has just removed it, and saved a newer one
            continue
        except DataLossError as error:
            _log.warning("%s; trying the one before it", error)
            damaged.append(error)
    if damaged:
        raise DataLossError(
            f"none of the {len(damaged)} checkpoints in {printable(checkpoint_dir)} is sound; the "
            f"newest: {damaged[0]}. Move them aside to start over",
            path=str(place_of(checkpoint_dir)),
        ) from damaged[0]
    return None


def checkpoint_step(path: str | os.PathLike[str]) -> int | None:
    """Return the global step of a checkpoint; None if its graph had none.

    Raises:
        NotFoundError: There is no such checkpoint.
        DataLossError: It is not complete.
    """
    return read_manifest(place_of(path)).global_step


def _paths(directory: AnyPath) -> set[AnyPath]:
    return {path for path in _all_paths(directory) if not holds_hook_states(path)}


def _all_paths(directory: AnyPath) -> set[AnyPath]:
    if isinstance(directory, StorePath):  # its bucket must be there, unlike a folder on a disk
        names = directory.store.folders(directory.key)
        return {directory / name for name in names if name[0] != "."}
    try:
        return {path for path in directory.iterdir() if not path.name.startswith(".tmp-")}
    except (FileNotFoundError, NotADirectoryError):
        return set()


def _look_at_all(directory: AnyPath, paths: Collection[AnyPath]) -> Iterable[Checkpoint | None]:
    if isinstance(directory, StorePath) and len(paths) > 1:
        with ThreadPoolExecutor(_MOST_AT_ONCE, "runhooks-look") as threads, interrupting():
            return list(threads.map(_look_at, paths))
    return map(_look_at, paths)


def _look_at(path: AnyPath) -> Checkpoint | None:
    try:
        if not looks_like_checkpoint(path):
            return None
        try:
            return described(path, read_manifest(path))
        except DataLossError:
            name = _STEP_IN_NAME.fullmatch(path.name)
            time = min(max(modified(path), 0), clock.wall())
            return Checkpoint(path, int(name[1]), time, time, complete=False) if name else None
    except (NotFoundError, FileNotFoundError):  # just removed
        return None
