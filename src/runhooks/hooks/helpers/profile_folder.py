"""``ProfileFolder``: where profilers, which know nothing but local files, leave theirs."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
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
            weakref.finalize(self, shutil.rmtree, self._temporary, ignore_errors=True)
        return self._temporary

    def publish(self, written: Path) -> str:
        """Return where ``written``, a file or folder in the one that was made, is in the end."""
        temporary = self._temporary
        if temporary is None:
            return str(written)
        for file in [path for path in temporary.rglob("*") if path.is_file()]:
            name = file.relative_to(temporary).as_posix()
            (self._place / name).write_bytes(file.read_bytes())
            file.unlink()
        return str(self._place / written.relative_to(temporary).as_posix())
