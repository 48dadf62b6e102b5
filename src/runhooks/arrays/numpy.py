"""The adapter of NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from runhooks.arrays.array_library import ArrayLibrary, Packed, copied
from runhooks.arrays.shards import Array


class NumpyArrays(ArrayLibrary):
    name = "numpy"

    def owns(self, kind: type) -> bool:
        return issubclass(kind, np.ndarray | np.generic)

    def to_numpy(self, array: Any) -> Array:
        return np.asarray(array)

    def from_numpy(self, array: Array, like: Any = None) -> Any:
        return array.copy()

    def place(self, array: Array, like: Any) -> Any:
        return array if isinstance(like, np.ndarray) else array[()]

    def check_readable(self, array: Any) -> None:
        if isinstance(array, np.ma.MaskedArray):
            raise TypeError(
                "a masked array cannot be written: give array.compressed(), or array.filled(number)"
            )

    def snapshot(self, array: Any) -> Any:
        return array.copy() if _may_change(array) else array

    def number(self, array: Any) -> float | None:
        is_one = type(array) is np.ndarray and array.size == 1 and array.dtype.kind in "biuf"
        number = array.item() if is_one else None
        return None if isinstance(number, np.generic) else number

    def to_host(
        self, arrays: Sequence[Any], into: Sequence[Array | None] | None = None
    ) -> list[Array]:
        places = [None] * len(arrays) if into is None else into
        return [
            copied(array, place) if into is not None and _may_change(array) else np.asarray(array)
            for array, place in zip(arrays, places, strict=True)
        ]

    def text(self, array: Any) -> str:
        return str(array)

    def pack(self, array: Any) -> Packed | None:
        return super().pack(array) if type(array) is np.ndarray else None


def _may_change(array: Any) -> bool:
    # Read-only views, such as diagonal() returns, may be written to by others; so may records.
    while isinstance(array, np.ndarray | np.void):
        if array.flags.writeable:
            return True
        array = array.base
    return not isinstance(array, np.generic | bytes | None)


ARRAYS = NumpyArrays()
