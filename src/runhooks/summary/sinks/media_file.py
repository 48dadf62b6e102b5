"""Pictures and sounds as files, for those who take no other."""

from __future__ import annotations

import itertools
from pathlib import Path

_SUFFIXES = {
    b"\x89PNG": ".png",
    b"GIF8": ".gif",
    b"\xff\xd8\xff": ".jpg",
    b"RIFF": ".wav",
}


class MediaFiles:
    """Makes files in ``directory``, which is its owner's to remove."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._counter = itertools.count()

    def write(self, encoded: bytes) -> str:
        """Return the path of a new file that holds ``encoded``, with the suffix of its format."""
        suffixes = (s for magic, s in _SUFFIXES.items() if encoded.startswith(magic))
        path = self._directory / f"{next(self._counter)}{next(suffixes, '')}"
        path.write_bytes(encoded)
        return str(path)
