"""``Inspected``: what is in a checkpoint, found without loading its arrays."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import google_crc32c

from runhooks.checkpoint.format import STATES, Checkpoint, read_manifest
from runhooks.checkpoint.manifest import ArraySpec, Manifest
from runhooks.errors import DataLossError

_PART_BYTES = 4 << 20


class Array(NamedTuple):
    """An array of a checkpoint. ``size`` is in bytes."""

    dtype: str
    shape: tuple[int, ...]
    size: int


class Inspected(NamedTuple):
    """A checkpoint.

    ``step``: None if its graph had none. ``wall_time``: when it was saved, in seconds since the
    epoch. ``size``: that of its files, in bytes. ``fault``: what is wrong with it, None if it is
    sound; what cannot be known for that is empty. ``states``: whose states it keeps.
    """

    path: Path
    step: int | None
    wall_time: float
    size: int
    fault: str | None
    arrays: dict[str, Array]
    metrics: dict[str, float]
    states: list[str]


def inspect(checkpoint: Checkpoint) -> Inspected:
    """Read the files of ``checkpoint``, comparing each with its checksum.

    Raises FileNotFoundError or NotFoundError if it was removed meanwhile.
    """
    path = checkpoint.path
    size = sum(file.stat().st_size for file in path.iterdir())
    step = None if checkpoint.step < 0 else checkpoint.step
    about = Inspected(path, step, checkpoint.wall_time, size, None, {}, {}, [])
    try:
        manifest = read_manifest(path)
    except DataLossError as error:
        prefix = f"checkpoint {path} is damaged: "
        return about._replace(fault=error.message.removeprefix(prefix))
    return about._replace(
        fault=_fault(path, manifest),
        arrays={name: _array(spec) for name, spec in manifest.arrays.items()},
        metrics=dict(manifest.metrics),
        states=_states(path / STATES),
    )


def _fault(path: Path, manifest: Manifest) -> str | None:
    for name, expected in manifest.files.items():
        if _checksum(path / name) != expected.crc32c:
            return f"the checksum of {name} does not fit its content"
    return None


def _checksum(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while part := file.read(_PART_BYTES):
            crc = google_crc32c.extend(crc, part)
    return crc


def _array(spec: ArraySpec) -> Array:
    bits = re.search(r"\d+", spec.dtype)  # of float8_e4m3fn: 8; bool has none
    item_bytes = int(bits[0]) // 8 if bits else 1
    return Array(spec.dtype, spec.shape, item_bytes * math.prod(spec.shape))


def _states(path: Path) -> list[str]:
    try:
        states = json.loads(path.read_bytes())
    except ValueError:
        return []
    return list(states) if isinstance(states, Mapping) else []
