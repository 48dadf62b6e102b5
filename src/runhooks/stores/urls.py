"""Which places are URLs of object stores, and which are paths."""

from __future__ import annotations

import os
import re

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_FILE = "file"
# Below these a place begins with the name of a bucket.
_BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"})
# As pathlib.Path makes them of URLs: a folder of this name would be on this machine.
_LOST_SLASH = re.compile(rf"({'|'.join([*sorted(_BUCKETS), 'memory', _FILE])}):/(?!/)", re.I)


def is_url(place: str | os.PathLike[str]) -> bool:
    """Return whether ``place`` is a URL, such as ``s3://bucket/run``; ``file://`` is a path.

    Raises:
        ValueError: It was one, such as ``s3:/bucket/run``, before it lost a slash.
    """
    text = os.fspath(place)
    if (lost := _LOST_SLASH.match(text)) is not None:
        url = f"{lost[1]}://{text[lost.end() :]}"
        raise ValueError(
            f"{text!r} is neither a URL nor a path: write {url!r}, as a string, for pathlib.Path "
            "takes a slash away"
        )
    return scheme_of(text) not in ("", _FILE)


def scheme_of(place: str | os.PathLike[str]) -> str:
    """Return the scheme of a URL in lower case, such as ``"s3"``; ``""`` for a path."""
    found = _SCHEME.match(os.fspath(place))
    return "" if found is None else found[1].lower()


def without_file_scheme(place: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return the path in ``file://<path>``; return anything else unchanged.

    Raises:
        ValueError: The path is not an absolute one.
    """
    if scheme_of(place) != _FILE:
        return place
    path = os.fspath(place)[len("file://") :]
    if not path.startswith("/"):
        raise ValueError(f"{place!r} must have an absolute path behind file://, as file:///tmp/run")
    return path


def normal(url: str) -> str:
    """Return ``url`` in its normal spelling: ``S3://bucket//run/`` becomes ``s3://bucket/run``.

    Raises:
        ValueError: It names no bucket, or has ``..`` in it.
    """
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if scheme in _BUCKETS and rest[:1] in ("", "/"):
        raise ValueError(f"{url!r} names no bucket: write {scheme}://bucket/run")
    parts = [part for part in rest.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError(f"{url!r} must not have '..' in it: stores have no folder above another")
    return scheme + separator + "/".join(parts)


def joined(url: str, *keys: str) -> str:
    """Return the URL of what is at ``keys`` below ``url``, without a ``/`` at its end."""
    scheme, separator, rest = url.partition("://")
    parts = [part.strip("/") for part in (rest, *keys)]
    return scheme + separator + "/".join(filter(None, parts))
