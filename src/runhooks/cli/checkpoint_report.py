"""``CheckpointReport``: what is in a checkpoint, found without loading its arrays."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from runhooks.checkpoint.format import Checkpoint, check_checkpoint, read_manifest
from runhooks.checkpoint.manifest import ArraySpec
from runhooks.checkpoint.reading import size_below
from runhooks.errors import DataLossError
from runhooks.stores.path import AnyPath


class Array(NamedTuple):
    """An array of a checkpoint. ``size`` is in bytes."""

    dtype: str
    shape: tuple[int, ...]
    size: int


class CheckpointReport(NamedTuple):
    """A checkpoint.

    Attributes:
        path: Its directory.
        step: The global step, or None if its graph had none.
        wall_time: When it was saved, in seconds since the epoch.
        size: The size of its files, in bytes.
        fault: What is wrong with it, or None if it is sound. What a fault makes unreadable is
            empty in the other fields.
        arrays: Its arrays by name.
        metrics: Its metrics by name.
        states: The names of the hooks and inputs whose states it holds.
        ranks: How many ranks have saved it together; None: a process alone.
    """

    path: AnyPath
    step: int | None
    wall_time: float
    size: int
    fault: str | None
    arrays: dict[str, Array]
    metrics: dict[str, float]
    states: list[str]
    ranks: int | None = None


def inspect(checkpoint: Checkpoint) -> CheckpointReport:
    """Read the files of ``checkpoint``, comparing each with its checksum.

    Raises FileNotFoundError or NotFoundError if it was removed in the meantime.
    """
    path = checkpoint.path
    step = None if checkpoint.step < 0 else checkpoint.step
    about = CheckpointReport(path, step, checkpoint.wall_time, 0, None, {}, {}, [])
    try:
        about = about._replace(size=size_below(path))
        manifest = read_manifest(path)
        about = about._replace(
            arrays={name: _array(spec) for name, spec in manifest.arrays.items()},
            metrics=dict(manifest.metrics),
            ranks=manifest.ranks,
        )
        return about._replace(states=check_checkpoint(path))
    except DataLossError as error:
        return about._replace(fault=error.message.partition(" is damaged: ")[2])
    except FileNotFoundError:
        raise
    except OSError as error:
        return about._replace(fault=f"it cannot be read: {error.strerror}")


def _array(spec: ArraySpec) -> Array:
    bits = re.search(r"\d+", spec.dtype)  # of float8_e4m3fn: 8; bool has none
    item_bytes = (int(bits[0]) + 7) // 8 if bits else 1
    return Array(spec.dtype, spec.shape, item_bytes * math.prod(spec.shape))
