"""Stores of each kind that the tests go through."""

from __future__ import annotations

from uuid import uuid4

import pytest
import s3fs

from tests.fault_proxy import FaultProxy


@pytest.fixture(params=["memory", "s3"])
def url(request):
    """An empty place in a store: of fsspec's memory, or of an S3 server."""
    if request.param == "memory":
        return f"memory://{uuid4()}/run"
    return f"{request.getfixturevalue('bucket')}/run"


def use_endpoint(endpoint, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    s3fs.S3FileSystem.clear_instance_cache()  # of those that know another one


@pytest.fixture
def proxy(s3_server, monkeypatch):
    """A proxy that the clients of the server go through."""
    proxy = FaultProxy(s3_server.port)
    use_endpoint(proxy.endpoint, monkeypatch)
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)  # it tries again by a clock of its own
    yield proxy
    proxy.close()
