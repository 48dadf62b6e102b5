"""``FsspecBackend``: any store that fsspec knows."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from typing import Any

from runhooks.stores.backend import Buffer, StoredObject
from runhooks.stores.errors import cause_of, shortened, status_of
from runhooks.stores.urls import cloud_of, revealed, scheme_of

#: What is sent in one request; more is sent in parts.
_SINGLE_BYTES = 32 << 20
_PART_BYTES = 16 << 20
#: What fsspec's file systems call the time of an object.
_TIMES = ("LastModified", "last_modified", "updated", "timeCreated", "mtime", "created")
_INSTALL = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs"}
# Of fsspec's memory, which looks first and writes then.
_creating = threading.Lock()


def file_system(url: str) -> tuple[Any, str]:
    """Return fsspec's file system for ``url``, and what it calls that place.

    Raises:
        ImportError: fsspec, or what it needs for this scheme, is not installed.
        ValueError: Nobody knows the scheme.
    """
    scheme = scheme_of(url)
    needed = " ".join(["fsspec", *filter(None, [_INSTALL.get(cloud_of(url))])])
    try:
        core = import_module("fsspec.core")
        # What is listed must be what is there now.
        fs, root = core.url_to_fs(revealed(url), use_listings_cache=False, **_fewer_retries(scheme))
        return fs, root.rstrip("/")
    except ImportError as error:
        cause = cause_of(error, url)
        failure: Exception = ImportError(
            f"{url} needs more than is installed: pip install {needed}"
        )
    except ValueError as error:
        cause = cause_of(error, url)
        failure = ValueError(f"{scheme}:// is not known to fsspec: {shortened(error, url)}")
    raise failure from cause


def forget_file_system(url: str) -> None:
    """Let fsspec make a new file system for ``url`` when it is asked for one again."""
    with suppress(ImportError, ValueError):  # there is none
        file_system(url)[0].clear_instance_cache()


def _fewer_retries(scheme: str) -> dict[str, Any]:
    """What keeps botocore from repeating each of the few tries of s3fs for many seconds."""
    if scheme not in ("s3", "s3a"):
        return {}
    told = import_module("fsspec.config").conf.get(scheme, {}).get("config_kwargs") or {}
    return {"config_kwargs": {"retries": {"total_max_attempts": 1}, **told}}


class FsspecBackend:
    """The objects below ``url``, through fsspec."""

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
            file.discard()  # closing it would make an object of the first part
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

    def read(self, key: str, start: int, end: int | None) -> bytes | memoryview:
        content: bytes = self._fs.cat_file(self._path(key), start=start or None, end=end)
        return content

    def stat(self, key: str) -> StoredObject:
        info = self._fs.info(self._path(key))
        if info["type"] != "file":
            raise FileNotFoundError("there is no such object")
        return _stored(key, info)

    def objects(self, folder: str) -> Iterable[StoredObject]:
        found = self._fs.find(self._path(folder), detail=True).values()
        return [_stored(self._key(info["name"]), info) for info in found]

    def folders(self, folder: str) -> Iterable[str]:
        try:
            found = self._fs.ls(self._path(folder), detail=True)
        except FileNotFoundError:
            self._require_bucket(folder)
            return []
        folders = (info["name"] for info in found if info["type"] == "directory")
        return [name.rstrip("/").rpartition("/")[2] for name in folders]

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            with suppress(FileNotFoundError):
                self._fs.rm_file(self._path(key))

    def _require_bucket(self, folder: str) -> None:
        self.objects(folder)  # which raises if it is not there, but with adlfs
        bucket = self._root.partition("/")[0]
        if self._is_azure and not self._fs.exists(bucket):
            raise FileNotFoundError(errno.ENOENT, f"the container {bucket} does not exist")

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root

    def _key(self, path: str) -> str:
        return path[len(self._root) + 1 :]


def _stored(key: str, info: Mapping[str, Any]) -> StoredObject:
    time = next((info[name] for name in _TIMES if info.get(name) is not None), 0.0)
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    if isinstance(time, datetime):
        time = time.timestamp()
    return StoredObject(key, int(info["size"]), float(time))
