"""``replacing``: a file that is complete under its name, or absent, on a disk or in a store."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from runhooks.contexts import contextmanager
from runhooks.stores.path import AnyPath, StorePath

_numbers = itertools.count()


@contextmanager
def replacing(path: AnyPath) -> Iterator[Path]:
    """Give the path of a file on this machine that replaces ``path`` when the block succeeds.

    A pipe or a device is written to directly, and so is a file in a folder that takes no other. An
    error of the system that names no file, such as of a full disk, names ``path``.
    """
    try:
        with _part(path) as part:
            yield part
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def _part(path: AnyPath) -> Iterator[Path]:
    if isinstance(path, StorePath):
        with tempfile.TemporaryDirectory() as folder:
            part = Path(folder, "part")
            yield part
            # Not read as a whole: it may be large.
            content = np.memmap(part, np.uint8, mode="r") if part.stat().st_size else b""
            path.write_bytes(content)
        return
    target = path.resolve()
    is_device = str(path).startswith(("/dev/", "/proc/"))
    is_special = is_device or (path.exists() and not path.is_file())
    if is_special or not os.access(target.parent, os.W_OK):
        yield path
        return
    part = target.with_name(f".runhooks-{os.getpid()}-{next(_numbers)}.part")
    try:
        yield part
        if target.exists():
            shutil.copymode(target, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
