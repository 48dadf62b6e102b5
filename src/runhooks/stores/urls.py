"""URLs of object stores."""

from __future__ import annotations

import os
import re

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_FILE = "file"
# The clouds of schemes with buckets, and no users; in az:// there may be ``container@account``.
_CLOUDS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs"} | dict.fromkeys(
    ("az", "abfs", "abfss"), "az"
)
# As pathlib.Path makes them of URLs; a drive of Windows has one letter.
_LOST_SLASH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(?!/)")
# As fsspec chains them: ``simplecache::s3://bucket/run``.
_CHAIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*::(?=.*://)")


def is_url(place: str | os.PathLike[str]) -> bool:
    """Return whether ``place`` is a URL, such as ``s3://bucket/run``; ``file://`` is a path.

    Raises ValueError if it has lost a slash, is several, or has a password or a query.
    """
    text = os.fspath(place)
    if chain := _CHAIN.match(text):
        url = _shown(text[chain.end() :])
        raise ValueError(
            f"{chain[0]}{url} is a chain of URLs, in which nothing can be saved: write {url!r}"
        )
    if lost := _LOST_SLASH.match(text):
        url = _shown(f"{lost[1]}://{text[lost.end() :]}")
        raise ValueError(
            f"{url.replace('://', ':/', 1)!r} is neither a URL nor a path: write {url!r}, as a "
            "string, for pathlib.Path takes a slash away"
        )
    if scheme_of(text) in ("", _FILE):
        return False
    if (shown := _shown(text)) != text:
        raise ValueError(
            f"{shown!r} must have no password and no query, which would be in logs and files: "
            "give what *** stands for to fsspec, as with FSSPEC_FTP_PASSWORD in the environment"
        )
    return True


def _shown(url: str) -> str:
    """``url`` with ``***`` for what may be a secret."""
    scheme, separator, rest = url.partition("://")
    user, _, place = rest.rpartition("@")
    is_name = scheme.lower() in _CLOUDS and ":" not in rest.partition("/")[0]
    if ":" in user and not is_name:
        rest = f"***@{place}"
    path, mark, _ = rest.partition("?")
    return f"{scheme}{separator}{path}{mark and '?***'}"


def scheme_of(place: str | os.PathLike[str]) -> str:
    """Return the scheme of a URL in lower case; ``""`` for a path."""
    found = _SCHEME.match(os.fspath(place))
    return "" if found is None else found[1].lower()


def cloud_of(url: str) -> str:
    """Return ``"s3"``, ``"gs"`` or ``"az"``; ``""`` for another."""
    return _CLOUDS.get(scheme_of(url), "")


def without_file_scheme(place: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return the path in ``file://<path>``; anything else unchanged.

    Raises ValueError if it is not absolute.
    """
    if scheme_of(place) != _FILE:
        return place
    path = os.fspath(place)[len("file://") :]
    if not path.startswith("/"):
        raise ValueError(f"{place!r} must have an absolute path behind file://, as file:///tmp/run")
    return path


def normal(url: str) -> str:
    """Return ``url`` in its normal spelling: ``S3://bucket//run/`` becomes ``s3://bucket/run``.

    Where there is no host, the path begins at the root: ``hdfs:///run`` is not ``hdfs://run``.
    Raises ValueError if it names no bucket, or has ``..`` in it.
    """
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if scheme in _CLOUDS and rest[:1] in ("", "/"):
        raise ValueError(f"{url!r} names no bucket: write {scheme}://bucket/run")
    parts = [part for part in rest.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError(f"{url!r} must not have '..' in it: stores have no folder above another")
    return scheme + separator + _root(rest) + "/".join(parts)


def _root(rest: str) -> str:
    """``/`` if ``rest`` names no host."""
    return "/" if rest.startswith("/") else ""


def joined(url: str, *keys: str) -> str:
    """Return the URL of ``keys`` below ``url``, without a ``/`` at its end."""
    scheme, separator, rest = url.partition("://")
    parts = [part.strip("/") for part in (rest, *keys)]
    return scheme + separator + _root(rest) + "/".join(filter(None, parts))


def top_of(url: str) -> tuple[str, str]:
    """Return the URL of the host or bucket of ``url``, and its key there."""
    scheme, separator, rest = url.partition("://")
    top, _, key = rest.partition("/")
    return scheme + separator + (top or _root(rest)), key
