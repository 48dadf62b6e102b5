"""``TorchGroup``: the ranks of ``torch.distributed``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from operator import attrgetter
from typing import Any, ClassVar

import torch
from torch import distributed

from runhooks.contexts import contextmanager
from runhooks.errors import UnavailableError
from runhooks.ranks import Group

# A wait that runs out is reported by torch on stderr: this one does not.
_FOR_EVER = timedelta(days=20)

# PyTorch has no public name for either.
_default_store = attrgetter("_get_default_store")(distributed.distributed_c10d)
_abort = attrgetter("_abort_process_group")(distributed.distributed_c10d)


class TorchGroup(Group):
    """The default process group; its store is used through connections of its own.

    A request blocks its connection until it is answered: each thread has one, so that no wait holds
    up another, nor the requests of torch itself.
    """

    runtime: ClassVar[str] = "torch.distributed"

    def __init__(self) -> None:
        super().__init__(distributed.get_rank(), distributed.get_world_size())
        self._store = _default_store()
        self._of_thread = threading.local()

    def store_get(self, key: str) -> str | None:
        with _naming_loss():
            store = self._connection()
            return bytes(store.get(key)).decode() if store.check([key]) else None

    def store_set(self, key: str, value: str) -> None:
        with _naming_loss():
            self._connection().set(key, value)

    def store_set_once(self, key: str, value: str) -> str:
        with _naming_loss():
            return bytes(self._connection().compare_set(key, "", value)).decode()

    def store_delete(self, key: str) -> None:
        with _naming_loss():
            self._connection().delete_key(key)

    def store_listen(self, key: str) -> str:
        with _naming_loss():
            store = self._connection()
            store.wait([key], _FOR_EVER)
            return bytes(store.get(key)).decode()

    def abort(self) -> None:
        with suppress(Exception):  # a backend may not be able to
            _abort()

    def _connection(self) -> Any:
        if not hasattr(self._of_thread, "store"):
            self._of_thread.store = self._store.clone()
        return self._of_thread.store


@contextmanager
def _naming_loss() -> Iterator[None]:
    try:
        yield
    except torch.distributed.DistError as error:
        raise UnavailableError(
            f"the store of torch.distributed cannot be reached any more, its host may have ended: "
            f"{error}"
        ) from error


_groups: dict[Any, TorchGroup] = {}


def group() -> TorchGroup | None:
    """Return the group of ``torch.distributed``; None if it is not initialised."""
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    world = distributed.group.WORLD
    if world not in _groups:  # else another was destroyed
        _groups.clear()
        _groups[world] = TorchGroup()
    return _groups[world]
