"""``ProfileFolder``: where profilers, which know nothing but local files, leave theirs."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from runhooks.events.place import place
from runhooks.stores.path import StorePath, path_of


class ProfileFolder:
    """The folder ``output_dir``; one in a store has its files written on this machine first."""

    def __init__(self, output_dir: str | os.PathLike[str]) -> None:
        self._place = path_of(place(output_dir=output_dir))
        self._temporary: Path | None = None

    def make(self) -> Path:
        """Make the folder that a profiler writes to, and return it."""
        if not isinstance(self._place, StorePath):
            self._place.mkdir(parents=True, exist_ok=True)
            return self._place
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="runhooks-profile-"))
        return self._temporary

    def publish(self, written: Path) -> str:
        """Return where ``written``, a file or folder in the one that was made, is in the end."""
        temporary, self._temporary = self._temporary, None
        if temporary is None or not isinstance(self._place, StorePath):
            return str(written)
        try:
            for file in temporary.rglob("*"):
                if file.is_file():
                    name = file.relative_to(temporary).as_posix()
                    (self._place / name).write_bytes(file.read_bytes())
            return str(self._place / written.relative_to(temporary).as_posix())
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
