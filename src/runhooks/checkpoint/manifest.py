"""``Manifest``, and checks of JSON that anybody may have made."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from runhooks.version import __version__

_FORMAT = 1
_SHARD = re.compile(r"attempt-[\w.-]+\.safetensors")  # letters as in names of hosts
_DTYPE = re.compile(r"[a-z0-9_]+(\[\w+\])?", re.ASCII)
_YEAR_10000 = 253_402_300_800
_INT64 = 1 << 63
_MOST_DIMENSIONS = 64
_MOST_ITEMS = 1 << 58  # NumPy counts bytes in 63 bits; no item has more than 32


class FileDigest(NamedTuple):
    """The size of a file in bytes, and the CRC-32C of its header."""

    size: int
    crc32c: int


class ArraySpec(NamedTuple):
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}{[*self.shape]}"


class Manifest(NamedTuple):
    """What a checkpoint says of itself.

    Attributes:
        wall_time: When it was saved, in seconds since the epoch; later than the one before it.
        series_start: When the first of its series was saved.
        modes: ``"max"`` or ``"min"`` by metric, where it is known.
        files: What each rank has written, in their order. Empty: it is all beside this.
        arrays: Those in ``files``, each with the number of its blocks.
        differing: Those that some ranks had with other values than the chief.
    """

    global_step: int | None
    wall_time: float
    series_start: float
    metrics: Mapping[str, float] = MappingProxyType({})
    modes: Mapping[str, str] = MappingProxyType({})
    chief: int = 0
    files: Mapping[str, FileDigest] = MappingProxyType({})
    arrays: Mapping[str, tuple[ArraySpec, int]] = MappingProxyType({})
    differing: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        return len(self.files) or 1

    def to_json(self) -> dict[str, Any]:
        about = {"format": _FORMAT, "runhooks_version": __version__, **self._asdict()}
        about |= {name: dict(about[name]) for name in ("metrics", "modes", "files")}
        about["arrays"] = {name: (*it, count) for name, (it, count) in self.arrays.items()}
        if not self.files:
            for name in ("chief", "files", "arrays", "differing"):
                del about[name]
        return about

    @classmethod
    def from_json(cls, about: Any) -> Manifest:
        """Raises ValueError if it makes no sense, NewerFormatError."""
        version = field(about, "format", lambda it: is_whole(it, 1))
        if version > _FORMAT:
            newer = about.get("runhooks_version")
            raise NewerFormatError(
                f"its format is {version}, this runhooks reads format {_FORMAT}: "
                f"use runhooks {newer!r} or newer"
            )
        metrics, modes = (field(about, name, _is_mapping) for name in ("metrics", "modes"))
        read = cls(
            field(about, "global_step", lambda it: it is None or is_whole(it, -_INT64)),
            float(field(about, "wall_time", _is_time)),
            float(field(about, "series_start", _is_time)),
            {name: float(field(metrics, name, _is_number)) for name in metrics},
            {name: field(modes, name, lambda it: it in ("max", "min")) for name in modes},
        )
        if "files" not in about:
            return read
        files = field(about, "files", lambda it: _is_mapping(it) and it and all(map(is_shard, it)))
        arrays = field(about, "arrays", _is_mapping)
        return read._replace(
            chief=field(about, "chief", lambda it: is_whole(it) and it < len(files)),
            files={name: FileDigest(*field(files, name, _is_digest)) for name in files},
            arrays={name: _array(*field(arrays, name, _is_array)) for name in arrays},
            differing=tuple(field(about, "differing", _are_names)),
        )


class NewerFormatError(Exception):
    """The format is of a later version of runhooks."""


def field(content: Any, name: str, is_valid: Callable[[Any], object]) -> Any:
    """Raises ValueError if it is missing or not valid."""
    if not isinstance(content, dict) or name not in content:
        raise ValueError(f"{name!r} is missing")
    if not is_valid(content[name]):
        raise ValueError(f"{name!r} is {reprlib.repr(content[name])}")
    return content[name]


def is_whole(value: Any, least: int = 0) -> bool:
    return type(value) is int and least <= value < _INT64


def _is_place(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= _MOST_DIMENSIONS and all(map(is_whole, value))


def is_shape(value: Any) -> bool:
    return _is_place(value) and math.prod(filter(None, value)) <= _MOST_ITEMS


def is_dtype(value: Any) -> bool:
    return isinstance(value, str) and _DTYPE.fullmatch(value) is not None


def spec_from(dtype: Any, shape: Any) -> ArraySpec:
    """Raises ValueError."""
    if not is_dtype(dtype) or not is_shape(shape):
        raise ValueError(f"an array is {str(dtype)[:50]!r} of the shape {str(shape)[:50]}")
    return ArraySpec(dtype, tuple(shape))


def _array(dtype: Any, shape: Any, count: int) -> tuple[ArraySpec, int]:
    return spec_from(dtype, shape), count


def _is_digest(value: Any) -> bool:
    return _is_place(value) and len(value) == 2


def _is_array(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and is_whole(value[2])


def is_shard(value: str) -> bool:
    return _SHARD.fullmatch(value) is not None


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(it, str) for it in value)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict)


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return type(value) is float or is_whole(value, -_INT64)


def _is_time(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value) and 0 <= value < _YEAR_10000
