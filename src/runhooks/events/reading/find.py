"""Finding event files: the runs under a path, and the files of each in order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from runhooks.events.reading.results import Damage

_IN_THE_NAME = "tfevents"
_NO_EVENTS = ".profile-empty"  # left by TensorFlow's profiler to mark a run


class FoundRun(NamedTuple):
    """A run: its directory, or the one event file, and its event files in order."""

    path: Path
    files: list[Path]


class FoundRuns(NamedTuple):
    """Runs by name, sorted, and directories that cannot be read."""

    runs: dict[str, FoundRun]
    unreadable: list[Damage]


def find_runs(path: Path) -> FoundRuns:
    """Return the runs in ``path``, a file or a directory.

    Symbolic links are followed, but no directory is entered twice.

    Raises:
        FileNotFoundError: If ``path`` is neither.
    """
    if path.is_file():
        return FoundRuns({".": FoundRun(path, [path])}, [])
    if not path.is_dir():
        raise FileNotFoundError(f"path must be an event file or a directory, got {str(path)!r}")
    runs = {}
    errors: list[OSError] = []
    entered = set()
    for folder, folders, names in os.walk(path, onerror=errors.append, followlinks=True):
        try:
            status = Path(folder).stat()
        except FileNotFoundError:  # just removed
            continue
        if (status.st_dev, status.st_ino) in entered:
            folders.clear()
            continue
        entered.add((status.st_dev, status.st_ino))
        folders.sort()
        files = [Path(folder, name) for name in sorted(names) if _is_event_file(name)]
        if files:
            runs[Path(folder).relative_to(path).as_posix()] = FoundRun(Path(folder), files)
    unreadable = [
        Damage(Path(error.filename), 0, 0, f"it cannot be read: {error.strerror}")
        for error in errors
        if not isinstance(error, FileNotFoundError)
    ]
    return FoundRuns(dict(sorted(runs.items())), unreadable)


def find_files(path: Path) -> list[Path]:
    """Return the event files of the run at ``path``, in the order in which they are read."""
    if not path.is_dir():
        return [path]
    return sorted(
        file for file in path.iterdir() if _is_event_file(file.name) and not file.is_dir()
    )


def _is_event_file(name: str) -> bool:
    return _IN_THE_NAME in name and not name.endswith(_NO_EVENTS)
