"""An S3 server on this machine, in a process of its own, and buckets in it.

Run as a program it serves until its input ends, and prints its port.
"""

from __future__ import annotations

import importlib.util
import itertools
import subprocess
import sys
import urllib.request

#: What clients are told in the environment.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class S3Server:
    """The server; ``close`` ends it, and its objects are gone."""

    def __init__(self) -> None:
        if importlib.util.find_spec("moto") is None:
            raise ModuleNotFoundError("No module named 'moto'")
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.port = int(self._process.stdout.readline())
        self._numbers = itertools.count()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What tells clients of this server, in their environment."""
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": self.endpoint}

    def new_bucket(self) -> str:
        """The URL of a bucket that is empty."""
        name = f"bucket-{next(self._numbers)}"
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        urllib.request.urlopen(request, timeout=60).close()
        return f"s3://{name}"

    def close(self) -> None:
        self._process.kill()
        with self._process:
            pass


def _serve() -> None:
    import logging

    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    print(server.get_host_and_port()[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve()
