"""Stores of each kind that the tests go through."""

from __future__ import annotations

from uuid import uuid4

import fsspec.config
import pytest
import s3fs

from tests.fault_proxy import FaultProxy


@pytest.fixture(params=["memory", "s3fs", "obstore"])
def url(request, monkeypatch):
    """An empty place in a store: of fsspec's memory, or of an S3 server, reached in two ways."""
    if request.param == "memory":
        return f"memory://{uuid4()}/run"
    use(request.param, monkeypatch)
    return f"{request.getfixturevalue('bucket')}/run"


@pytest.fixture(params=["s3fs", "obstore"])
def s3_library(request, monkeypatch):
    """The two ways to an S3 server."""
    use(request.param, monkeypatch)
    return request.param


def use(library, monkeypatch):
    if library == "s3fs":  # obstore has no word for this
        monkeypatch.setitem(fsspec.config.conf, "s3", {"max_concurrency": 10})


def use_endpoint(endpoint, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    s3fs.S3FileSystem.clear_instance_cache()  # of those that know another one


@pytest.fixture
def proxy(s3_server, monkeypatch):
    """A proxy that the clients of the server go through."""
    proxy = FaultProxy(s3_server.port)
    use_endpoint(proxy.endpoint, monkeypatch)
    yield proxy
    proxy.close()
