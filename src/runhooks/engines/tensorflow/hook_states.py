"""What hooks keep in checkpoints, in a folder beside TensorFlow's own files: ``<path>.hooks``.

TensorFlow's saver knows variables alone, and deletes its files without telling anybody.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runhooks.checkpoint import Snapshot, read_checkpoint, write_checkpoint
from runhooks.checkpoint.staging import discard
from runhooks.errors import DataLossError, NotFoundError

_log = logging.getLogger("runhooks")

_SUFFIX = ".hooks"

# What follows the path of a checkpoint in the name of one of its files; of format V1, nothing if
# it has but one file.
_PART = re.compile(r"(\.index|-\d{5}-of-\d{5})$")


def save_states(path: str, states: Mapping[str, Any], step: int) -> None:
    """Write ``states`` for the checkpoint ``path``, which is to be saved next: none lacks them.

    Raises as ``write_checkpoint``.
    """
    if states:
        write_checkpoint(Path(path + _SUFFIX), Snapshot({}, dict(states)), global_step=step)


def load_states(path: str) -> dict[str, Any]:
    """The states that belong to the checkpoint ``path``; empty if there are none or are damaged."""
    try:
        return read_checkpoint(Path(path + _SUFFIX)).states
    except NotFoundError:
        return {}
    except DataLossError as error:
        _log.warning("hooks begin anew, for what they had kept is damaged: %s", error)
        return {}


def sweep_states(path: str) -> None:
    """Remove the states of checkpoints beside ``path`` that are there no more."""
    parent = Path(path).parent
    names = [file.name for file in parent.iterdir()]
    checkpoints = {_PART.sub("", name) for name in names}
    for name in names:
        if name.endswith(_SUFFIX) and name.removesuffix(_SUFFIX) not in checkpoints:
            discard(parent / name)
