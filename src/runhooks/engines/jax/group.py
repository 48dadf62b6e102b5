"""``JaxGroup``: the processes of ``jax.distributed``, whose client has a private name alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, ClassVar

import jax
from jax._src import distributed

from runhooks.errors import UnavailableError
from runhooks.ranks import Group

_LISTEN_MS = 24 * 3600 * 1000


class JaxGroup(Group):
    runtime: ClassVar[str] = "jax.distributed"
    runs_one_program: ClassVar[bool] = True

    def __init__(self, client: Any) -> None:
        state = distributed.global_state
        super().__init__(state.process_id, state.num_processes)
        self._client = client

    def store_get(self, key: str) -> str | None:
        with _naming_loss():
            try:
                return str(self._client.key_value_try_get(key))
            except jax.errors.JaxRuntimeError as error:
                if not _is(error, "NOT_FOUND"):
                    raise
                return None

    def store_set(self, key: str, value: str) -> None:
        with _naming_loss():
            self._client.key_value_set(key, value, allow_overwrite=True)

    def store_set_once(self, key: str, value: str) -> str:
        with _naming_loss():
            try:
                self._client.key_value_set(key, value)
            except jax.errors.JaxRuntimeError as error:
                if not _is(error, "ALREADY_EXISTS"):
                    raise
                return str(self._client.key_value_try_get(key))
            return value

    def store_delete(self, key: str) -> None:
        with _naming_loss():
            self._client.key_value_delete(key)

    def store_add(self, key: str) -> int:
        with _naming_loss():
            return int(self._client.key_value_increment(key, 1))

    def store_listen(self, key: str) -> str:
        with _naming_loss():
            while True:
                try:
                    return str(self._client.blocking_key_value_get(key, _LISTEN_MS))
                except jax.errors.JaxRuntimeError as error:
                    if not _is(error, "DEADLINE_EXCEEDED"):
                        raise


def _is(error: Exception, code: str) -> bool:
    return str(error).startswith(code)


@contextmanager
def _naming_loss() -> Iterator[None]:
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        raise UnavailableError(
            f"the coordination service of jax.distributed cannot be reached any more, its host "
            f"may have ended: {error}"
        ) from error


_group_of = lru_cache(maxsize=1)(JaxGroup)  # another one once it is initialized anew


def group() -> JaxGroup | None:
    """Return the group of ``jax.distributed``; None if it is not initialized."""
    client = distributed.global_state.client
    return None if client is None else _group_of(client)
