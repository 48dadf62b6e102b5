"""Errors of the libraries below, as the ``OSError`` that a disk would raise."""

from __future__ import annotations

import errno
from typing import Any

from runhooks.stores.urls import scheme_of

_MOST_SHOWN = 300
_UNKNOWN_USER = ("NoCredentials", "PartialCredentials", "ProfileNotFound")  # of botocore
_SAY_WHO = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"


def lacks_credentials(error: BaseException) -> bool:
    """Return whether nobody has said who the user is."""
    return type(error).__name__.startswith(_UNKNOWN_USER)


def shortened(error: BaseException) -> str:
    """Return what ``error`` says, in one line."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    text = " ".join(text.split()).rstrip(".: ") or type(error).__name__
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


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
# No second try changes these.
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
_PERMANENT_NUMBERS = {
    errno.EINVAL,
    errno.EMSGSIZE,
    errno.ENAMETOOLONG,
    errno.ENOSYS,
    errno.EPERM,
    errno.EROFS,
}
# Of the request: it took too long, conflicts with another, was too early, or one of too many.
_TRANSIENT_STATUSES = (408, 409, 425, 429)
_PERMANENT_STATUSES = (501, 505)  # the store does not know how to do that


def is_transient(error: Exception) -> bool:
    """Return whether the same request may succeed later."""
    if _tells(error, "NoSuchUpload"):  # it is complete, and the answer that said so was lost
        return True
    if isinstance(error, _PERMANENT) or lacks_credentials(error):
        return False
    status = status_of(error)
    if status is not None:
        return status in _TRANSIENT_STATUSES if status < 500 else status not in _PERMANENT_STATUSES
    return not (isinstance(error, OSError) and error.errno in _PERMANENT_NUMBERS)


def as_os_error(error: Exception, url: str) -> OSError:
    """Return ``error`` as the fitting OSError, whose ``filename`` is ``url``."""
    text = shortened(error)
    if lacks_credentials(error):
        found = f"no credentials for {scheme_of(url)}:// were found: {_SAY_WHO} ({text})"
        return PermissionError(errno.EACCES, found, url)
    if isinstance(error, TimeoutError):
        return TimeoutError(errno.ETIMEDOUT, text, url)
    if isinstance(error, OSError):
        number = error.errno or _NUMBERS.get(type(error), errno.EIO)
        return OSError(number, text, url)
    status = status_of(error)
    return OSError(_OF_STATUS.get(status or 0, errno.EIO), text, url)


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status in ``error`` or its causes, if any."""
    answer = getattr(error, "response", None)  # of botocore, as the cause of what s3fs raises
    if isinstance(answer, dict):
        known = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return known if isinstance(known, int) else None
    for name in ("status_code", "status", "code"):  # of azure, aiohttp and gcsfs
        value: Any = getattr(error, name, None)
        if isinstance(value, int) and 100 <= value < 600:
            return value
    return None if error.__cause__ is None else status_of(error.__cause__)


def _tells(error: BaseException, code: str) -> bool:
    answer = getattr(error, "response", None)
    if isinstance(answer, dict) and answer.get("Error", {}).get("Code") == code:
        return True
    return error.__cause__ is not None and _tells(error.__cause__, code)
