"""Beside TensorFlow's own checkpoint files: the states of hooks, in ``<path>.hooks``.

TensorFlow's saver saves variables alone, and deletes its files without telling anybody.
"""

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
from runhooks.checkpoint.manifest import MANIFEST, is_data_file
from runhooks.checkpoint.staging import discard
from runhooks.checkpoint.tensorflow_files import HOOK_STATES
from runhooks.engines.tensorflow.file_systems import (
    downloaded,
    is_url,
    names_in,
    remove,
    upload,
)
from runhooks.errors import DataLossError, NotFoundError

v1 = tf.compat.v1

_log = logging.getLogger("runhooks")

# What follows the path of a checkpoint in the name of one of its files; of format V1, nothing if
# it has but one file.
_PART = re.compile(r"(\.index|-\d{5}-of-\d{5})$")


def save_states(path: str, states: Mapping[str, Any], step: int) -> None:
    """Write ``states`` for the checkpoint ``path``, before it: so no checkpoint lacks them.

    Raises as ``write_checkpoint`` does.
    """
    if not states:
        return
    snapshot = Snapshot({}, dict(states))
    if not is_url(path):
        write_checkpoint(Path(path + HOOK_STATES), snapshot, global_step=step)
        return
    with tempfile.TemporaryDirectory() as folder:
        local = Path(folder, "states")
        write_checkpoint(local, snapshot, global_step=step)
        upload(local, path + HOOK_STATES, last=MANIFEST)


def load_states(path: str) -> dict[str, Any]:
    """Return the states saved with the checkpoint ``path``; empty if there are none, or damaged."""
    try:
        if not is_url(path):
            return read_checkpoint(Path(path + HOOK_STATES)).states
        with downloaded(path + HOOK_STATES) as folder:
            return read_checkpoint(folder).states if any(folder.iterdir()) else {}
    except NotFoundError:
        return {}
    except DataLossError as error:
        _log.warning("hooks start over: their saved states are damaged: %s", error)
        return {}


def sweep_states(path: str) -> None:
    """Remove the states of checkpoints beside ``path`` that no longer exist."""
    parent = os.path.dirname(path) or "."  # noqa: PTH120 - it may be a URL
    names = names_in(parent)
    checkpoints = {_PART.sub("", name) for name in names}
    for name in names:
        if name.endswith(HOOK_STATES) and name.removesuffix(HOOK_STATES) not in checkpoints:
            if is_url(path):
                remove(f"{parent}/{name}")
            else:
                discard(Path(parent, name))


def take_over_checkpoints(saver: Any, path: str, restored: str | None) -> None:
    """Let a saver that knows no checkpoint know those of its name that a session goes on from.

    Else it would delete none of them, and list none as what to fall back to.

    Args:
        saver: A saver of TensorFlow's.
        path: What it saves as, without the step.
        restored: The checkpoint that the session was restored from; None: from none.
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

    Where a directory is spelled in two ways, as ``ck`` and ``./ck``, TensorFlow's saver takes one
    checkpoint for two, and deletes a good one too early.
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
    """Raise ValueError if runhooks has saved checkpoints of another engine in a directory."""
    folder = checkpoint_dir.rstrip("/")
    for name in sorted(names_in(checkpoint_dir)):
        files = [] if name.endswith(HOOK_STATES) else names_in(f"{folder}/{name}")
        if MANIFEST in files and any(map(is_data_file, files)):
            raise ValueError(
                f"checkpoint_dir {checkpoint_dir!r} has checkpoints of another engine, such as "
                f"{name!r}, which a session of a tf.Graph cannot restore: give another "
                "checkpoint_dir to start over. To begin with their weights, also give "
                f"Scaffold(init_from=rh.InitFrom({checkpoint_dir!r}))"
            )


def check_saver(saver: Any) -> None:
    """Raise TypeError for a ``runhooks.Saver``, which saves graphs of the other engines."""
    if isinstance(saver, Saver):
        raise TypeError(
            "the saver must be a tf.compat.v1.train.Saver, or in a Scaffold a tf.train.Checkpoint, "
            f"where the graph is TensorFlow's, got {saver!r}: rh.Saver is for the other engines"
        )
