"""``PendingArray``: an array on its way from a device to the host."""

from __future__ import annotations

import threading
from typing import Any

import jax
import numpy as np

from runhooks.arrays.jax import is_key, on_cpu


class PendingArray:
    """An array of a device, or of several, on its way to the host."""

    def __init__(self, array: jax.Array) -> None:
        self.shape = array.shape
        self.dtype = np.dtype(array.dtype)
        self._shards = [(it.index, it.data) for it in array.addressable_shards if not it.replica_id]
        self._host: np.ndarray[Any, Any] | None = None
        self._lock = threading.Lock()
        for _, data in self._shards:
            data.copy_to_host_async()

    def read(self) -> None:
        """Wait for its values, and need the device no more."""
        with self._lock:
            if self._host is None:
                self._host, self._shards = self._gathered(), []

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        # Whoever writes it reads it once. Not to hold the result saves memory.
        with self._lock:
            host = self._gathered() if self._host is None else self._host
        return host if dtype is None else host.astype(dtype, copy=False)

    def _gathered(self) -> np.ndarray[Any, Any]:
        if len(self._shards) == 1:
            return np.asarray(self._shards[0][1])
        whole = np.empty(self.shape, self.dtype)
        for index, data in self._shards:
            whole[index] = np.asarray(data)
        return whole


def on_host(leaf: Any) -> Any:
    """Return ``leaf`` as an array of NumPy, or as a ``PendingArray`` if it is on a device."""
    if not isinstance(leaf, jax.Array):
        return np.asarray(leaf)
    data = jax.random.key_data(leaf) if is_key(leaf) else leaf
    return np.asarray(data) if on_cpu(data) and len(data.devices()) == 1 else PendingArray(data)
