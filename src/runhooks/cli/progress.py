"""``progress``: that a long read is under way, for those who wait at a terminal."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from runhooks.cli import formats

_PATIENCE_SECS = 0.5


@contextmanager
def progress(path: Path, of: str = ".tfevents.") -> Iterator[None]:
    """On a terminal, say on stderr that ``path`` is being read, if that takes a while.

    ``of``: what the names of the files have in them that are read.
    """
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_show, args=(path, of, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _show(path: Path, of: str, done: threading.Event) -> None:
    if done.wait(_PATIENCE_SECS):
        return
    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task(f"reading {formats.printable(path)}", total=None)
        total = _size(path, of, done.is_set)
        shown.update(task, description=f"reading {formats.printable(path)}, {formats.size(total)}")
        done.wait()


def _size(path: Path, of: str, stop: Callable[[], bool]) -> int:
    total = path.stat().st_size if path.is_file() else 0
    for folder, _, names in os.walk(path):
        for name in names:
            if stop():
                return total
            if of in name:
                with suppress(FileNotFoundError):
                    total += (Path(folder) / name).stat().st_size
    return total
