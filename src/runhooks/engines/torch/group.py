"""The ranks of ``torch.distributed``."""

from __future__ import annotations

import json
import logging
import os
import resource
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any, ClassVar

import torch
from torch import distributed

from runhooks.errors import UnavailableError
from runhooks.ranks import Group

_FOR_EVER = timedelta(days=20)  # torch reports a wait that runs out on stderr

_ABSENT = "\0"
_DOOR, _WELCOME = "runhooks/door", "runhooks/welcome/"
_QUEUES = "queues-"  # in a door: the store has them
_CONNECTIONS = 3  # of a rank: torch's own, and two of ours
_OTHER_FILES = 256  # that the host of the store has open besides

_log = logging.getLogger("runhooks")

# It has no public names for these.
_default_store = attrgetter("_get_default_store")(distributed.distributed_c10d)
_abort = attrgetter("_abort_process_group")(distributed.distributed_c10d)


class TorchGroup(Group):
    """Ranks that share a store; each thread has a connection of its own, as a request blocks it.

    Ranks that are started again may get the store of those before, with all its keys. So rank 0
    hangs out a *door*, with which all keys of this group begin, and nothing there is believed
    before rank 0 has answered the word of this rank.
    """

    runtime: ClassVar[str] = "torch.distributed"

    def __init__(self, store: Any, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._store = store
        self._door = ""
        self._of_thread = _OfThread()
        if rank == 0:
            make_room(_CONNECTIONS * size, os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True")

    @property
    def has_entered(self) -> bool:
        return self._door != ""

    def enter(self, inbox: str) -> None:
        word = uuid.uuid4().hex
        if self.rank == 0:
            self._open(word)
        else:
            self._door = self._find(inbox, word)

    def _open(self, word: str) -> None:
        """Hang out a door, and tell who waits at the one before."""
        before, queues = self.store_get(_DOOR), _QUEUES if self._has_queues() else ""
        door = f"runhooks/{queues}{word}/"
        self.store_set(_DOOR, door)
        if before is not None:
            for rank in range(1, self.size):
                if (said := self.store_get(f"{before}hello/{rank}")) is not None:
                    self.store_set(_WELCOME + said, door)
        self._door = door

    def _find(self, inbox: str, word: str) -> str:
        """Return the door of rank 0; at an old one, it looks once it has hung out its own."""
        found = self.store_listen(_DOOR)
        while True:
            self.store_set(f"{found}hello/{self.rank}", word)
            latest = self.store_get(_DOOR)
            if latest is None or latest == found:
                break
            found = latest
        self.store_push(found + inbox, json.dumps([self.rank, 0, "hello", word]))
        return self.store_listen(_WELCOME + word)

    def welcome(self, word: str) -> None:
        self.request(self._let_in, word)

    def _let_in(self, word: str) -> None:
        with self._connected() as store:
            store.set(_WELCOME + word, self._door)

    def _has_queues(self) -> bool:
        with self._connected() as store:
            try:
                store.queue_len(_DOOR)
            except NotImplementedError:  # a store of files has none
                return False
        return True

    def store_get(self, key: str) -> str | None:
        with self._connected() as store:
            place = self._door + key
            return bytes(store.get(place)).decode() if store.check([place]) else None

    def store_peek(self, keys: Sequence[str]) -> list[str | None]:
        with self._connected() as store:
            places = [self._door + key for key in keys]
            if len(places) > 1 and store.check(places):  # else it would wait
                return [bytes(value).decode() for value in store.multi_get(places)]
            # This sets nothing, as no key has that value, and wakes those who wait.
            found = [bytes(store.compare_set(it, _ABSENT, _ABSENT)).decode() for it in places]
            return [None if value == _ABSENT else value for value in found]

    def store_set(self, key: str, value: str) -> None:
        with self._connected() as store:
            store.set(self._door + key, value)

    def store_set_once(self, key: str, value: str) -> str:
        with self._connected() as store:
            return bytes(store.compare_set(self._door + key, "", value)).decode()

    def store_delete(self, key: str) -> None:
        with self._connected() as store:
            store.delete_key(self._door + key)

    def store_add(self, key: str) -> int:
        with self._connected() as store:
            return int(store.add(self._door + key, 1))

    def store_listen(self, key: str) -> str:
        with self._connected() as store:
            return bytes(store.get(self._door + key)).decode()

    def store_push(self, key: str, value: str) -> None:
        place = self._door + key
        if _QUEUES not in place:
            super().store_push(key, value)
            return
        with self._connected() as store:
            store.queue_push(place, value)

    def store_pop(self, key: str) -> str:
        if _QUEUES not in self._door:
            return super().store_pop(key)
        with self._connected() as store:
            return bytes(store.queue_pop(self._door + key)).decode()

    def abort(self) -> None:
        with suppress(Exception):  # a backend may not be able to
            _abort()

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """The connection of this thread; UnavailableError if it is lost."""
        try:
            if self._of_thread.store is None:
                self._of_thread.store = self._store.clone()
                self._of_thread.store.set_timeout(_FOR_EVER)
            yield self._of_thread.store
        except torch.distributed.DistError as error:
            raise UnavailableError(
                f"the store of torch.distributed is gone, its host may have ended: {error}"
            ) from error


class _OfThread(threading.local):
    store: Any = None


def make_room(connections: int, is_elsewhere: bool) -> None:
    """Let this process open ``connections`` and other files, or warn of its limit.

    ``is_elsewhere``: the launcher hosts the store, with the same limit.
    """
    needed = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if not is_elsewhere:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft < needed:
        host = "the launcher, which hosts" if is_elsewhere else "this process, which may host"
        _log.warning(
            "%s the store of the ranks, may have %d files open, and the connections of all ranks "
            "need %d: call `ulimit -n %d` before the training",
            *(host, soft, needed, needed),
        )


@lru_cache(maxsize=1)
def _group_of(world: Any) -> TorchGroup:
    return TorchGroup(_default_store(), distributed.get_rank(), distributed.get_world_size())


def group() -> TorchGroup | None:
    """Return the group of ``torch.distributed``; None if it is not initialized."""
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    return _group_of(distributed.group.WORLD)
