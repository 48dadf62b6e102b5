"""How obstore gets to know what the user has told fsspec, and the libraries that it uses."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from runhooks.stores.fsspec_backend import file_system
from runhooks.stores.messages import NO_CREDENTIALS
from runhooks.stores.urls import scheme_of

#: What s3fs can be told and obstore as well.
_KNOWN_TO_BOTH = {"key", "secret", "token", "anon", "profile", "endpoint_url", "use_ssl"}
_CLIENT_KNOWN_TO_BOTH = {"endpoint_url", "region_name"}
# How long credentials are used before s3fs, which renews them, is asked again.
_TRUSTED_FOR = timedelta(minutes=5)


def settings_for(url: str) -> dict[str, Any] | None:
    """Return the arguments of obstore's store for ``url``; None if fsspec must be used.

    Obstore finds what environment variables say for itself.
    """
    scheme = scheme_of(url)
    if scheme in ("s3", "s3a"):
        given = _configured("s3", "s3a")
        client = given.pop("client_kwargs", None) or {}
        if given.keys() - _KNOWN_TO_BOTH or client.keys() - _CLIENT_KNOWN_TO_BOTH:
            return None
        try:
            return _as_s3fs(url)
        except ImportError:  # s3fs, or fsspec, is not installed
            return None if given or client else {}
    if scheme in ("gs", "gcs"):
        elsewhere = "STORAGE_EMULATOR_HOST" in os.environ  # which gcsfs alone knows
        return None if elsewhere or _configured("gs", "gcs") else {}
    return None if "@" in url or _configured("az", "abfs", "abfss") else {}


def _configured(*schemes: str) -> dict[str, Any]:
    """What ``fsspec.config`` says of file systems of these schemes."""
    if find_spec("fsspec") is None:
        return {}
    conf = import_module("fsspec.config").conf
    return {name: value for scheme in schemes for name, value in conf.get(scheme, {}).items()}


def _as_s3fs(url: str) -> dict[str, Any]:
    """The endpoint, the region and the credentials that s3fs has found, in its many ways."""
    fs, _ = file_system(url)
    client = fs.s3.meta
    settings = {"endpoint": client.endpoint_url, "region": client.region_name}
    if fs.anon:
        return settings | {"skip_signature": True}
    if fs.key:
        given = {
            "access_key_id": fs.key,
            "secret_access_key": fs.secret,
            "session_token": fs.token,
        }
        return settings | {name: value for name, value in given.items() if value}

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

    return settings | {"credential_provider": credentials}


async def _frozen_credentials(session: Any) -> Any:
    found = await session.get_credentials()
    return None if found is None else await found.get_frozen_credentials()
