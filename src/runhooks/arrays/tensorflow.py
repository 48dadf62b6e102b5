"""The adapter of TensorFlow's eager tensors and variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from runhooks.arrays.array_library import ArrayLibrary, Packed
from runhooks.arrays.shards import Array


class TensorFlowArrays(ArrayLibrary):
    name = "tensorflow"

    def owns(self, kind: type) -> bool:
        is_its_own = any(base.__module__.startswith("tensorflow") for base in kind.__mro__)
        # Asked of no other: something else may be in TensorFlow's place.
        return is_its_own and issubclass(kind, tf.Tensor | tf.Variable)

    def host_form(self, array: Any) -> tuple[tuple[int, ...], Any]:
        return tuple(array.shape), np.dtype(array.dtype.as_numpy_dtype)

    def from_numpy(self, array: Array, like: Any = None) -> Any:
        with tf.device(None if like is None else like.device):
            return tf.constant(array)

    def snapshot(self, array: Any) -> Any:
        return array.read_value() if isinstance(array, tf.Variable) else array

    def pack(self, array: Any) -> Packed | None:
        return None


ARRAYS = TensorFlowArrays()
