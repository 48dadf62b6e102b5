"""TensorFlow's own file systems: ``ram://``, ``gs://``, and what other packages add to them.

Its savers write there, whatever runhooks itself can write to.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from runhooks.contexts import contextmanager
from runhooks.stores import masked

_gfile = tf.io.gfile


def is_url(path: str | os.PathLike[str]) -> bool:
    """Return whether ``path`` is a URL, such as ``gs://bucket/run``."""
    return "://" in os.fspath(path)


def check_scheme(path: str | os.PathLike[str]) -> None:
    """Raise ValueError if checkpoints cannot be at ``path``: TensorFlow does not know its scheme.

    The savers of a ``tf.Graph`` are TensorFlow's, and so are the file systems they write to.
    """
    scheme, separator, _ = os.fspath(path).partition("://")
    known = _gfile.get_registered_schemes()
    if separator and scheme not in known:
        names = ", ".join(f"{name}://" for name in sorted(filter(None, known)))
        raise ValueError(
            f"checkpoints of a tf.Graph cannot be at {masked(os.fspath(path))!r}: TensorFlow "
            f"writes them, and knows {names} and local paths; give one of these, or import a "
            f"package that adds {scheme}://, such as tensorflow_io"
        )


def upload(folder: Path, url: str, last: str) -> None:
    """Copy the files of ``folder`` to ``url``, the one named ``last`` after all others.

    What was there is removed first. Raises ``tf.errors.OpError`` if it cannot be written.
    """
    remove(url)
    _gfile.makedirs(url)
    for path in sorted(folder.iterdir(), key=lambda path: (path.name == last, path.name)):
        _gfile.copy(str(path), f"{url}/{path.name}")


@contextmanager
def downloaded(url: str) -> Iterator[Path]:
    """Copy the files at ``url`` into a temporary folder, which is empty if there are none."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in names_in(url):
            _gfile.copy(f"{url}/{file}", str(folder / file))
        yield folder


def names_in(url: str) -> list[str]:
    """Return the names of the files and folders in ``url``; none if there is no such folder."""
    if not _gfile.isdir(url):
        return []
    return [name.rstrip("/") for name in _gfile.listdir(url)]


def remove(url: str) -> None:
    """Remove the folder ``url``, if there is one."""
    if _gfile.isdir(url):
        _gfile.rmtree(url)
