"""``Claim``: which process saves checkpoints in a directory of a store.

A store has no locks that end with the process that holds them. So the process that began last has
the directory: it leaves an object there, numbered, and one that finds a higher number than its own
when it is about to complete a checkpoint stops. A process that was killed is in nobody's way.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from contextlib import suppress

from runhooks.checkpoint.reading import printable
from runhooks.stores import RetryPolicy, Store, hidden, joined, open_store

_log = logging.getLogger("runhooks")

_FOLDER = ".chief"
_CLAIM = re.compile(r"[0-9]{12}-[0-9a-f]{16}")
_RELEASING = RetryPolicy(secs=5)


class Claim:
    """The claim of this process to the directory ``url``; ``take`` makes it.

    Attributes:
        users: How many in this process rely on it.
    """

    def __init__(self, url: str) -> None:
        self.users = 0
        self._url = url
        self._pid = os.getpid()
        self._store = open_store(url)
        self._name = f"{1:012d}-{os.urandom(8).hex()}"

    def is_held(self) -> bool:
        """Return whether this process has made it, and not a parent that has forked it."""
        return self._pid == os.getpid()

    def take(self) -> None:
        """Take the directory over from whoever had it. Raises OSError."""
        earlier = _names(self._store)
        if earlier:
            number = int(earlier[-1].partition("-")[0]) + 1
            self._name = f"{number:012d}-{os.urandom(8).hex()}"
            _log.info("taking %s over from %s", printable(self._url), self._owner(earlier[-1]))
        owner = f"process {os.getpid()} on {socket.gethostname()}"
        self._store.put(f"{_FOLDER}/{self._name}", owner.encode())
        self._store.delete(f"{_FOLDER}/{name}" for name in earlier)

    def check(self) -> None:
        """Raise RuntimeError if another process has taken the directory over."""
        names = _names(self._store)
        if self._name in names[-1:]:
            return
        owner = self._owner(names[-1]) if names else "another process, which has ended,"
        raise RuntimeError(
            f"{owner} has begun to save checkpoints in {self._url!r} after this one, which "
            "therefore saves no more there: let one process at a time save in a directory"
        )

    def release(self) -> None:
        """Give it back, unless the store cannot be reached: nobody has to wait for that."""
        with suppress(OSError):
            self._store.with_retry(_RELEASING).delete([f"{_FOLDER}/{self._name}"])

    def _owner(self, name: str) -> str:
        try:
            return printable(self._store.read(f"{_FOLDER}/{name}").decode(errors="replace"))
        except OSError:
            return "another process"


_claims: dict[str, Claim] = {}  # of this process, by the URL of the directory


def claim(url: str) -> Claim:
    """Return the claim of this process to the directory ``url``, made now if there is none.

    Raises:
        OSError: The store cannot be reached.
    """
    url = hidden(joined(url))
    held = _claims.get(url)
    if held is None or not held.is_held():
        held = Claim(url)
        held.take()
        _claims[url] = held
    held.users += 1
    return held


def release(held: Claim) -> None:
    """Give a claim back when the last of its users does."""
    held.users -= 1
    if not held.users and held.is_held():
        for url in [url for url, it in _claims.items() if it is held]:
            del _claims[url]
        held.release()


def check_claim(directory: object) -> None:
    """Raise RuntimeError if this process had claimed ``directory`` and lost it since."""
    held = _claims.get(hidden(joined(str(directory))))
    if held is not None and held.is_held():
        held.check()


def _names(store: Store) -> list[str]:
    names = (it.key.rpartition("/")[2] for it in store.objects(_FOLDER))
    return sorted(filter(_CLAIM.fullmatch, names))
