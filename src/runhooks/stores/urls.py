"""URLs of object stores: which places are URLs, and what of a URL may be shown.

A URL may have a password, a token or a signature in it. So everything before its last ``@`` and
behind its first ``?`` is shown as ``***``. Nothing but the text itself, a ``HiddenUrl``, knows what
stands there: whoever passes it on as it is can open it, and what is formatted, joined or written
has the ``***``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import quote

AnyPlace = TypeVar("AnyPlace")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_FILE = "file"
#: The cloud that each scheme belongs to. Below these a place begins with the name of a bucket, and
#: no user; in az:// the name may be ``container@account``.
CLOUDS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
_HIDDEN = "***"
_IS_HIDDEN = re.compile(r"[^?]*(?:://|\?)\*\*\*(?:[@/].*)?")
# As pathlib.Path makes them of URLs; a drive of Windows has one letter.
_LOST_SLASH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(?!/)")


# As fsspec chains them: ``simplecache::s3://bucket/run``.
_CHAIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*::(?=.*://)")


class HiddenUrl(str):
    """A URL, as it may be shown; ``revealed`` returns it as it is. Pickled, it is what is shown.

    Two that hide different things differ, and no plain string is equal to it.
    """

    __slots__ = ("_real",)
    _real: str

    def __new__(cls, shown: str, real: str) -> HiddenUrl:
        url = super().__new__(cls, shown)
        url._real = real
        return url

    def __str__(self) -> str:
        return self  # not a str of its content, which would be shown and no more

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HiddenUrl) and self._real == other._real

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._real)

    def __add__(self, text: str) -> HiddenUrl:
        return HiddenUrl(str.__str__(self) + text, self._real + text)

    def __format__(self, spec: str) -> str:
        return format(str.__str__(self), spec)

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return str, (str.__str__(self),)


def hidden(place: AnyPlace) -> AnyPlace:
    """Return a URL as it may be shown and written, and as this process can still open it.

    Anything else is returned as it is.
    """
    if not isinstance(place, str) or isinstance(place, HiddenUrl) or not is_url(place):
        return place
    return cast(AnyPlace, _paired(_shown(place), place))


def revealed(url: str) -> str:
    """Return ``url`` with all that is hidden in it.

    Raises:
        ValueError: It is only what was shown of such a URL.
    """
    if isinstance(url, HiddenUrl):
        return url._real
    if _IS_HIDDEN.fullmatch(url):
        raise ValueError(
            f"{url!r} has *** for what it hides: give the URL as it was, with its password or query"
        )
    return url


def shows_secret(text: str, url: str) -> bool:
    """Return whether ``text`` has any word, in any spelling, that ``url`` hides."""
    if not isinstance(url, HiddenUrl):
        return False
    return any(word in text for word in _words(url._real) - _words(url))


def masked(text: str, given: Iterable[str]) -> str:
    """Return ``text`` with ``***`` for what is secret in ``given``, each of which may have a URL.

    Such as ``--output=ftp://user:password@host/run.csv``.
    """
    for it in given:
        if (found := _SCHEME.search(it)) is not None:
            before = it[: found.start()]
            shown = before + _shown(it[found.start() :])
            text = text.replace(it, shown).replace(repr(it)[1:-1], shown)
    return text


def is_url(place: str | os.PathLike[str]) -> bool:
    """Return whether ``place`` is a URL, such as ``s3://bucket/run``; ``file://`` is a path.

    Raises:
        ValueError: It was one, such as ``s3:/bucket/run``, before it lost a slash, or is several.
    """
    text = os.fspath(place)
    if (chain := _CHAIN.match(text)) is not None:
        url = _shown(text[chain.end() :])
        raise ValueError(
            f"{chain[0]}{url} is a chain of URLs, in which nothing can be saved: write {url!r}"
        )
    if (lost := _LOST_SLASH.match(text)) is not None:
        url = _shown(f"{lost[1]}://{text[lost.end() :]}")
        raise ValueError(
            f"{url.replace('://', ':/', 1)!r} is neither a URL nor a path: write {url!r}, as a "
            "string, for pathlib.Path takes a slash away"
        )
    return scheme_of(text) not in ("", _FILE)


def scheme_of(place: str | os.PathLike[str]) -> str:
    """Return the scheme of a URL in lower case, such as ``"s3"``; ``""`` for a path."""
    found = _SCHEME.match(os.fspath(place))
    return "" if found is None else found[1].lower()


def cloud_of(url: str) -> str:
    """Return ``"s3"``, ``"gs"`` or ``"az"``, however its scheme is spelled; ``""`` for another."""
    return CLOUDS.get(scheme_of(url), "")


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
        ValueError: It names no bucket, has ``..`` in it, or is only what was shown of a URL.
    """
    real = revealed(url)
    scheme, separator, rest = real.partition("://")
    scheme = scheme.lower()
    rest, *query = rest.split("?", 1)
    if scheme in CLOUDS and rest[:1] in ("", "/"):
        raise ValueError(f"{hidden(url)!r} names no bucket: write {scheme}://bucket/run")
    parts = [part for part in rest.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError(
            f"{hidden(url)!r} must not have '..' in it: stores have no folder above another"
        )
    text = "?".join([scheme + separator + "/".join(parts), *query])
    return url if text == real and isinstance(url, HiddenUrl) else hidden(text)


def joined(url: str, *keys: str) -> str:
    """Return the URL of what is at ``keys`` below ``url``, without a ``/`` at its end."""
    if isinstance(url, HiddenUrl):
        return _paired(joined(str.__str__(url), *keys), joined(url._real, *keys))
    scheme, separator, rest = url.partition("://")
    parts = [part.strip("/") for part in (rest, *keys)]
    return scheme + separator + "/".join(filter(None, parts))


class Top(NamedTuple):
    """The host or the bucket that a URL is in.

    Attributes:
        url: Its URL.
        key: The key of the first URL there.
        hiding: The key of all that the first URL hides something of.
        hiding_url: The URL of ``hiding``.
    """

    url: str
    key: str
    hiding: str
    hiding_url: str


def top_of(url: str) -> Top:
    """Return the host or the bucket that ``url`` is in."""
    real, shown = revealed(url), str.__str__(url)
    scheme, separator, rest = real.partition("://")
    top, _, key = rest.partition("/")
    shown_top = shown.removeprefix(scheme + separator).partition("/")[0]
    found = _paired(scheme + separator + shown_top, scheme + separator + top)
    if shown == real:
        return Top(found, key, "", found)
    tail = "".join(shown.rpartition(_HIDDEN)[2].partition("/")[1:])
    hiding_url = _paired(shown.removesuffix(tail), real.removesuffix(tail))
    return Top(found, key, f"/{key}".removesuffix(tail).strip("/"), hiding_url)


def _paired(shown: str, real: str) -> str:
    return real if shown == real else HiddenUrl(shown, real)


def _shown(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    user, at, place = rest.rpartition("@")
    if scheme.lower() in CLOUDS and ":" not in rest.partition("/")[0]:
        user, at, place = "", "", rest
    if "?" in user:  # which may be a part of a password, or a query with an "@"
        return scheme + separator + _HIDDEN
    path, mark, _ = place.partition("?")
    return "".join(
        [scheme, separator, f"{_HIDDEN}@" if at else "", path, f"?{_HIDDEN}" if mark else ""]
    )


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", f"{text} {quote(text)}"))
