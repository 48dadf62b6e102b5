"""Checkpoints of TensorFlow's savers, which hold variables alone, and hooks' states beside them."""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from runhooks.checkpoint import Saver, Snapshot, read_checkpoint, write_checkpoint
from runhooks.checkpoint.attempts import discard
from runhooks.checkpoint.format import HOOK_STATES
from runhooks.checkpoint.tensors import COMMIT
from runhooks.errors import DataLossError, NotFoundError

v1 = tf.compat.v1

_gfile = tf.io.gfile

_log = logging.getLogger("runhooks")


def _is_url(path: str) -> bool:
    return "://" in path


def check_scheme(path: str | os.PathLike[str]) -> None:
    """Raise ValueError if ``path`` is a URL whose scheme TensorFlow does not know."""
    scheme, separator, _ = os.fspath(path).partition("://")
    known = _gfile.get_registered_schemes()
    if separator and scheme not in known:
        names = ", ".join(f"{name}://" for name in sorted(filter(None, known)))
        raise ValueError(
            f"checkpoints of a tf.Graph cannot be at {os.fspath(path)!r}: TensorFlow "
            f"writes them, and knows {names} and local paths; give one of these, or import a "
            f"package that adds {scheme}://, such as tensorflow_io"
        )


def _names_in(url: str) -> list[str]:
    return [it.rstrip("/") for it in _gfile.listdir(url)] if _gfile.isdir(url) else []


# What a file name adds to a checkpoint's path; in format V1, maybe nothing.
_PART = re.compile(r"(\.index|-\d{5}-of-\d{5})$")


def save_states(path: str, states: Mapping[str, Any], step: int) -> None:
    """Write ``states`` for the checkpoint ``path``, before it: none may lack them."""
    if not states:
        return
    snapshot = Snapshot({}, dict(states))
    if not _is_url(path):
        write_checkpoint(Path(path + HOOK_STATES), snapshot, global_step=step)
        return
    with tempfile.TemporaryDirectory() as folder:
        local, url = Path(folder, "states"), path + HOOK_STATES
        write_checkpoint(local, snapshot, global_step=step)
        _gfile.makedirs(url)
        _gfile.copy(str(local / COMMIT), f"{url}/{COMMIT}", overwrite=True)


def load_states(path: str) -> dict[str, Any]:
    """Return the states saved with the checkpoint; none if they are damaged."""
    try:
        if not _is_url(path):
            return read_checkpoint(Path(path + HOOK_STATES)).states
        file = f"{path}{HOOK_STATES}/{COMMIT}"
        if not _gfile.exists(file):
            return {}
        with tempfile.TemporaryDirectory() as folder:
            _gfile.copy(file, f"{folder}/{COMMIT}")
            return read_checkpoint(Path(folder)).states
    except NotFoundError:
        return {}
    except DataLossError as error:
        _log.warning("hooks start over: their saved states are damaged: %s", error)
        return {}


def sweep_states(path: str) -> None:
    """Remove the states of checkpoints that the saver has deleted."""
    parent = os.path.dirname(path) or "."  # noqa: PTH120 - it may be a URL
    names = _names_in(parent)
    checkpoints = {_PART.sub("", name) for name in names}
    for name in names:
        if name.endswith(HOOK_STATES) and name.removesuffix(HOOK_STATES) not in checkpoints:
            if not _is_url(path):
                discard(Path(parent, name))
            elif _names_in(f"{parent}/{name}") == [COMMIT]:
                _gfile.rmtree(f"{parent}/{name}")


def take_over_checkpoints(saver: Any, path: str, restored: str | None) -> None:
    """Let a saver that knows no checkpoint know those of its name beside the one ``restored``.

    Else it would neither list nor delete them. ``path``: what it saves as, without the step.
    """
    if restored is None or saver.last_checkpoints:
        return
    folder, name = os.path.split(path)
    if os.path.realpath(os.path.dirname(restored)) != os.path.realpath(folder):  # noqa: PTH120
        return
    state = v1.train.get_checkpoint_state(folder)
    listed = [] if state is None else state.all_model_checkpoint_paths
    own = [it for it in listed if os.path.basename(it).rpartition("-")[0] == name]  # noqa: PTH119
    saver.recover_last_checkpoints(own)


def respell_checkpoints(saver: Any, folder: str) -> None:
    """Let ``saver`` know its checkpoints in ``folder`` by the name that it is about to use.

    It takes ``ck/a`` and ``./ck/a`` for two, and deletes a good one too early.
    """
    known = list(getattr(saver, "last_checkpoints", ()))
    here = os.path.realpath(folder)
    spelled = [
        os.path.join(folder, name) if os.path.realpath(parent) == here else path  # noqa: PTH118
        for path in known
        for parent, name in [os.path.split(path)]
    ]
    if spelled != known:
        saver.recover_last_checkpoints(list(dict.fromkeys(spelled)))


def check_no_other_checkpoints(checkpoint_dir: str) -> None:
    """Raise ValueError if a directory has checkpoints of another engine."""
    folder = checkpoint_dir.rstrip("/")
    for name in sorted(_names_in(checkpoint_dir)):
        files = [] if name.endswith(HOOK_STATES) else _names_in(f"{folder}/{name}")
        if COMMIT in files:
            raise ValueError(
                f"checkpoint_dir {checkpoint_dir!r} has checkpoints of another engine, such as "
                f"{name!r}, which a session of a tf.Graph cannot restore: give another "
                "checkpoint_dir to start over. To begin with their weights, also give "
                f"Scaffold(init_from=rh.InitFrom({checkpoint_dir!r}))"
            )


def check_saver(saver: Any) -> None:
    if isinstance(saver, Saver):
        raise TypeError(
            "the saver must be a tf.compat.v1.train.Saver, or in a Scaffold a tf.train.Checkpoint, "
            f"where the graph is TensorFlow's, got {saver!r}: rh.Saver is for the other engines"
        )
