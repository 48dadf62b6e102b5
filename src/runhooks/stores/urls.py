"""Which places are URLs of object stores, and which are paths."""

from __future__ import annotations

import os
import re

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_FILE = "file"


def is_url(place: str | os.PathLike[str]) -> bool:
    """Return whether ``place`` is a URL, such as ``s3://bucket/run``; ``file://`` is a path."""
    return scheme_of(place) not in ("", _FILE)


def scheme_of(place: str | os.PathLike[str]) -> str:
    """Return the scheme of a URL in lower case, such as ``"s3"``; ``""`` for a path."""
    found = _SCHEME.match(os.fspath(place))
    return "" if found is None else found[1].lower()


def without_file_scheme(place: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return the path that ``file://<path>`` means; anything else as it is."""
    return os.fspath(place)[len("file://") :] if scheme_of(place) == _FILE else place


def normal(url: str) -> str:
    """Return ``url`` without empty parts: ``s3://bucket//run/`` means ``s3://bucket/run``."""
    scheme, separator, rest = url.partition("://")
    return scheme + separator + "/".join(filter(None, rest.split("/")))


def joined(url: str, *keys: str) -> str:
    """Return the URL of what is at ``keys`` below ``url``, without a ``/`` at its end."""
    scheme, separator, rest = url.partition("://")
    parts = [part.strip("/") for part in (rest, *keys)]
    return scheme + separator + "/".join(filter(None, parts))
