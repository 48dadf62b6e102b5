"""Errors of the libraries below, as the ``OSError`` that a disk would raise."""

from __future__ import annotations

import errno
import os
import re
from typing import Any

from runhooks.stores.urls import HiddenUrl, cloud_of, scheme_of, shows_secret

_MOST_SHOWN = 300

#: What S3 and its like answer.
_CODE = re.compile(r"<Code>(\w+)</Code>(?:\s*<Message>([^<]*))?")
#: What obstore says before the cause, and what it adds for those who look for its own errors.
_PREFIX = re.compile(
    r"(?s)(?:Generic \w+ error: )?(?:.*?: )?Error performing (\w+ \S+) in \S+?"
    r"(?:, after \d+ retries.*?)? - (?:HTTP error: )?"
)
_DEBUG = "\n\nDebug source:"
#: The causes that only its debugging text has.
_TOLD = re.compile(r'(?:message|error): "([^"]+)"')
_SHORT_CAUSES = {
    "TimedOut": "no answer in time",
    "kind: Timeout": "no answer in time",
    "IncompleteMessage": "the connection was closed without an answer",
    "ConnectionReset": "the connection was closed",
}
#: What is raised where fsspec is asked for them.
NO_CREDENTIALS = "there are no credentials"
#: Where obstore asks for credentials, once it has found none: services of the clouds' own machines.
_ASKS_FOR_CREDENTIALS = re.compile(
    rf"{NO_CREDENTIALS}|performing token request|MissingAccount|"
    r"performing \w+ http://(?:169\.254\.|[^/]+/(?:latest/(?:api/token|meta-data)|computeMetadata)\b)"
)
_SAY_WHO = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or install s3fs and set AWS_PROFILE",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login`",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or a connection string",
}


def lacks_credentials(error: BaseException) -> bool:
    """Return whether nobody has said who the user is: a store has not even been asked."""
    if type(error).__name__.startswith(("NoCredentials", "PartialCredentials")):
        return True
    is_of_obstore = type(error).__module__.startswith("obstore")
    return is_of_obstore and _ASKS_FOR_CREDENTIALS.search(str(error)) is not None


def no_credentials(url: str, error: BaseException) -> str:
    """Return what to do about ``error``, which is that there are no credentials."""
    fix = _SAY_WHO.get(cloud_of(url), "say who you are where its library looks for it")
    return f"no credentials for {scheme_of(url)}:// were found: {fix} ({shortened(error, url)})"


def shortened(error: BaseException, url: str) -> str:
    """Return the cause in what ``error`` says; if that shows what ``url`` hides, its kind alone."""
    text = _cause_in(error)
    if not shows_secret(text, url):
        return text
    number = error.errno if isinstance(error, OSError) else None
    if number is not None and number in errno.errorcode:
        return os.strerror(number)
    status = status_of(error)
    return type(error).__name__ if status is None else f"HTTP status {status}"


def _cause_in(error: BaseException) -> str:
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    text, _, debug = text.partition(_DEBUG)
    if code := _CODE.search(text):
        told = (code[2] or "").partition("\n")[0].strip(" .")  # of several lines on Azure
        return f"{code[1]}: {told}" if told else code[1]
    if found := _PREFIX.match(text):
        text = f"{found[1]}: {_cause(debug) or text[found.end() :]}"
    text = " ".join(text.split()).rstrip(".: ") or type(error).__name__
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _cause(debug: str) -> str:
    """The cause that obstore tells in its debugging text alone; ``""`` if it is no such error."""
    if "reqwest::Error" not in debug:
        return ""
    for sign, cause in _SHORT_CAUSES.items():
        if sign in debug:
            return cause
    told: list[str] = _TOLD.findall(debug)
    return told[-1] if told else ""


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
        return PermissionError(errno.EACCES, no_credentials(url, error), url)
    text = shortened(error, url)
    if isinstance(error, TimeoutError):
        return TimeoutError(errno.ETIMEDOUT, text, url)
    if isinstance(error, OSError):
        number = error.errno or _NUMBERS.get(type(error), errno.EIO)
        return OSError(number, text, url)  # of the kind that the number means
    if type(error).__name__.startswith(_NO_ACCESS):
        return PermissionError(errno.EACCES, text, url)
    status = status_of(error)
    return OSError(_OF_STATUS.get(status or 0, errno.EIO), text, url)


def cause_of(error: Exception, url: str) -> Exception | None:
    """Return ``error`` as the cause of another; None if ``url`` has secrets, which it may show."""
    return None if isinstance(url, HiddenUrl) else error


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
