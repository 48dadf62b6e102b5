"""What the libraries beneath raise, as the ``OSError`` that a disk would raise."""

from __future__ import annotations

import errno
import re
from typing import Any

from runhooks.stores.messages import lacks_credentials, no_credentials, shortened
from runhooks.stores.urls import masked, scheme_of

#: No second try changes these.
_PERMANENT = (
    FileExistsError,
    FileNotFoundError,
    ImportError,
    IsADirectoryError,
    NotADirectoryError,
    NotImplementedError,
    PermissionError,
    TypeError,
    ValueError,
)
_PERMANENT_NUMBERS = frozenset(
    {
        errno.EINVAL,
        errno.EMSGSIZE,
        errno.ENAMETOOLONG,
        errno.ENOSYS,
        errno.EPERM,
        errno.EROFS,
    }
)
#: Too early, too many, a conflict with another request, a request that took too long.
_TRANSIENT_STATUSES = frozenset({408, 409, 425, 429})
#: What the store does not know how to do.
_PERMANENT_STATUSES = frozenset({501, 505})
_STATUS = re.compile(r"status code: (\d{3})|HTTP status (?:client|server) error \((\d{3})")
_NO_ACCESS = ("NoCredentials", "Unauthenticated", "PermissionDenied", "PartialCredentials")


def is_transient(error: Exception) -> bool:
    """Return whether the same request may succeed later: 503, no answer, a lost connection."""
    if _tells(error, "NoSuchUpload"):  # it is complete, and the answer that said so was lost
        return True
    if isinstance(error, _PERMANENT) or type(error).__name__.startswith(_NO_ACCESS):
        return False
    status = status_of(error)
    if status is not None:
        fails = status >= 500 and status not in _PERMANENT_STATUSES
        return fails or status in _TRANSIENT_STATUSES
    return not (isinstance(error, OSError) and error.errno in _PERMANENT_NUMBERS)


def as_os_error(error: Exception, url: str) -> OSError:
    """Return ``error`` as an OSError of the fitting kind whose ``filename`` is ``url``."""
    if lacks_credentials(error):
        return PermissionError(errno.EACCES, no_credentials(scheme_of(url), error), url)
    text = shortened(error)
    if isinstance(error, TimeoutError):
        return TimeoutError(errno.ETIMEDOUT, text, url)
    if isinstance(error, OSError):
        number = error.errno or _NUMBERS.get(type(error), errno.EIO)
        return OSError(number, text, url)  # of the kind that the number means
    if type(error).__name__.startswith(_NO_ACCESS):
        return PermissionError(errno.EACCES, text, url)
    status = status_of(error)
    return OSError(_OF_STATUS.get(status or 0, errno.EIO), text, url)


def without_secrets(error: Exception) -> Exception | None:
    """Return ``error``, or None if it shows a password of a URL."""
    while_shown: BaseException | None = error
    while while_shown is not None:
        if masked(text := f"{while_shown!r} {while_shown}") != text:
            return None
        while_shown = while_shown.__cause__ or while_shown.__context__
    return error


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status that a store answered with; None if ``error`` tells none."""
    answer = getattr(error, "response", None)  # of botocore, as the cause of what s3fs raises
    if isinstance(answer, dict):
        known = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return known if isinstance(known, int) else None
    for name in ("status_code", "status", "code"):  # of azure, aiohttp and gcsfs
        value: Any = getattr(error, name, None)
        if isinstance(value, int) and 100 <= value < 600:
            return value
    if found := _STATUS.search(str(error)):  # of obstore
        return int(found[1] or found[2])
    return None if error.__cause__ is None else status_of(error.__cause__)


def _tells(error: BaseException, code: str) -> bool:
    """Whether a store has answered with that code of S3."""
    answer = getattr(error, "response", None)
    if isinstance(answer, dict) and answer.get("Error", {}).get("Code") == code:
        return True
    if f"<Code>{code}</Code>" in str(error):
        return True
    return error.__cause__ is not None and _tells(error.__cause__, code)


_NUMBERS: dict[type[OSError], int] = {
    FileExistsError: errno.EEXIST,
    FileNotFoundError: errno.ENOENT,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
    PermissionError: errno.EACCES,
    ConnectionResetError: errno.ECONNRESET,
    ConnectionRefusedError: errno.ECONNREFUSED,
}
_OF_STATUS = {401: errno.EACCES, 403: errno.EACCES, 404: errno.ENOENT, 412: errno.EEXIST}
