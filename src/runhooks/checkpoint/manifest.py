"""``Manifest``: the file that makes a checkpoint complete, and says what its files must be."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import google_crc32c

from runhooks.version import __version__

#: 2 since states hold more than JSON does; 1 is read as well.
FORMAT_VERSION = 2

MANIFEST = "manifest.json"
VARIABLES = "variables.safetensors"
STATES = "states.json"
STATE_ARRAYS = "states.safetensors"

_REQUIRED = frozenset({VARIABLES, STATES})
_DATA_FILES = frozenset({*_REQUIRED, STATE_ARRAYS})
_DTYPE = re.compile(r"[a-z0-9_]+(\[\w+\])?", re.ASCII)
_YEAR_10000 = 253_402_300_800
_INT64 = 1 << 63
_MOST_DIMENSIONS = 64


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
    """

    global_step: int | None
    wall_time: float
    series_start: float
    files: Mapping[str, FileDigest]
    arrays: Mapping[str, ArraySpec]
    metrics: Mapping[str, float] = MappingProxyType({})
    modes: Mapping[str, str] = MappingProxyType({})

    def to_bytes(self) -> bytes:
        """Return the manifest as JSON that contains its own checksum."""
        content = {
            "format_version": FORMAT_VERSION,
            "runhooks_version": __version__,
            "global_step": self.global_step,
            "wall_time": self.wall_time,
            "series_start": self.series_start,
            "metrics": dict(self.metrics),
            "modes": dict(self.modes),
            "files": {name: digest._asdict() for name, digest in self.files.items()},
            "arrays": {name: spec._asdict() for name, spec in self.arrays.items()},
        }
        return json.dumps({**content, "crc32c": _checksum(content)}, indent=1).encode()

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
        version = _field(content, "format_version", lambda it: _is_whole(it, 1))
        if version > FORMAT_VERSION:
            newer = content.get("runhooks_version")
            raise NewerFormatError(
                f"its format is {version}, this runhooks reads format {FORMAT_VERSION} and older: "
                f"use runhooks {newer!r} or newer"
            )
        files = {
            name: FileDigest(_field(it, "size", _is_whole), _field(it, "crc32c", _is_whole))
            for name, it in _mapping(content, "files").items()
        }
        if not _REQUIRED <= files.keys() <= _DATA_FILES:
            raise ValueError(f"its files are {sorted(files)}")
        metrics = _mapping(content, "metrics") if "metrics" in content else {}
        modes = _mapping(content, "modes") if "modes" in content else {}
        return cls(
            _field(content, "global_step", lambda it: it is None or _is_whole(it, -_INT64)),
            float(_field(content, "wall_time", _is_time)),
            float(_field(content, "series_start", _is_time)),
            files,
            {name: _array(it) for name, it in _mapping(content, "arrays").items()},
            {name: float(_field(metrics, name, _is_number)) for name in metrics},
            {name: _field(modes, name, lambda it: it in ("max", "min")) for name in modes},
        )


class NewerFormatError(Exception):
    """A checkpoint is sound, but has the format of a later version of runhooks."""


def is_shape(value: Any) -> bool:
    """Return whether ``value``, from JSON, is the shape of an array."""
    return isinstance(value, list) and len(value) <= _MOST_DIMENSIONS and all(map(_is_whole, value))


def _array(content: Any) -> ArraySpec:
    return ArraySpec(
        _field(content, "dtype", lambda it: isinstance(it, str) and _DTYPE.fullmatch(it)),
        tuple(_field(content, "shape", is_shape)),
    )


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


def _is_whole(value: Any, least: int = 0) -> bool:
    return type(value) is int and least <= value < _INT64


def _is_number(value: Any) -> bool:
    return type(value) is float or _is_whole(value, -_INT64)


def _is_time(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value) and 0 <= value < _YEAR_10000


def _checksum(content: Mapping[str, Any]) -> int:
    return int(google_crc32c.value(json.dumps(content, sort_keys=True).encode()))
