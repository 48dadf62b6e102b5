"""``export``: a checkpoint as a file that ``torch.load`` reads by itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from runhooks.checkpoint import latest_checkpoint, read_checkpoint
from runhooks.engines.torch_arrays import from_numpy
from runhooks.engines.torch_parts import state_dicts


def export(checkpoint: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Write the state dicts of the parts in ``checkpoint``, by name, to the file ``path``.

    ``torch.load(path, weights_only=True)["model"]`` is what ``model.load_state_dict`` takes. Arrays
    and numbers of NumPy become tensors and plain numbers. The random states are left out.

    Raises NotFoundError if the checkpoint is not there, DataLossError if it is damaged, ValueError
    if it was not saved of a graph of ``rh.torch``, or is a directory of checkpoints, TypeError if
    it is no path.
    """
    if not isinstance(checkpoint, str | os.PathLike):
        raise TypeError(
            f"checkpoint must be the path of a checkpoint, got {checkpoint!r}: "
            "rh.latest_checkpoint(directory) gives None where there is none"
        )
    if (latest := latest_checkpoint(checkpoint)) is not None:
        raise ValueError(
            f"checkpoint must be one checkpoint, got the directory {str(checkpoint)!r}: "
            f"the latest in it is {latest!r}"
        )
    snapshot = read_checkpoint(Path(checkpoint))
    parts = {name: _plain(state) for name, state in state_dicts(*snapshot).items()}
    if not parts:
        raise ValueError(
            f"checkpoint must be one of a graph of rh.torch, got {str(checkpoint)!r} without parts"
        )
    torch.save(parts, path)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return from_numpy(value)
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in (list, tuple):
        return type(value)(_plain(part) for part in value)
    if type(value) is dict:
        return {key: _plain(part) for key, part in value.items()}
    return value
