"""``TorchGroup``: the ranks of ``torch.distributed``."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any, ClassVar

import torch
from torch import distributed

from runhooks import clock
from runhooks.errors import UnavailableError
from runhooks.ranks import Group

# A wait that runs out is reported by torch on stderr: this one does not.
_FOR_EVER = timedelta(days=20)
_LOOK_AGAIN_SECS = 0.005

# It has no public names for these.
_default_store = attrgetter("_get_default_store")(distributed.distributed_c10d)
_abort = attrgetter("_abort_process_group")(distributed.distributed_c10d)


class TorchGroup(Group):
    """The default process group; its store is used through connections of its own.

    A request blocks its connection until it is answered: the thread that makes the requests and the
    one that listens have one each, so that neither holds up the other, nor torch itself. To connect
    takes time, as torch asks the name server for the address on both sides, so no thread connects
    twice.
    """

    runtime: ClassVar[str] = "torch.distributed"

    def __init__(self) -> None:
        super().__init__(distributed.get_rank(), distributed.get_world_size())
        self._store = _default_store()
        self._prefix = ""
        self._of_thread = _OfThread()
        self._meeting = threading.Lock()
        self._has_met = False

    def gather(self, name: str, value: str, timeout_secs: float | None = None) -> list[str]:
        with self._meeting:
            if not self._has_met:
                self._meet(name, self.barrier_secs if timeout_secs is None else timeout_secs)
                self._has_met = True
        return super().gather(name, value, timeout_secs)

    def _meet(self, name: str, secs: float) -> None:
        """Agree on a prefix of all keys that is new.

        When ranks are started again their launcher may give them the store of those before, with
        all keys in it. So nothing there is believed that does not answer what this rank has said.
        """
        own, deadline, others = uuid.uuid4().hex, clock.monotonic() + secs, range(1, self.size)
        prefix = own if self.rank == 0 else ""
        missing = list(others) if self.rank == 0 else [0]
        self.request(self.store_set, f"runhooks/hello/{self.rank}", own)
        while missing:
            if self.rank == 0:
                said = [self.request(self.store_get, f"runhooks/hello/{rank}") for rank in others]
                self.request(self.store_set, "runhooks/prefix", json.dumps([prefix, said]))
                missing = [
                    it for it in missing if not self.request(self.store_get, f"{prefix}/heard/{it}")
                ]
            elif found := self.request(self.store_get, "runhooks/prefix"):
                prefix, said = json.loads(found)
                if said[self.rank - 1] == own:
                    self.request(self.store_set, f"{prefix}/heard/{self.rank}", own)
                    missing = []
            if missing and clock.monotonic() >= deadline:
                raise self.too_late(name, missing, secs)
            time.sleep(_LOOK_AGAIN_SECS if missing else 0)
        self._prefix = f"{prefix}/"

    def store_get(self, key: str) -> str | None:
        with _naming_loss():
            store, key = self._connection(), self._prefix + key
            return bytes(store.get(key)).decode() if store.check([key]) else None

    def store_set(self, key: str, value: str) -> None:
        with _naming_loss():
            self._connection().set(self._prefix + key, value)

    def store_set_once(self, key: str, value: str) -> str:
        with _naming_loss():
            return bytes(self._connection().compare_set(self._prefix + key, "", value)).decode()

    def store_delete(self, key: str) -> None:
        with _naming_loss():
            self._connection().delete_key(self._prefix + key)

    def store_listen(self, key: str) -> str:
        with _naming_loss():
            store, key = self._connection(), self._prefix + key
            store.wait([key], _FOR_EVER)
            return bytes(store.get(key)).decode()

    def abort(self) -> None:
        with suppress(Exception):  # a backend may not be able to
            _abort()

    def _connection(self) -> Any:
        if self._of_thread.store is None:
            self._of_thread.store = self._store.clone()
        return self._of_thread.store


class _OfThread(threading.local):
    store: Any = None


@contextmanager
def _naming_loss() -> Iterator[None]:
    try:
        yield
    except torch.distributed.DistError as error:
        raise UnavailableError(
            f"the store of torch.distributed cannot be reached any more, its host may have ended: "
            f"{error}"
        ) from error


@lru_cache(maxsize=1)
def _group_of(world: Any) -> TorchGroup:
    return TorchGroup()


def group() -> TorchGroup | None:
    """Return the group of ``torch.distributed``; None if it is not initialized."""
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    return _group_of(distributed.group.WORLD)
