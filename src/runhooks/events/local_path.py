"""``local_path``: where to write to, on a disk of this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from runhooks import arguments

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def local_path(**named: Any) -> str:
    """Return the one path of ``named`` as a str, ``~`` at its beginning being the user's home.

    Raises TypeError, with its name, if it is no path, ValueError if it is empty or a URL.
    """
    ((name, path),) = named.items()
    arguments.given(**named)
    arguments.directory(**named)
    text = os.fsdecode(path)
    if _SCHEME.match(text):
        raise ValueError(
            f"{name} must be a path on this machine, got {text!r}: mount it, or copy files there"
        )
    return str(Path(text).expanduser()) if text.startswith("~") else text
