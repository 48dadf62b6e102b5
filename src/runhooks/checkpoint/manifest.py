"""``Manifest``: the file that makes a checkpoint complete; ``Draft``: one that is being written."""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from runhooks.version import __version__

#: 2 since states hold more than JSON does; 1 is read as well.
FORMAT_VERSION = 2
#: Of a checkpoint that several ranks have written.
SHARDED_VERSION = 3
#: Of one whose files are in a folder of their own, as in a store.
ATTEMPT_VERSION = 4

MANIFEST = "manifest.json"
VARIABLES = "variables.safetensors"
STATES = "states.json"
STATE_ARRAYS = "states.safetensors"

_ATTEMPT = re.compile(r"attempt-[0-9a-f]{16}/")
_FILE = re.compile(r"(variables|states)(-\d{1,6})?\.safetensors|(states|shards)(-\d{1,6})?\.json")
_DTYPE = re.compile(r"[a-z0-9_]+(\[\w+\])?", re.ASCII)
_YEAR_10000 = 253_402_300_800
_INT64 = 1 << 63
_MOST_DIMENSIONS = 64
#: NumPy counts bytes in 63 bits, also of an array without items; no item has more than 32.
_MOST_ITEMS = 1 << 58
_MOST_RANKS = 1_000_000


class RankFiles(NamedTuple):
    """The names of the files of one rank; ``shards`` lists what is in ``variables``."""

    variables: str
    states: str
    state_arrays: str
    shards: str


def files_of(rank: int, folder: str = "") -> RankFiles:
    """Return the names of the files that ``rank`` has written, with what precedes them."""
    names = (VARIABLES, STATES, STATE_ARRAYS, "shards.json")
    return RankFiles(*(folder + f"-{rank}.".join(name.split(".")) for name in names))


def is_data_file(name: str) -> bool:
    """Return whether a file of that name may belong to a checkpoint, beside its manifest.

    True for the folder of an attempt, too.
    """
    return _FILE.fullmatch(name) is not None or _ATTEMPT.fullmatch(f"{name}/") is not None


class FileDigest(NamedTuple):
    """The ``size`` in bytes that a file must have, and the CRC-32C of its content."""

    size: int
    crc32c: int


class ArraySpec(NamedTuple):
    """The name of the dtype of an array, and its shape."""

    dtype: str
    shape: tuple[int, ...]


class Manifest(NamedTuple):
    """The manifest of one checkpoint.

    ``global_step``: None if the graph has none. ``wall_time``: when it was saved, always later than
    the one before it in its series. ``series_start``: when the first of the series was saved. Both
    in seconds since the epoch. ``files``: by file name. ``arrays`` and ``metrics``: by name.
    ``modes``: whether the ``"max"`` or the ``"min"`` is best, by metric, where that is known.
    ``ranks``: how many ranks have written it, each files of its own; None: a process alone.
    ``chief``: which of these was the chief.
    """

    global_step: int | None
    wall_time: float
    series_start: float
    files: Mapping[str, FileDigest]
    arrays: Mapping[str, ArraySpec]
    metrics: Mapping[str, float] = MappingProxyType({})
    modes: Mapping[str, str] = MappingProxyType({})
    ranks: int | None = None
    chief: int = 0

    def files_of(self, rank: int) -> RankFiles:
        """Return the names of the files that ``rank`` has written."""
        return files_of(rank, self.folder)

    @property
    def folder(self) -> str:
        """What precedes the names of all files; ``""`` where they are beside the manifest."""
        first = next(iter(self.files), "")
        return first[: first.rfind("/") + 1]

    def to_bytes(self) -> bytes:
        """Return the manifest as JSON that contains its own checksum."""
        version = FORMAT_VERSION if self.ranks is None else SHARDED_VERSION
        content = {
            "format_version": ATTEMPT_VERSION if self.folder else version,
            "runhooks_version": __version__,
            **({} if self.ranks is None else {"ranks": self.ranks, "chief": self.chief}),
            "global_step": self.global_step,
            "wall_time": self.wall_time,
            "series_start": self.series_start,
            "metrics": dict(self.metrics),
            "modes": dict(self.modes),
            "files": {name: digest._asdict() for name, digest in self.files.items()},
            "arrays": {name: spec._asdict() for name, spec in self.arrays.items()},
        }
        # An indent would make Python write it item by item.
        fields = {**content, "crc32c": _checksum(content)}.items()
        return ("{\n" + ",\n".join(f'"{k}": {json.dumps(it)}' for k, it in fields) + "\n}").encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Return the manifest in ``data``.

        Raises:
            ValueError: It is damaged, or makes no sense.
            NewerFormatError: This version of runhooks does not know its format.
        """
        try:
            content = json.loads(data)
            if not isinstance(content, dict) or content.pop("crc32c", None) != _checksum(content):
                raise ValueError("its checksum does not match its content")
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        version = _field(content, "format_version", lambda it: is_whole(it, 1))
        if version > ATTEMPT_VERSION:
            newer = content.get("runhooks_version")
            raise NewerFormatError(
                f"its format is {version}, this runhooks reads format {ATTEMPT_VERSION} and older: "
                f"use runhooks {newer!r} or newer"
            )
        files = {
            name: FileDigest(_field(it, "size", is_whole), _field(it, "crc32c", is_whole))
            for name, it in _mapping(content, "files").items()
        }
        ranks, chief = None, 0
        if version >= SHARDED_VERSION:
            ranks = _field(content, "ranks", lambda it: is_whole(it, 1) and it <= _MOST_RANKS)
            chief = _field(content, "chief", lambda it: is_whole(it) and it < ranks)
        _check_files(files, ranks)
        metrics = _mapping(content, "metrics") if "metrics" in content else {}
        modes = _mapping(content, "modes") if "modes" in content else {}
        return cls(
            _field(content, "global_step", lambda it: it is None or is_whole(it, -_INT64)),
            float(_field(content, "wall_time", _is_time)),
            float(_field(content, "series_start", _is_time)),
            files,
            {name: spec_from(it) for name, it in _mapping(content, "arrays").items()},
            {name: float(_field(metrics, name, _is_number)) for name in metrics},
            {name: _field(modes, name, lambda it: it in ("max", "min")) for name in modes},
            ranks,
            chief,
        )


class NewerFormatError(Exception):
    """A checkpoint is sound, but has the format of a later version of runhooks."""


def is_whole(value: Any, least: int = 0) -> bool:
    """Return whether ``value``, from JSON, is a whole number of 63 bits, and at least ``least``."""
    return type(value) is int and least <= value < _INT64


def is_place(value: Any) -> bool:
    """Return whether ``value``, from JSON, is the index of an item of an array."""
    return isinstance(value, list) and len(value) <= _MOST_DIMENSIONS and all(map(is_whole, value))


def is_shape(value: Any) -> bool:
    """Return whether ``value``, from JSON, is the shape of an array, of which there may be one."""
    return is_place(value) and math.prod(filter(None, value)) <= _MOST_ITEMS


def spec_from(content: Any) -> ArraySpec:
    """Return the dtype and shape in ``content``, from JSON; ValueError if it has none."""
    return ArraySpec(
        _field(content, "dtype", lambda it: isinstance(it, str) and _DTYPE.fullmatch(it)),
        tuple(_field(content, "shape", is_shape)),
    )


def _check_files(files: Collection[str], ranks: int | None) -> None:
    attempt = _ATTEMPT.match(next(iter(files), ""))
    folder = attempt[0] if attempt else ""
    if ranks is None:
        required, optional = {VARIABLES, STATES}, {STATE_ARRAYS}
    else:
        each = [files_of(rank, folder) for rank in range(min(ranks, len(files)))]
        required = {name for it in each for name in (it.variables, it.states, it.shards)}
        optional = {it.state_arrays for it in each}
        if ranks > len(files):
            required.add(files_of(ranks - 1, folder).states)
    if not required <= set(files) <= required | optional:
        raise ValueError(f"its files are {sorted(files)}")


def _mapping(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = _field(content, name, lambda it: isinstance(it, dict))
    return found


def _field(content: Any, name: str, is_valid: Callable[[Any], object]) -> Any:
    if not isinstance(content, dict) or name not in content:
        raise ValueError(f"{name!r} is missing")
    if not is_valid(content[name]):
        shown = repr(content[name])
        raise ValueError(f"{name!r} is {shown if len(shown) < 50 else shown[:50] + '...'}")
    return content[name]


def _is_number(value: Any) -> bool:
    return type(value) is float or is_whole(value, -_INT64)


def _is_time(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value) and 0 <= value < _YEAR_10000


def _checksum(content: Mapping[str, Any]) -> int:
    return int(google_crc32c.value(json.dumps(content, sort_keys=True).encode()))


Pieces = Iterable[bytes | NDArray[np.uint8]]


class Draft(ABC):
    """A checkpoint that is being written, on a disk or in a store.

    Attributes:
        name: What other ranks join it by.
        folder: What precedes the names of its files in the manifest.
    """

    name: str
    folder: str = ""

    @abstractmethod
    def write(self, name: str, pieces: Pieces) -> FileDigest:
        """Write a file; return when its content is there to stay. Raises OSError."""

    @abstractmethod
    def read(self, name: str, expected: FileDigest) -> bytes:
        """Return the content of a file that any rank has written. Raises DataLossError."""

    @abstractmethod
    def sync(self) -> None:
        """Return when the names of the files are there to stay, too."""

    @abstractmethod
    def commit(self, manifest: Manifest, replaces: bool) -> None:
        """Complete the checkpoint.

        Args:
            manifest: What it has.
            replaces: Whether it takes the place of one that is known to be there.

        Raises:
            FileExistsError: In a store, another process has saved it meanwhile.
            OSError: It cannot be written.
        """

    @abstractmethod
    def abandon(self) -> None:
        """Remove what was written, as far as that can be done."""
