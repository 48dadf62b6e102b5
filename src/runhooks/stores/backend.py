"""``Backend``: requests to a store, each tried once, through fsspec."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from runhooks.stores.urls import cloud_of, scheme_of

AnyResult = TypeVar("AnyResult")

#: Bytes, a memoryview of bytes, or a flat array of bytes.
Buffer = bytes | bytearray | memoryview | NDArray[np.uint8]


class StoredObject(NamedTuple):
    """An object in a store: its key below the URL of the store, its size in bytes.

    ``modified``: by the clock of the store, in seconds since the epoch.
    """

    key: str
    size: int
    modified: float


_SINGLE_BYTES = 32 << 20  # put in one request
_PART_BYTES = 16 << 20
# What file systems call the time of an object.
_TIMES = ("LastModified", "last_modified", "updated", "timeCreated", "mtime", "created")
_INSTALL = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs"}
_creating = threading.Lock()  # fsspec's memory looks, and then writes


def file_system(url: str) -> tuple[Any, str]:
    """Return fsspec's file system for ``url``, and what it calls that place."""
    scheme = scheme_of(url)
    try:
        core = import_module("fsspec.core")
        fs, root = core.url_to_fs(url, use_listings_cache=False, **_fewer_retries(scheme))
    except ImportError as error:
        needed = f"fsspec {_INSTALL.get(cloud_of(url), '')}".rstrip()
        raise ImportError(f"{url} needs more than is installed: pip install {needed}") from error
    except ValueError as error:
        raise ValueError(f"{scheme}:// is not known to fsspec: {shortened(error)}") from error
    if type(fs).__module__.startswith("obstore"):
        raise ValueError(
            f"{scheme}:// is registered as obstore.fsspec, which replaces what must be created "
            "only once: leave it to fsspec"
        )
    if fs.async_impl:
        fs.loop.set_default_executor(_LastingThreads())
    return fs, root.rstrip("/")


class _LastingThreads(ThreadPoolExecutor):
    """Threads for fsspec's loop to the very end of the process, when Python has no others."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return in_thread(partial(fn, *args, **kwargs), "runhooks-store")


def in_thread(act: Callable[[], AnyResult], name: str) -> Future[AnyResult]:
    future: Future[AnyResult] = Future()

    def work(future: Future[AnyResult]) -> None:
        try:
            future.set_result(act())
        except BaseException as error:  # noqa: BLE001 - raised by whoever waits
            future.set_exception(error)
            del future  # or they hold each other, and the data

    try:
        threading.Thread(target=work, args=[future], name=name, daemon=True).start()
    except RuntimeError:  # the process ends
        work(future)
    return future


def forget_file_system(url: str) -> None:
    """Let fsspec make a new file system for ``url``."""
    with suppress(ImportError, ValueError):
        file_system(url)[0].clear_instance_cache()


def _fewer_retries(scheme: str) -> dict[str, Any]:
    """Keeps botocore from repeating each try for many seconds."""
    if scheme not in ("s3", "s3a"):
        return {}
    told = import_module("fsspec.config").conf.get(scheme, {}).get("config_kwargs") or {}
    return {"config_kwargs": {"retries": {"total_max_attempts": 1}, **told}}


class Backend:
    """The objects below ``url``. Raises errors of the libraries beneath."""

    def __init__(self, url: str) -> None:
        self._fs, self._root = file_system(url)
        self._is_azure = cloud_of(url) == "az"

    def put(self, key: str, data: Sequence[Buffer]) -> None:
        path = self._path(key)
        if sum(map(len, data)) <= _SINGLE_BYTES:
            self._fs.pipe_file(path, b"".join(data))  # type: ignore[arg-type] # arrays are buffers, from 3.12 in types
            return
        file = self._fs.open(path, "wb", block_size=_PART_BYTES)
        try:
            for piece in data:
                file.write(piece)
        except BaseException:
            file.discard()  # close would make an object
            raise
        file.close()

    def create(self, key: str, data: bytes) -> None:
        try:
            with _creating:
                self._fs.pipe_file(self._path(key), data, mode="create")
        except OSError as error:
            if status_of(error) == 412:
                raise FileExistsError(str(error)) from error
            raise

    def read(self, key: str, start: int, end: int | None) -> bytes:
        """Return the bytes from ``start`` to ``end``, at least one; None: to the end."""
        content: bytes = self._fs.cat_file(self._path(key), start=start or None, end=end)
        return content

    def stat(self, key: str) -> StoredObject:
        info = self._fs.info(self._path(key))
        if info["type"] != "file":
            raise FileNotFoundError("there is no such object")
        return _stored(key, info)

    def objects(self, folder: str) -> list[StoredObject]:
        found = self._fs.find(self._path(folder), detail=True).values()
        return [_stored(info["name"][len(self._root) + 1 :], info) for info in found]

    def folders(self, folder: str) -> list[str]:
        try:
            found = self._fs.ls(self._path(folder), detail=True)
        except FileNotFoundError:
            self.objects(folder)  # which raises if the bucket is not there, but with adlfs
            bucket = self._root.partition("/")[0]
            if self._is_azure and not self._fs.exists(bucket):
                message = f"the container {bucket} does not exist"
                raise FileNotFoundError(errno.ENOENT, message) from None
            return []
        folders = (info["name"] for info in found if info["type"] == "directory")
        return [name.rstrip("/").rpartition("/")[2] for name in folders]

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            with suppress(FileNotFoundError):
                self._fs.rm_file(self._path(key))

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root


def _stored(key: str, info: Mapping[str, Any]) -> StoredObject:
    time = next((info[name] for name in _TIMES if info.get(name) is not None), 0.0)
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    if isinstance(time, datetime):
        time = time.timestamp()
    return StoredObject(key, int(info["size"]), float(time))


_MOST_SHOWN = 300
_UNKNOWN_USER = ("NoCredentials", "PartialCredentials", "ProfileNotFound")  # of botocore
_SAY_WHO = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"


def lacks_credentials(error: BaseException) -> bool:
    return type(error).__name__.startswith(_UNKNOWN_USER)


def shortened(error: BaseException) -> str:
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
# Too slow, in conflict with another, too early, one of too many.
_TRANSIENT_STATUSES = (408, 409, 425, 429)
_PERMANENT_STATUSES = (501, 505)


def is_transient(error: Exception) -> bool:
    if _tells(error, "NoSuchUpload"):  # it is complete: an answer was lost
        return True
    if isinstance(error, _PERMANENT) or lacks_credentials(error):
        return False
    status = status_of(error)
    if status is not None:
        return status in _TRANSIENT_STATUSES if status < 500 else status not in _PERMANENT_STATUSES
    return not (isinstance(error, OSError) and error.errno in _PERMANENT_NUMBERS)


def as_os_error(error: Exception, url: str) -> OSError:
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
