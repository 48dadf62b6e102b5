"""``Manifest``: what says that a checkpoint is complete, and what its files must be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import google_crc32c

from runhooks.version import __version__

#: 2 since states hold more than JSON does; 1 is read as well.
FORMAT_VERSION = 2


class FileDigest(NamedTuple):
    """What a file must be: its ``size`` in bytes and the CRC-32C of its content."""

    size: int
    crc32c: int


class ArraySpec(NamedTuple):
    """What an array is: the name of its dtype and its shape."""

    dtype: str
    shape: tuple[int, ...]


class Manifest(NamedTuple):
    """The manifest of one checkpoint.

    ``global_step``: None if the graph has none. ``wall_time``: when it was saved, always after the
    one before it in its series, and ``series_start``: when the first of that was; in seconds since
    the epoch.
    ``files`` by file name; ``arrays`` by name; ``metrics``: what was known of it, by name.
    """

    global_step: int | None
    wall_time: float
    series_start: float
    files: Mapping[str, FileDigest]
    arrays: Mapping[str, ArraySpec]
    metrics: Mapping[str, float] = MappingProxyType({})

    def to_bytes(self) -> bytes:
        """As JSON that carries a checksum of itself."""
        content = {
            "format_version": FORMAT_VERSION,
            "runhooks_version": __version__,
            "global_step": self.global_step,
            "wall_time": self.wall_time,
            "series_start": self.series_start,
            "metrics": dict(self.metrics),
            "files": {name: digest._asdict() for name, digest in self.files.items()},
            "arrays": {name: spec._asdict() for name, spec in self.arrays.items()},
        }
        return json.dumps({**content, "crc32c": _checksum(content)}, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """The manifest in ``data``.

        Raises ValueError if it is damaged, ``NewerFormatError`` if it is of a format that this
        version of runhooks does not know.
        """
        content = json.loads(data)
        if not isinstance(content, dict) or content.pop("crc32c", None) != _checksum(content):
            raise ValueError("its checksum does not fit its content")
        if content["format_version"] > FORMAT_VERSION:
            raise NewerFormatError(
                f"its format is {content['format_version']}, this runhooks reads format "
                f"{FORMAT_VERSION} and older: use runhooks {content['runhooks_version']} or newer"
            )
        return cls(
            content["global_step"],
            content["wall_time"],
            content["series_start"],
            {name: FileDigest(**digest) for name, digest in content["files"].items()},
            {
                name: ArraySpec(spec["dtype"], tuple(spec["shape"]))
                for name, spec in content["arrays"].items()
            },
            content.get("metrics", {}),
        )


class NewerFormatError(Exception):
    """A checkpoint is sound, and of a format of a later version of runhooks."""


def _checksum(content: Mapping[str, Any]) -> int:
    return int(google_crc32c.value(json.dumps(content, sort_keys=True).encode()))
