"""Where event files are: of which runs, in which order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_IN_THE_NAME = "tfevents"
_NO_EVENTS = ".profile-empty"  # what TensorFlow's profiler leaves to be found as a run


class FoundRun(NamedTuple):
    """A run: ``path`` is its directory, or the one event file; ``files`` are in order."""

    path: Path
    files: list[Path]


def find_runs(path: Path) -> dict[str, FoundRun]:
    """Return the runs at ``path`` by their names, sorted: a file, a directory, or those below it.

    Links are followed, though no directory is entered twice. Raises FileNotFoundError.
    """
    if path.is_file():
        return {".": FoundRun(path, [path])}
    if not path.is_dir():
        raise FileNotFoundError(f"path must be an event file or a directory, got {str(path)!r}")
    runs = {}
    entered = set()
    for folder, folders, names in os.walk(path, followlinks=True):
        status = Path(folder).stat()
        if (status.st_dev, status.st_ino) in entered:
            folders.clear()
            continue
        entered.add((status.st_dev, status.st_ino))
        folders.sort()
        files = [Path(folder, name) for name in sorted(names) if _is_event_file(name)]
        if files:
            runs[Path(folder).relative_to(path).as_posix()] = FoundRun(Path(folder), files)
    return dict(sorted(runs.items()))


def find_files(path: Path) -> list[Path]:
    """Return the event files of the run at ``path``, in the order in which they are read."""
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if _is_event_file(file.name))


def _is_event_file(name: str) -> bool:
    return _IN_THE_NAME in name and not name.endswith(_NO_EVENTS)
