"""Changes what a file of a checkpoint says, and makes its checksums right again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c

PIECE_BYTES = 4 << 20


def forge(path: Path, change: Callable[[Any], object]) -> None:
    """Let ``change`` alter what a file of a checkpoint has; a folder stands for the file in it.

    It is given a dict: ``about``, what the file says of itself; ``states`` and
    ``dtypes``, JSON as text; ``arrays``, the entries of its header; and ``data``, what follows the
    header.
    """
    path = path / "checkpoint.safetensors" if path.is_dir() else path
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    arrays = json.loads(content[8:end])
    strings = arrays.pop("__metadata__")
    parts = {"about": json.loads(strings["runhooks"]), "arrays": arrays, "data": content[end:]}
    parts |= {name: strings[name] for name in ("states", "dtypes") if name in strings}
    change(parts)
    path.write_bytes(sealed(**parts))


def sealed(about: Any, arrays: Any, data: bytes, **more: Any) -> bytes:
    """Return a file with right checksums."""
    pieces = (data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES))
    sums = "".join(f"{google_crc32c.value(it):08x}" for it in pieces)
    strings = {"crc32c": "0" * 8, "pieces": sums, "runhooks": json.dumps(about), **more}
    listed = arrays if isinstance(arrays, dict) else {"": arrays}
    header = json.dumps({"__metadata__": strings, **listed}, separators=(",", ":")).encode()
    header = len(header).to_bytes(8, "little") + header
    at = header.index(b"0" * 8)
    crc = google_crc32c.extend(google_crc32c.value(header[:at]), header[at + 8 :])
    return header[:at] + b"%08x" % crc + header[at + 8 :] + data


def digest(path: Path) -> list[int]:
    """Return the size of a file and the checksum of its header, as a manifest lists them."""
    content = path.read_bytes()
    at = content.index(b'"crc32c":"') + 10
    return [len(content), int(content[at : at + 8], 16)]
