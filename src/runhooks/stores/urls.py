"""Which places are URLs of object stores, and which are paths."""

from __future__ import annotations

import os
import re

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_FILE = "file"
# Below these a place begins with the name of a bucket.
_BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"})
_AUTHORITY = re.compile(r"[^/?#]*://[^/?#]*")
_PASSWORD = re.compile(r"(://[^/?#\s:@'\"]*:)[^/?#\s'\"]+(?=@)")
_QUERY = re.compile(r"(://[^\s'\"?]*\?)([^\s'\"]+)")
_SECRET_VALUE = re.compile(
    r"([^=&]*(?:sig|token|secret|passw|pwd|credential|key|auth|jwt|sas)[^=&/]*=)[^&/]+", re.I
)
_HIDDEN = "***"
#: The parts before the path, and the URLs, that ``hidden`` has hidden something of.
_authorities: dict[str, str] = {}
_queries: dict[str, str] = {}
# As pathlib.Path makes them of URLs: a folder of this name would be on this machine.
_LOST_SLASH = re.compile(rf"({'|'.join([*sorted(_BUCKETS), 'memory', _FILE])}):/(?!/)", re.I)


def is_url(place: str | os.PathLike[str]) -> bool:
    """Return whether ``place`` is a URL, such as ``s3://bucket/run``; ``file://`` is a path.

    Raises:
        ValueError: It was one, such as ``s3:/bucket/run``, before it lost a slash.
    """
    text = os.fspath(place)
    if (lost := _LOST_SLASH.match(text)) is not None:
        url = masked(f"{lost[1]}://{text[lost.end() :]}")
        raise ValueError(
            f"{url.replace('://', ':/', 1)!r} is neither a URL nor a path: write {url!r}, as a "
            "string, for pathlib.Path takes a slash away"
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

    What is secret in it is hidden, as by ``hidden``.

    Raises:
        ValueError: It names no bucket, or has ``..`` in it.
    """
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if scheme in _BUCKETS and rest[:1] in ("", "/"):
        raise ValueError(f"{masked(url)!r} names no bucket: write {scheme}://bucket/run")
    parts = [part for part in rest.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError(
            f"{masked(url)!r} must not have '..' in it: stores have no folder above another"
        )
    return hidden(scheme + separator + "/".join(parts))


def masked(text: str) -> str:
    """Return ``text`` with ``***`` for the passwords and signatures of the URLs in it."""
    for shown, real in list(_authorities.items()):  # some libraries leave the scheme out
        text = text.replace(real.partition("://")[2], shown.partition("://")[2])
    if "://" not in text:
        return text
    text = _PASSWORD.sub(rf"\1{_HIDDEN}", text)
    return _QUERY.sub(lambda it: it[1] + _SECRET_VALUE.sub(rf"\1{_HIDDEN}", it[2]), text)


def hidden(url: str) -> str:
    """Return ``url`` as it may be shown and written, and as this process can still open it.

    Passwords and signatures in it are ``***``; ``revealed`` knows what they were.
    """
    shown = masked(url)
    if shown != url:
        authority, real = _AUTHORITY.match(shown), _AUTHORITY.match(url)
        if authority is not None and real is not None and authority[0] != real[0]:
            _authorities[authority[0]] = real[0]
        if (begin := _queried(shown)) != (real_begin := _queried(url)):
            _queries[begin] = real_begin
    return shown


def revealed(url: str) -> str:
    """Return the URL that ``hidden`` has returned ``url`` for, or that it is below of."""
    begin = _queried(url)
    url = _queries.get(begin, begin) + url[len(begin) :]
    found = _AUTHORITY.match(url)
    return url if found is None else _authorities.get(found[0], found[0]) + url[found.end() :]


def _queried(url: str) -> str:
    """Return ``url`` up to the end of its query, which what is below it has as well."""
    path, mark, rest = url.partition("?")
    return path + mark + rest.partition("/")[0]


def joined(url: str, *keys: str) -> str:
    """Return the URL of what is at ``keys`` below ``url``, without a ``/`` at its end."""
    scheme, separator, rest = url.partition("://")
    parts = [part.strip("/") for part in (rest, *keys)]
    return scheme + separator + "/".join(filter(None, parts))
