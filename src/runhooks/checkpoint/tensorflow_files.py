"""TensorFlow's checkpoints beside ours: found by the names of their files, and never read."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import NamedTuple

from runhooks.checkpoint.format import looks_like_checkpoint
from runhooks.checkpoint.places import place_of
from runhooks.checkpoint.reading import opened, printable
from runhooks.stores import masked
from runhooks.stores.path import AnyPath, StorePath

#: What follows the name of a checkpoint of TensorFlow in that of the states of its hooks.
HOOK_STATES = ".hooks"

_INDEX = ".index"
_DATA = re.compile(r"(.+)\.data-\d{5}-of-\d{5}")
_STEP = re.compile(r".+-(\d+)")
_LATEST = re.compile(rb'^model_checkpoint_path: "(.*)"', re.MULTILINE)
_MOST_BYTES = 1 << 20  # of the file that names the latest


class TensorFlowCheckpoint(NamedTuple):
    """A checkpoint that a saver of TensorFlow has written.

    Attributes:
        path: What TensorFlow calls it: its files have this name, and an ending each.
        step: The global step in its name; None if there is none.
        wall_time: When it was saved, in seconds since the epoch.
        size: The size of its files, in bytes.
    """

    path: AnyPath
    step: int | None
    wall_time: float
    size: int


def tensorflow_checkpoints(directory: AnyPath) -> list[TensorFlowCheckpoint]:
    """Return TensorFlow's checkpoints in a directory by their steps, the latest last."""
    files = _files(directory)
    found = []
    for name in {match[1] for file in files if (match := _DATA.fullmatch(file))}:
        if index := files.get(name + _INDEX):
            size = sum(it.size for file, it in files.items() if file.startswith(f"{name}."))
            step = _STEP.fullmatch(name)
            number = int(step[1]) if step else None
            found.append(TensorFlowCheckpoint(directory / name, number, index.time, size))
    latest = _latest_name(directory) if found and "checkpoint" in files else None
    return sorted(found, key=lambda it: (it.path.name == latest, it.step or -1, it.path.name))


def holds_hook_states(path: AnyPath) -> bool:
    """Return whether ``path`` has the states of hooks, and TensorFlow the checkpoint itself."""
    return path.name.endswith(HOOK_STATES)


def tensorflow_checkpoint_near(path: AnyPath) -> str | None:
    """Return what to say of ``path`` if it is, has or belongs to a checkpoint of TensorFlow."""
    where = printable(path)
    if holds_hook_states(path) and looks_like_checkpoint(path):
        it = where.removesuffix(HOOK_STATES)
        return f"{where} has the states of hooks alone: {_read(it)} the checkpoint itself"
    if path.name and path.with_name(path.name + _INDEX).is_file():
        return f"{where} is a checkpoint of TensorFlow: {_read(where)} it"
    if found := tensorflow_checkpoints(path):
        return (
            f"the checkpoints in {where} are TensorFlow's: {_read(printable(found[-1].path))} one"
        )
    return None


def check_no_tensorflow_checkpoints(checkpoint_dir: str | os.PathLike[str]) -> None:
    """Raise ValueError if there are checkpoints of TensorFlow in a directory without ours."""
    found = tensorflow_checkpoints(place_of(checkpoint_dir))
    if found:
        latest = printable(found[-1].path)
        raise ValueError(
            f"checkpoint_dir {masked(os.fspath(checkpoint_dir))!r} has checkpoints of TensorFlow, "
            f"the latest {latest!r}, which only sessions of a tf.Graph can restore: give another "
            "checkpoint_dir to start over. To begin with the weights of such a checkpoint, write "
            f"them once to a .npz file with tf.train.load_checkpoint({latest!r}).get_tensor(name), "
            "and give Scaffold(init_from=rh.InitFrom('weights.npz'))"
        )


def _read(path: str) -> str:
    return f"tf.train.load_checkpoint({path!r}) reads"


class _File(NamedTuple):
    size: int
    time: float


def _files(directory: AnyPath) -> dict[str, _File]:
    """Return the files of a directory by name; none if there is no such directory."""
    files = {}
    with suppress(FileNotFoundError, NotADirectoryError):
        below = directory.files() if isinstance(directory, StorePath) else directory.iterdir()
        for path in below:
            with suppress(FileNotFoundError):  # just removed
                if path.parent == directory and path.is_file():
                    status = path.stat()
                    files[path.name] = _File(status.st_size, status.st_mtime)
    return files


def _latest_name(directory: AnyPath) -> str | None:
    """Return the name of the latest, as TensorFlow's file ``checkpoint`` has it."""
    try:
        with opened(directory / "checkpoint") as (file, _):
            match = _LATEST.search(file.read(_MOST_BYTES))
    except (OSError, ValueError):
        return None
    return os.fsdecode(match[1]).rpartition("/")[2] if match else None
