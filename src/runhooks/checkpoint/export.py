"""``export``: arrays of a checkpoint as a file of safetensors, NumPy or PyTorch."""

from __future__ import annotations

import logging
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks import arguments
from runhooks.arrays.dtypes import dtype_named
from runhooks.arrays.registry import library_of_file
from runhooks.checkpoint import arrays
from runhooks.checkpoint.best import Choice, Mode
from runhooks.checkpoint.manifest import ArraySpec
from runhooks.checkpoint.names import Only, nested
from runhooks.checkpoint.places import place_of
from runhooks.checkpoint.weight_files import NPZ, SAFETENSORS, open_file
from runhooks.checkpoint.weights import Weights, read_weights
from runhooks.stores.replacing import replacing

_log = logging.getLogger("runhooks")

#: Writes the arrays with these names in a file, by these names in the weights.
Writer = Callable[[Path, Weights, Mapping[str, str]], None]


def export(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    only: str | Iterable[str] | None = None,
    *,
    step: int | None = None,
    best: str | None = None,
    mode: Mode | None = None,
) -> None:
    """Write the arrays of a checkpoint to a file for other programs, replacing an existing one.

    Except for ``.pt``, this needs memory for only one array. Names are those that ``rh.load``
    gives: if ``only`` is a single name, the rest after it or, for that array itself, the last part
    of its name.

    Args:
        source: What to read, as for ``load``.
        path: The file to write. The ending gives the format: ``.safetensors``; ``.npz``, for
            ``numpy.load``; ``.pt`` or ``.pth``, for ``torch.load``, with names split at ``/`` into
            dicts.
        only: The arrays to write, as for ``load``.
        step: As for ``load``.
        best: As for ``load``.
        mode: As for ``load``.

    Raises:
        NotFoundError: There is no such checkpoint or file.
        DataLossError: It is damaged.
        ValueError: ``only`` names something that is not there, or ``path`` has another ending.
        TypeError: The format cannot hold an array.
        ImportError: PyTorch is needed and not installed.
        OSError: The file cannot be written.
    """
    arguments.given(path=path)
    arguments.directory(path=path)
    wanted, choice = Only(only), Choice(step, best, mode)
    target = place_of(path)
    write = _writer(target.suffix)

    def read(weights: Weights) -> None:
        names = wanted.relative(weights.names, weights)
        if target.suffix in (SAFETENSORS, NPZ):  # which have nothing without a name
            names = {short or name.rpartition("/")[2]: name for short, name in names.items()}
        with replacing(target) as part:
            write(part, weights, names)
        _log.info("exported %d arrays of %s to %s", len(names), weights, target)

    read_weights(source, choice, open_file, read)


def _writer(suffix: str) -> Writer:
    if suffix == SAFETENSORS:
        return _write_safetensors
    if suffix == NPZ:
        return _write_npz
    library = library_of_file(suffix)
    if library is None:
        raise ValueError(f"path must end in .safetensors, .npz or .pt, got the ending {suffix!r}")

    def write(path: Path, weights: Weights, names: Mapping[str, str]) -> None:
        read = weights.read(names.values())
        library.write_file(path, nested({short: read[name] for short, name in names.items()}))

    return write


def _write_safetensors(path: Path, weights: Weights, names: Mapping[str, str]) -> None:
    specs = {short: weights.spec(name) for short, name in names.items()}
    header, offsets = arrays.foreign_layout(specs)
    with path.open("wb") as file:
        file.write(header)
        for short, array in _by_short_name(weights, names):
            file.seek(len(header) + offsets[short])
            file.write(arrays.as_bytes(array))  # type: ignore[arg-type] # a buffer


def _write_npz(path: Path, weights: Weights, names: Mapping[str, str]) -> None:
    for short, name in names.items():
        _check_npz(short, weights.spec(name))
    with zipfile.ZipFile(path, "w") as members:
        for short, array in _by_short_name(weights, names):
            with members.open(f"{short}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _check_npz(name: str, spec: ArraySpec) -> None:
    dtype = dtype_named(spec.dtype)
    with suppress(TypeError):
        if np.dtype(dtype.str) == dtype:  # all that the format keeps of a dtype
            return
    raise TypeError(f"{name!r} is {dtype}, which .npz cannot hold: export to .safetensors")


def _by_short_name(
    weights: Weights, names: Mapping[str, str]
) -> Iterator[tuple[str, NDArray[Any]]]:
    short_names: dict[str, list[str]] = {}
    for short, name in names.items():
        short_names.setdefault(weights.same.get(name, name), []).append(short)
    for name, array in weights.stream(short_names.keys()):
        for short in short_names[name]:
            yield short, array
