"""``Weights``: arrays of checkpoints and of other programs' files; ``export``."""

from __future__ import annotations

import errno
import json
import logging
import os
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks import arguments
from runhooks import arrays as libraries
from runhooks.arrays.registry import library_of_file
from runhooks.arrays.shards import volume
from runhooks.arrays.trees import by_path, flatten
from runhooks.checkpoint import tensors
from runhooks.checkpoint.files import (
    followed,
    local_copy,
    opened,
    place_of,
    printable,
    size_of,
)
from runhooks.checkpoint.format import StoredCheckpoint, find_checkpoints, looks_like_checkpoint
from runhooks.checkpoint.group import AnyResult
from runhooks.checkpoint.manifest import ArraySpec, is_shape
from runhooks.checkpoint.names import Only, is_average, is_run_state, other_names, saved_averages
from runhooks.checkpoint.retention import Choice, Mode
from runhooks.checkpoint.shards import read_several
from runhooks.checkpoint.tensors import NOT_OF_THE_FILE, TensorFile
from runhooks.errors import DataLossError, NotFoundError, cause
from runhooks.stores.path import AnyPath, replacing

_log = logging.getLogger("runhooks")

Named = Iterator[tuple[str, NDArray[Any]]]


class Weights(ABC):
    """Arrays by name, in a checkpoint or a file.

    Attributes:
        specs: In the order of the model where it is known.
        same: Names in ``specs`` by other names of the arrays.
        of_run: Names of what belongs to the run.
        averages: Names of parameters by those of their averages.
    """

    path: AnyPath
    specs: Mapping[str, ArraySpec]
    same: Mapping[str, str] = MappingProxyType({})
    of_run: Collection[str] = frozenset()
    averages: Mapping[str, str] = MappingProxyType({})

    def __str__(self) -> str:
        return printable(self.path)

    @property
    def names(self) -> list[str]:
        return [*self.specs, *self.same]

    def spec(self, name: str) -> ArraySpec:
        return self.specs[self.same.get(name, name)]

    @abstractmethod
    def stream(self, wanted: Collection[str]) -> Named:
        """Yield the arrays ``wanted``, names in ``specs``, in any order; none overlap."""

    def read(self, wanted: Collection[str]) -> dict[str, NDArray[Any]]:
        read = dict(self.stream({self.same.get(name, name) for name in wanted}))
        return {name: read[self.same.get(name, name)] for name in wanted}


class CheckpointWeights(Weights):
    def __init__(self, path: AnyPath) -> None:
        self.path = path
        self._stored = StoredCheckpoint(path)
        self.specs = self._stored.specs
        states = self._stored.states_without_arrays()
        known = other_names(states).items()
        self.same = {name: saved for name, saved in known if saved in self.specs}
        self.averages = saved_averages(states)
        self.of_run = {
            name
            for name in self.names
            if is_run_state(name, states) and not is_average(name, self.averages)
        }

    def stream(self, wanted: Collection[str]) -> Named:
        arrays = self._stored.arrays()
        return read_several({name: arrays[name] for name in wanted})


SAFETENSORS, NPZ = ".safetensors", ".npz"
_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
_MOST_INDEX_BYTES = 64 << 20
_NPY_HEADERS: dict[Any, Callable[[Any], Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_MOST_COMPRESSION = 1100  # a little more than deflate's of zeros
_EMPTY = 22  # bytes of a zip file without members


def read_weights(
    source: str | os.PathLike[str], choice: Choice, read: Callable[[Weights], AnyResult]
) -> AnyResult:
    """Return what ``read`` makes of the weights that ``source`` and ``choice`` mean.

    It is called with those of an older checkpoint if it raises DataLossError.
    """
    arguments.given(source=source)
    arguments.directory(source=source)
    path = place_of(source)
    weights = _weights_in_file(path)
    if weights is not None:
        choice.check_alone(path)
        return read(weights)
    return choice.read(path, lambda it: read(CheckpointWeights(it)))


def _weights_in_file(path: AnyPath) -> Weights | None:
    if path.is_dir():
        files = (path / name for name in (_INDEX, _SINGLE))
        found = next((file for file in files if file.is_file()), None)
        # An export may be beside checkpoints.
        if found is None or looks_like_checkpoint(path) or find_checkpoints(path):
            return None
        path = found
    if path.name.endswith(".index.json"):
        return ShardedSafetensors(path)
    for suffix, kind in ((SAFETENSORS, SafetensorsFile), (NPZ, NpzFile)):
        if path.suffix == suffix:
            return kind(path)
    library = library_of_file(path.suffix)
    return None if library is None else LibraryFile(path, library)


class SafetensorsFile(Weights):
    def __init__(self, path: AnyPath) -> None:
        self.path = path
        with _naming(path):
            self._file = TensorFile(followed(path))
            entries = self._file.entries.items()
        if self._file.is_of_checkpoint:
            raise ValueError(
                f"{self} is a file of a checkpoint: give its folder, or what rh.export makes of it"
            )
        self.specs = {name: ArraySpec(*it[:2]) for name, it in entries}

    def stream(self, wanted: Collection[str]) -> Named:
        with _naming(self.path):
            yield from self._file.stream(wanted)


class ShardedSafetensors(Weights):
    def __init__(self, path: AnyPath) -> None:
        self.path = path
        with _naming(path), opened(followed(path)) as (file, size):
            if size > _MOST_INDEX_BYTES:
                raise ValueError(f"it has {size} bytes, the most is {_MOST_INDEX_BYTES}")
            self._file_names = _weight_map(file.read(size))
        self._files = {
            name: SafetensorsFile(path.parent / name) for name in {*self._file_names.values()}
        }
        with _naming(path):
            self.specs = {name: self._spec(name) for name in self._file_names}

    def stream(self, wanted: Collection[str]) -> Named:
        for name, file in self._files.items():
            here = {it for it in wanted if self._file_names[it] == name}
            if here:
                yield from file.stream(here)

    def _spec(self, name: str) -> ArraySpec:
        file = self._files[self._file_names[name]]
        if name not in file.specs:
            raise ValueError(f"it says that {file} has {name!r}, which is not in it")
        return file.specs[name]


class NpzFile(Weights):
    def __init__(self, path: AnyPath) -> None:
        self.path = path
        self.specs = {}
        with _naming(path), self._opened() as (members, size):
            listed = members.infolist()
            self._members = by_path((it.filename.removesuffix(".npy"), it) for it in listed)
            if sum(it.compress_size for it in listed) > size:
                raise ValueError("its members overlap")
            # A comment, which NumPy never writes, may hide members.
            if any(it.comment for it in listed) or (not self._members and size > _EMPTY):
                raise ValueError("its list of members is damaged")
            for name, member in self._members.items():
                with members.open(member) as data:
                    self.specs[name] = _npy_spec(name, data, member)

    def stream(self, wanted: Collection[str]) -> Named:
        with _naming(self.path), self._opened() as (members, _):
            for name, member in self._members.items():
                if name in wanted:
                    with members.open(member) as data:
                        yield name, np.lib.format.read_array(data, allow_pickle=False)
                        data.read()  # to its checksum

    @contextmanager
    def _opened(self) -> Iterator[tuple[zipfile.ZipFile, int]]:
        with opened(followed(self.path)) as (file, size), zipfile.ZipFile(file) as members:
            yield members, size


class LibraryFile(Weights):
    """A file that an array library reads, such as ``.pt``."""

    def __init__(self, path: AnyPath, library: libraries.ArrayLibrary) -> None:
        self.path = path
        self._library = library
        with _naming(path):
            file = followed(path)
            self._size = size_of(file)
            with local_copy(file) as local:
                _compare(local)
                found = flatten(library.read_file(local)).leaves
            self._arrays = by_path(it for it in found if library.owns(type(it[1])))
            forms = {name: self._about(name, library.host_form) for name in self._arrays}
            self._nbytes = {
                name: volume(it) * dtype.itemsize for name, (it, dtype) in forms.items()
            }
            self.specs = {name: ArraySpec(dtype.name, it) for name, (it, dtype) in forms.items()}

    def stream(self, wanted: Collection[str]) -> Named:
        with _naming(self.path):
            # An item may stand for a whole array, as a sparse one's zeros.
            nbytes = sum(self._nbytes[name] for name in wanted)
            if nbytes > _MOST_COMPRESSION * self._size:
                raise ValueError(
                    f"its arrays would take {nbytes} bytes, more than {_MOST_COMPRESSION} times "
                    f"the {self._size} of the file"
                )
            for name in wanted:
                yield name, np.array(self._about(name, self._library.to_numpy))

    def _about(self, name: str, ask: Callable[[Any], Any]) -> Any:
        try:
            return ask(self._arrays[name])
        except TypeError as error:
            raise ValueError(f"{name!r}: {error}") from error


def _compare(path: Path) -> None:
    """Raise ValueError if a CRC-32 in a zip file does not match."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as members:
            if any(it.CRC for it in members.infolist()) and (bad := members.testzip()):
                raise ValueError(f"the CRC-32 of {bad!r} does not match its content")


def _weight_map(content: bytes) -> Mapping[str, str]:
    try:
        found = json.loads(content)["weight_map"]
        names = {name: Path(file) for name, file in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("it has no weight_map of names and files") from None
    if any(file.name != str(file) or file.suffix != SAFETENSORS for file in names.values()):
        raise ValueError("its weight_map must name safetensors files of the same folder")
    return {name: str(file) for name, file in names.items()}


def _npy_spec(name: str, data: Any, member: zipfile.ZipInfo) -> ArraySpec:
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name!r} is compressed in a way that NumPy does not write")
    version = np.lib.format.read_magic(data)
    if version not in _NPY_HEADERS:
        raise ValueError(f"{name!r} has the version {version} of its format")
    shape, _, dtype = _NPY_HEADERS[version](data)
    if dtype.hasobject:
        raise ValueError(f"{name!r} is an array of Python objects, which would be unpickled")
    if not is_shape([*shape]):
        raise ValueError(f"{name!r} has the shape {shape}")
    # Memory is taken before the first byte is read.
    size = data.tell() + volume(shape) * dtype.itemsize
    if size != member.file_size or size > _MOST_COMPRESSION * (member.compress_size + 1):
        raise ValueError(f"{name!r} does not have the size that it states")
    return ArraySpec(dtype.name, shape)


@contextmanager
def _naming(path: AnyPath) -> Iterator[None]:
    try:
        yield
    except (MemoryError, ImportError):
        raise
    except Exception as error:  # the libraries raise all kinds
        if isinstance(error, OSError):
            is_missing = error.errno in (errno.ENOENT, errno.ENAMETOOLONG)
            if is_missing and (
                error.filename in (None, str(path)) or error.filename == str(followed(path))
            ):
                shown = printable(path)
                raise NotFoundError(f"there is no file {shown}", path=str(path)) from None
            if error.filename is not None or error.errno in NOT_OF_THE_FILE:
                raise
        raise DataLossError(
            f"{printable(path)} cannot be read: {printable(cause(error))}", path=str(path)
        ) from error


def export(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    only: str | Iterable[str] | None = None,
    *,
    step: int | None = None,
    best: str | None = None,
    mode: Mode | None = None,
) -> None:
    """Write the arrays of a checkpoint to a safetensors file, replacing an existing one.

    This needs memory for only one array. Names are those that ``load`` gives; if ``only`` is
    the name of an array, the last part of that.

    Args:
        source: As for ``load``.
        path: The file to write, which ends in ``.safetensors``.
        only: As for ``load``.
        step: As for ``load``.
        best: As for ``load``.
        mode: As for ``load``.

    Raises:
        NotFoundError, DataLossError: As ``load``.
        ValueError: ``only`` names something that is not there, ``path`` has another ending, or the
            format cannot hold the name of an array.
        TypeError: The format cannot hold an array.
        ImportError: ``source`` is a file of PyTorch, which is not installed.
        OSError: The file cannot be written.
    """
    arguments.given(path=path)
    arguments.directory(path=path)
    wanted, choice = Only(only), Choice(step, best, mode)
    target = place_of(path)
    if target.suffix != SAFETENSORS:
        raise ValueError(f"path must end in .safetensors, got the ending {target.suffix!r}")

    def read(weights: Weights) -> None:
        names = _names_in_file(wanted.relative(weights.names, weights))
        with replacing(target) as part:
            _write(part, weights, names)
        _log.info("exported %d arrays of %s to %s", len(names), weights, target)

    read_weights(source, choice, read)


def _names_in_file(found: Mapping[str, str]) -> dict[str, str]:
    names = {short or name.rpartition("/")[2]: name for short, name in found.items()}
    if len(names) < len(found):
        alone, other = found[""], found[found[""].rpartition("/")[2]]
        raise ValueError(
            f"only: {alone!r} and {other!r} would have one name in the file: give {[alone]}"
        )
    return names


def _write(path: Path, weights: Weights, names: Mapping[str, str]) -> None:
    specs = {short: weights.spec(name) for short, name in names.items()}
    header, offsets = tensors.foreign_header(specs)
    short_names: dict[str, list[str]] = {}
    for short, name in names.items():
        short_names.setdefault(weights.same.get(name, name), []).append(short)
    with path.open("wb") as file:
        file.write(header)
        for name, array in weights.stream(short_names.keys()):
            for short in short_names[name]:
                file.seek(offsets[short])
                file.write(tensors.as_bytes(array))  # type: ignore[arg-type] # a buffer
