"""Finding the runs under a path, and their event files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from runhooks.events.reading.results import Damage
from runhooks.stores.path import AnyPath, StorePath

_DIGITS = re.compile(r"(?<![0-9])(?<![0-9]\.)([0-9]+)")  # not those behind a decimal point


class FoundRun(NamedTuple):
    """A run: its directory, or the one event file, and its event files in order."""

    path: AnyPath
    files: list[AnyPath]

    @property
    def is_file(self) -> bool:
        return self.files == [self.path]


def find_runs(path: AnyPath) -> tuple[dict[str, FoundRun], list[Damage]]:
    """Return the runs in ``path`` by name, in natural order, and unreadable directories.

    No directory is entered twice.

    Raises FileNotFoundError if there is nothing, OSError if a store cannot be listed.
    """
    if isinstance(path, StorePath):
        return _listed(path), []
    if path.is_file():
        return {".": FoundRun(path, [path])}, []
    if not path.is_dir():
        raise _not_there(path)
    runs: dict[str, FoundRun] = {}
    errors: list[OSError] = []
    entered, root = set(), path.resolve()
    for folder, folders, names in os.walk(path, onerror=errors.append, followlinks=True):
        try:
            status = Path(folder).stat()
        except FileNotFoundError:
            continue
        if (status.st_dev, status.st_ino) in entered:
            folders.clear()
            continue
        entered.add((status.st_dev, status.st_ino))
        folders[:] = sorted(it for it in folders if not _leads_back(Path(folder, it), root))
        files = [Path(folder, name) for name in sorted(names) if _is_event_file(name)]
        if files:
            runs[Path(folder).relative_to(path).as_posix()] = FoundRun(Path(folder), [*files])
    unreadable = [
        Damage(Path(error.filename), 0, 0, f"it cannot be read: {error.strerror}")
        for error in errors
        if not isinstance(error, FileNotFoundError)
    ]
    return {name: runs[name] for name in sorted(runs, key=_natural)}, unreadable


def _leads_back(folder: Path, root: Path) -> bool:
    return folder.is_symlink() and folder.resolve().is_relative_to(root)


def _natural(name: str) -> tuple[list[str | int], str]:
    """Return a key that sorts ``r2`` before ``r10``, ``rate-0.02`` before ``rate-0.1``."""
    parts = _DIGITS.split(name)
    return [int(it) if index % 2 else it for index, it in enumerate(parts)], name


def find_files(path: AnyPath) -> list[AnyPath]:
    if isinstance(path, StorePath):
        found = path.files()
        if found != [path]:
            found = [file for file in found if file.parent == path and _is_event_file(file.name)]
        path.expect(found)
        return [*found]
    if not path.is_dir():
        return [path]
    return sorted(
        file for file in path.iterdir() if _is_event_file(file.name) and not file.is_dir()
    )


def _listed(path: StorePath) -> dict[str, FoundRun]:
    found = path.files()
    if not found:
        raise _not_there(path)
    if found == [path]:
        path.expect(found)
        return {".": FoundRun(path, [path])}
    files: dict[StorePath, list[StorePath]] = {}
    for file in found:
        if _is_event_file(file.name):
            files.setdefault(file.parent, []).append(file)
    runs = {folder.relative_to(path).as_posix(): folder for folder in files}
    names = sorted(runs, key=_natural)
    path.expect(file for name in names for file in files[runs[name]])
    return {name: FoundRun(runs[name], [*files[runs[name]]]) for name in names}


def _not_there(path: AnyPath) -> FileNotFoundError:
    return FileNotFoundError(f"path must be an event file or a directory, got {str(path)!r}")


def _is_event_file(name: str) -> bool:
    # ``.profile-empty`` is left by TensorFlow's profiler to mark a run.
    return "tfevents" in name and not name.endswith(".profile-empty")
