"""``ArrayLibrary``, the adapter of an array library, and the names of dtypes."""

from __future__ import annotations

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from runhooks.arrays.histogram import histogram_counts
from runhooks.arrays.shards import Array, ArraySource, ShardedArray, read_block


def dtype_name(dtype: np.dtype[Any]) -> str | None:
    """Return a name that ``dtype_named`` understands; None, as for records: there is none."""
    for name in (dtype.str, dtype.name):
        with suppress(TypeError, ImportError):
            if dtype_named(name) == dtype:
                return name
    return None


def dtype_named(name: str) -> np.dtype[Any]:
    """Return the dtype of NumPy or ml_dtypes; TypeError if it cannot be in a file."""
    try:
        dtype: np.dtype[Any] = np.dtype(name)
    except TypeError:
        import ml_dtypes

        if not hasattr(ml_dtypes, name):
            raise
        dtype = np.dtype(getattr(ml_dtypes, name))
    if dtype.hasobject:
        raise TypeError(f"an array of dtype {name!r} would hold Python objects, not bytes")
    return dtype


def is_same_kind(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Whether both are floats, integers or complex numbers, or the same."""
    return one == other or (_kind(one) == _kind(other) != "")


def _kind(dtype: np.dtype[Any]) -> str:
    match = re.match(r"bfloat|float|u?int|complex", dtype.name)
    return match[0].lstrip("bu") if match else ""


class Packed(NamedTuple):
    """An array as bytes.

    Attributes:
        kind: The name of its library, and after a space what that adds.
        dtype: The name of its dtype, in its library.
        shape: Its shape.
        data: Its items in C order.
    """

    kind: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def to_numpy(self) -> Array:
        """Return an array of NumPy."""
        return np.ndarray(self.shape, dtype_named(self.dtype), self.data).copy()


class Flat(NamedTuple):
    """The leaves of a tree by path, and what makes a tree of as many others."""

    leaves: list[tuple[str, Any]]
    rebuild: Callable[[Sequence[Any]], Any]


class GeneratorAccess(NamedTuple):
    get: Callable[[], Any]
    set: Callable[[Any], None]


class ArrayLibrary(ABC):
    """The adapter of one array library, for ``runhooks.arrays.register``.

    A subclass must define ``name`` and ``owns``, and ``from_numpy`` to restore arrays. The others
    work for arrays that NumPy can read through ``numpy()``, ``__array__`` or DLPack; override those
    that the library does better, as ``examples/engine_mlx.py`` does.
    """

    #: Stands in checkpoints for the library; one word.
    name: str

    @abstractmethod
    def owns(self, kind: type) -> bool:
        """Whether ``kind`` is a type of the library's arrays."""

    def to_numpy(self, array: Any) -> Array:
        """Return an array of NumPy, which may share the memory of ``array``; waits for the device.

        The dtype is the same; bfloat16 and float8 are dtypes of ml_dtypes.
        """
        if callable(getattr(array, "numpy", None)):
            array = array.numpy()
        elif hasattr(array, "__dlpack__") and not hasattr(array, "__array__"):
            return np.from_dlpack(array)
        return np.asarray(array)

    def from_numpy(self, array: Array, like: Any = None) -> Any:
        """Return a copy of ``array`` as an array of this library.

        Args:
            array: What to copy, of the shape and dtype that ``host_form`` gives ``like``.
            like: An array of this library, whose dtype and device the copy gets; None: the dtype
                of ``array``, the default device.
        """
        raise NotImplementedError(f"{type(self).__name__} has no from_numpy")

    def describes(self, kind: type) -> bool:
        """Whether ``kind``, such as ``jax.ShapeDtypeStruct``, describes arrays without values.

        ``host_form`` and ``place`` then take such a description.
        """
        return False

    def place(self, array: Array, like: Any) -> Any:
        """As ``from_numpy``, but may keep the memory of ``array``, which nothing else uses."""
        return self.from_numpy(array, like)

    def flatten(self, tree: Any) -> Flat | None:
        """Return the leaves of ``tree``, no dict, list or tuple; None if its class is not known."""
        return None

    def read_file(self, path: Path) -> Any:
        """Return what a file of the library's own format holds, arrays on the CPU; execute nothing.

        Raises:
            ValueError: It is no such file, or damaged.
        """
        raise NotImplementedError

    def snapshot(self, array: Any) -> Any:
        """Return an array that keeps the values ``array`` has now; does not wait for a device.

        It must be a copy if arrays can be written to, or their memory given to a later computation.
        It may be an array of NumPy where there is no device.
        """
        return array

    def check_readable(self, array: Any) -> None:
        """Raise TypeError for an array without values: traced, or spread over processes."""
        return

    def start_copy(self, array: Any) -> None:
        """Start to copy ``array`` to the host, if possible without waiting."""
        return

    def host_form(self, array: Any) -> tuple[tuple[int, ...], Any]:
        """Return the shape and the dtype of ``to_numpy(array)``; does not wait for a device."""
        return tuple(array.shape), np.dtype(array.dtype)

    def to_host(
        self, arrays: Sequence[Any], into: Sequence[Array | None] | None = None
    ) -> list[Array]:
        """Return ``arrays`` as ``to_numpy`` does, copied from the device in one batch.

        Args:
            arrays: Arrays of this library, or what NumPy can read.
            into: For each an array to copy into where it fits, or None: what is returned then
                shares no memory with ``arrays``.
        """
        for array in arrays:
            if self.owns(type(array)):
                self.start_copy(array)
        host = [self.to_numpy(it) if self.owns(type(it)) else np.asarray(it) for it in arrays]
        return host if into is None else list(map(copied, host, into))

    def sharded(self, array: Any) -> ShardedArray | None:
        """Return the blocks of ``array`` that this process has; None: all of it.

        Raises:
            TypeError: The blocks of all processes do not make up the array.
        """
        return None

    def from_source(self, source: ArraySource | Array, like: Any) -> Any:
        """As ``from_numpy``, but read only what this process needs."""
        return self.from_numpy(read_block(source, (0,) * len(source.shape), source.shape), like)

    def index(self, array: Any) -> Any:
        """Return ``array``, one integer, as an ``int``, or a copy if a device must be waited for.

        Raises:
            AttributeError, TypeError, ValueError, RuntimeError: It is not a single integer.
        """
        holder = array.numpy() if hasattr(array, "numpy") else array
        return operator.index(holder.item())

    def number(self, array: Any) -> Any:
        """As ``index``, for one real number; None if ``array`` is, or may be, anything else."""
        return None

    def histogram(self, array: Any) -> Any:
        """Return ``HistogramCounts``, or ``array`` if smaller; does not wait for a device."""
        return histogram_counts(self.to_numpy(array))

    def sum_of_squares(self, array: Any) -> Any:
        """Return the sum of squared magnitudes, float32 or wider; does not wait for a device."""
        flat = self.to_numpy(array).ravel()
        flat = flat.astype(np.complex128 if flat.dtype.kind == "c" else np.float64)
        return np.vdot(flat, flat).real

    def has_nan(self, array: Any) -> bool:
        """Whether an element of ``array`` is NaN, or NaT; waits for the device."""
        host = self.to_numpy(array)
        if host.dtype.kind == "O":  # an item may be an array
            return any(np.any(it) for it in np.not_equal(host, host, dtype=object).flat)
        if host.dtype.type is np.void:  # np.isnan does not take records
            return bool((host != host).any())
        return host.dtype.kind in "fcmMV" and bool(np.isnan(host).any())

    def generators(self) -> Mapping[str, Any]:
        """Return the library's global random generators, by name."""
        return {}

    def generator_state(self, generator: Any) -> GeneratorAccess | None:
        """Return how to read and set the state of a random generator of the library, else None."""
        return None

    def text(self, array: Any) -> str:
        """Return ``array`` as NumPy prints it; waits for the device."""
        return str(self.to_numpy(array))

    def nbytes(self, array: Any) -> int:
        """Return about how many bytes ``array`` takes."""
        nbytes = getattr(array, "nbytes", 0)
        return int(nbytes() if callable(nbytes) else nbytes)

    def pack(self, array: Any) -> Packed | None:
        """Return ``array`` as bytes; None if ``unpack`` could not restore it."""
        host = self.to_numpy(array)
        name = dtype_name(host.dtype)
        return None if name is None else Packed(self.name, name, host.shape, host.tobytes())

    def unpack(self, packed: Packed) -> Any:
        """Undo ``pack``, on the default device."""
        return self.from_numpy(packed.to_numpy())


def copied(array: Array, into: Array | None) -> Array:
    """Return a copy of ``array``, in the memory of ``into`` if it fits."""
    if into is None or (into.shape, into.dtype) != (array.shape, array.dtype):
        return np.copy(array)
    np.copyto(into, array)  # twice as fast as new memory
    return into
