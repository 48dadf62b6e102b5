"""``ObstoreBackend``: obstore, if it is installed and fsspec was told nothing special.

It reads and writes several times as fast as the libraries that fsspec uses.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from runhooks.stores.backend import Buffer, StoredObject
from runhooks.stores.errors import NO_CREDENTIALS
from runhooks.stores.fsspec_backend import file_system
from runhooks.stores.urls import CLOUDS, cloud_of, scheme_of

# How long credentials are used before s3fs, which renews them, is asked again.
_TRUSTED_FOR = timedelta(minutes=5)


def _is_told_to_fsspec(url: str) -> bool:
    """Return whether fsspec was told what obstore would not know."""
    cloud, conf = cloud_of(url), import_module("fsspec.config").conf
    if any(conf.get(scheme) for scheme, its_cloud in CLOUDS.items() if its_cloud == cloud):
        return True
    if cloud == "gs":
        return "STORAGE_EMULATOR_HOST" in os.environ
    return cloud == "az" and (scheme_of(url) != "az" or "@" in url)


def _as_s3fs(url: str) -> dict[str, Any]:
    """Return the endpoint, the region and the credentials that s3fs finds, in its many ways.

    Without s3fs obstore finds what environment variables say for itself.
    """
    try:
        fs, _ = file_system(url)
    except ImportError:
        return {}

    def credentials() -> dict[str, Any]:
        sync = import_module("fsspec.asyn").sync
        found = sync(fs.loop, _frozen_credentials, fs.session)
        if found is None:
            raise PermissionError(NO_CREDENTIALS)
        return {
            "access_key_id": found.access_key,
            "secret_access_key": found.secret_key,
            "token": found.token,
            "expires_at": datetime.now(UTC) + _TRUSTED_FOR,
        }

    client = fs.s3.meta
    return {
        "endpoint": client.endpoint_url,
        "region": client.region_name,
        "credential_provider": credentials,
    }


async def _frozen_credentials(session: Any) -> Any:
    found = await session.get_credentials()
    return None if found is None else await found.get_frozen_credentials()


_PART_BYTES = 8 << 20
_MOST_PARTS = 9_000  # S3 takes 10,000
_CLASSES = {"s3": "S3Store", "gs": "GCSStore", "az": "AzureStore"}
# A part of a large object is repeated alone; all else is repeated as our own policy says.
_RETRIES_OF_PARTS = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}
_NO_RETRIES = {"max_retries": 0, "retry_timeout": timedelta(0)}
_TIMEOUTS = {"connect_timeout": "5s", "read_timeout": "60s", "timeout": "5m", "allow_http": True}

_in_forked_child = False  # where the threads of obstore are gone


def _forked() -> None:
    global _in_forked_child
    _in_forked_child = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def open_with_obstore(url: str) -> ObstoreBackend | None:
    """Return the objects below ``url``; None if obstore is not for them, or not installed."""
    kind = _CLASSES.get(cloud_of(url))
    is_there = all(map(find_spec, ("obstore", "fsspec")))
    if kind is None or _in_forked_child or not is_there or _is_told_to_fsspec(url):
        return None
    settings = _as_s3fs(url) if kind == "S3Store" else {}
    bucket, _, prefix = url.partition("://")[2].partition("/")
    make = getattr(import_module("obstore.store"), kind)
    stores = (
        make(
            bucket,
            prefix=prefix or None,
            client_options=_TIMEOUTS,
            retry_config=retries,
            **settings,
        )
        for retries in (_NO_RETRIES, _RETRIES_OF_PARTS)
    )
    return ObstoreBackend(*stores)


class ObstoreBackend:
    """The objects of a store of obstore.

    Args:
        store: The store of obstore, which repeats nothing.
        patient: The same, for large objects, whose parts it repeats.
    """

    def __init__(self, store: Any, patient: Any) -> None:
        self._store = store
        self._patient = patient
        self._obstore = import_module("obstore")

    def put(self, key: str, data: Sequence[Buffer]) -> None:
        size = sum(map(len, data))
        if size <= _PART_BYTES:
            content = b"".join(_slices(data))
            self._obstore.put(self._store, key, content, use_multipart=False)
            return
        part_bytes = max(_PART_BYTES, -(-size // _MOST_PARTS))
        self._obstore.put(self._patient, key, _slices(data), chunk_size=part_bytes)

    def create(self, key: str, data: bytes) -> None:
        try:
            self._obstore.put(self._store, key, data, mode="create")
        except self._obstore.exceptions.AlreadyExistsError as error:
            raise FileExistsError(str(error)) from error

    def read(self, key: str, start: int, end: int | None) -> bytes | memoryview:
        if end is None:
            content = self._obstore.get(self._store, key).bytes()
            return memoryview(content)[start:]
        return memoryview(self._obstore.get_range(self._store, key, start=start, end=end))

    def stat(self, key: str) -> StoredObject:
        return _stored(self._obstore.head(self._store, key))

    def objects(self, folder: str) -> Iterable[StoredObject]:
        for chunk in self._obstore.list(self._store, prefix=folder or None):
            yield from map(_stored, chunk)

    def folders(self, folder: str) -> Iterable[str]:
        found = self._obstore.list_with_delimiter(self._store, prefix=folder or None)
        return [prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"]]

    def delete(self, keys: Sequence[str]) -> None:
        self._obstore.delete(self._store, list(keys))


def _slices(data: Sequence[Buffer]) -> Iterator[memoryview]:
    for piece in data:
        view = memoryview(piece).cast("B")  # type: ignore[arg-type] # arrays, until 3.12
        for start in range(0, len(view), _PART_BYTES):
            yield view[start : start + _PART_BYTES]


def _stored(meta: dict[str, Any]) -> StoredObject:
    return StoredObject(meta["path"], meta["size"], meta["last_modified"].timestamp())
