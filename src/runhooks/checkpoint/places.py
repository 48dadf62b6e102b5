"""Where checkpoints are: paths on a disk, and URLs of stores."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from runhooks.stores import RetryPolicy, default_policy, is_url, without_file_scheme
from runhooks.stores.path import AnyPath, StorePath


def place_of(place: str | os.PathLike[str]) -> AnyPath:
    """Return the path or the URL ``place`` as an object; ``file://`` is a path, ``~`` is expanded.

    Raises:
        ImportError: A library for the URL is not installed.
        ValueError: A URL has a scheme that nobody knows.
    """
    plain = without_file_scheme(place)
    if is_url(plain):
        return _stored(os.fspath(plain), default_policy()).unlisted()
    return Path(os.path.expanduser(plain))  # noqa: PTH111 - a "~" that names nobody is a name


@lru_cache(maxsize=64)  # a saver is told a place again and again; connections are kept
def _stored(url: str, policy: RetryPolicy) -> StorePath:
    return StorePath(url)
