"""The adapter of PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from runhooks.arrays.array_library import (
    ArrayLibrary,
    GeneratorAccess,
    Packed,
    copied,
    dtype_named,
)
from runhooks.arrays.histogram import BUCKETS, HistogramCounts, histogram_counts
from runhooks.arrays.shards import Array, ArraySource, Shard, ShardedArray, read_block
from runhooks.errors import cause

# By size in bytes: integers for dtypes that NumPy lacks.
_BITS = {1: (torch.uint8, np.uint8), 2: (torch.int16, np.int16)}
PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_FLOAT32_MAX = torch.finfo(torch.float32).max


class TorchArrays(ArrayLibrary):
    name = "torch"

    def owns(self, kind: type) -> bool:
        return issubclass(kind, torch.Tensor)

    def to_numpy(self, array: Any) -> Array:
        """Dense; float32 if NumPy and ml_dtypes lack the dtype."""
        self.check_readable(array)
        found = array.detach()
        if found.is_quantized:
            found = found.dequantize()
        host = (found if found.layout == torch.strided else found.to_dense()).cpu()
        try:
            return _exact(host)
        except (TypeError, ImportError):
            return _exact(host.float())

    def from_numpy(self, array: Array, like: Any = None) -> Any:
        return from_numpy(array) if like is None else from_numpy(array, like.dtype).to(like.device)

    def place(self, array: Array, like: Any) -> Any:
        if is_distributed(like):
            return self.from_source(array, like)
        tensor = from_numpy(array, like.dtype, copy=False)
        return tensor if like.is_meta else tensor.to(like.device)

    def read_file(self, path: Path) -> Any:
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=_is_zip(path))
        except (OSError, MemoryError):
            raise
        except Exception as error:
            raise ValueError(
                f"torch.load(weights_only=True) refuses it: {cause(error).splitlines()[0]}"
            ) from error

    def snapshot(self, array: Any) -> Any:
        return array.detach().clone()

    def host_form(self, array: Any) -> tuple[tuple[int, ...], Any]:
        if array.is_nested:
            raise TypeError("a nested tensor is no array: give those in it, which unbind() returns")
        try:
            return tuple(array.shape), numpy_dtype(array.dtype)
        except (TypeError, ImportError):
            return tuple(array.shape), np.dtype(np.float32)

    def to_host(
        self, arrays: Sequence[Any], into: Sequence[Array | None] | None = None
    ) -> list[Array]:
        host = [
            array.detach().to("cpu", non_blocking=True) if isinstance(array, torch.Tensor) else None
            for array in arrays
        ]
        synchronize(arrays)

        def array_of(array: Any, copy: Any, place: Array | None) -> Array:
            if copy is None:
                return np.asarray(array)
            if copy.device != array.device:
                return _exact(copy)
            own = _exact(copy, _read_only)
            return own if into is None else copied(own, place)

        return list(map(array_of, arrays, host, into or [None] * len(arrays)))

    def sharded(self, array: Any) -> ShardedArray | None:
        if not is_distributed(array):
            return None
        found = _block(array)
        shape, dtype = self.host_form(array)
        placed = zip(array.device_mesh.get_coordinate() or (), array.placements, strict=False)
        is_first = all(at == 0 for at, placement in placed if placement.is_replicate())
        if found is None or not is_first:
            return ShardedArray(shape, dtype, ())
        return ShardedArray(shape, dtype, (Shard(found[0], array.to_local()),))

    def from_source(self, source: ArraySource | Array, like: Any) -> Any:
        if not is_distributed(like):
            return super().from_source(source, like)
        found = _block(like)
        nothing = np.empty(like.to_local().shape, source.dtype)
        host = nothing if found is None else read_block(source, *found)
        return type(like).from_local(
            from_numpy(host, like.dtype).to(like.device),
            *(like.device_mesh, like.placements),
            run_check=False,
            shape=like.shape,
            stride=like.stride(),
        )

    def check_readable(self, array: Any) -> None:
        if isinstance(array, torch.Tensor) and array.is_meta:
            raise TypeError("a tensor on the meta device has no values: give one on another device")
        if is_distributed(array):  # one process alone would wait for the others
            raise TypeError(
                f"a {type(array).__name__} is spread over several processes: give its "
                "full_tensor(), called in all of them, or its to_local(); in a graph, "
                "rh.call(lambda w: w.full_tensor(), tensor)"
            )

    def index(self, array: Any) -> Any:
        return super().index(array.clone())  # as in _read_only

    def number(self, array: Any) -> float | None:
        if type(array) not in PLAIN or not array.is_cpu:
            return None
        try:
            number = array.item()
        except RuntimeError:
            return None
        return None if isinstance(number, complex) else number

    def histogram(self, array: Any) -> Any:
        self.check_readable(array)
        return _count(array if isinstance(array, torch.Tensor) else torch.as_tensor(array))

    def sum_of_squares(self, array: Any) -> Any:
        values = stored(array)
        is_wide = values.dtype in (torch.float64, torch.complex128)
        magnitudes = values.abs().to(torch.float64 if is_wide else torch.float32)
        return whole(magnitudes.square().sum())

    def has_nan(self, array: Any) -> bool:
        values = stored(array)
        is_tiny = values.is_floating_point() and values.element_size() < 2  # float8 is not compared
        values = values.float() if is_tiny else values
        return bool((values != values).any())

    def nbytes(self, array: Any) -> int:
        try:
            return super().nbytes(array)
        except RuntimeError:
            return 0

    def generators(self) -> dict[str, torch.Generator]:
        cuda: Any = torch.cuda
        devices = cuda.default_generators if cuda.is_available() and cuda.is_initialized() else ()
        return {
            "torch": torch.default_generator,
            **{f"torch cuda:{index}": it for index, it in enumerate(devices)},
        }

    def generator_state(self, generator: Any) -> GeneratorAccess | None:
        if not isinstance(generator, torch.Generator):
            return None

        def load(state: Array) -> None:
            generator.set_state(torch.from_numpy(np.array(state)))

        return GeneratorAccess(lambda: generator.get_state().numpy(), load)

    def pack(self, array: Any) -> Packed | None:
        is_plain = type(array) is torch.Tensor and array.layout == torch.strided
        if not is_plain or array.is_quantized or array.is_meta:
            return None
        plain = array.detach().cpu().resolve_conj().resolve_neg().contiguous()
        data = _read_only(plain.reshape(-1).view(torch.uint8)).tobytes()
        return Packed(self.name, _name(array.dtype), tuple(array.shape), data)

    def unpack(self, packed: Packed) -> Any:
        dtype = _dtype_named(packed.dtype)
        if not packed.data:
            return torch.empty(packed.shape, dtype=dtype)
        return torch.frombuffer(bytearray(packed.data), dtype=dtype).reshape(packed.shape)


def is_distributed(tensor: Any) -> bool:
    return type(tensor) not in PLAIN and hasattr(tensor, "full_tensor")


def whole(tensor: Any) -> Any:
    """Return ``tensor``; of a ``DTensor`` all of it, if called in all processes."""
    return tensor.full_tensor() if is_distributed(tensor) else tensor


def _block(tensor: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the start and shape of what is here of a ``DTensor``, or None."""
    if any(it.is_partial() for it in tensor.placements):
        raise TypeError(
            f"a DTensor has parts still to be summed, {tensor.placements}: call redistribute()"
        )
    if tensor.device_mesh.get_coordinate() is None or not tensor.to_local().numel():
        return None
    # As for torch's own checkpoints; of a DTensor this is one block.
    (chunk,) = tensor.__create_chunk_list__()
    return tuple(chunk.offsets), tuple(chunk.sizes)


@functools.cache
def numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    return dtype_named(_name(dtype))


def form(tensor: torch.Tensor) -> str:
    """Return dtype and shape: ``float32[2, 3]``."""
    return f"{_name(tensor.dtype)}{list(tensor.shape)}"


def from_numpy(
    array: Array, dtype: torch.dtype | None = None, *, copy: bool = True
) -> torch.Tensor:
    """Return a tensor on the CPU; TypeError if PyTorch lacks the dtype.

    ``dtype``: that of the same name, if known. ``copy=False``: share memory where possible.
    """
    dtype = _dtype_named(array.dtype.name) if dtype is None else dtype
    order = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
    copy = copy or not array.flags.writeable
    native = (np.array if copy else np.asarray)(array, order, order="C")
    # 2: NumPy lacks the dtype. One of its own has 0 if it was pickled.
    if native.dtype.kind != "V" and native.dtype.isbuiltin != 2:
        return torch.from_numpy(native)
    _, bits = _BITS[native.itemsize]
    return torch.from_numpy(native.reshape(-1).view(bits)).view(dtype).reshape(array.shape)


def synchronize(tensors: Sequence[Any]) -> None:
    devices = {t.device for t in tensors if isinstance(t, torch.Tensor)}
    for device in devices:
        if device.type not in ("cpu", "meta"):
            torch.get_device_module(device).synchronize(device)


def stored(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` detached; of a sparse one its values."""
    return tensor.detach().coalesce().values() if tensor.is_sparse else tensor.detach()


def cloned(leaf: Any) -> Any:
    """Return a copy of a tensor, detached, or of an array of NumPy; else ``leaf``."""
    if isinstance(leaf, torch.Tensor):
        return leaf.detach().clone()
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf  # it may be a view of a tensor


def _count(values: torch.Tensor) -> HistogramCounts:
    """Count ``values`` on their device; does not wait."""
    flat = stored(values).reshape(-1)
    if flat.dtype in (torch.bfloat16, torch.float16) or flat.element_size() < 2:
        flat = flat.float()
    if flat.device.type == "cpu":
        return histogram_counts(_exact(flat, _read_only))
    wide = flat.float() if flat.device.type == "mps" else flat.double()
    finite = wide.isfinite()
    narrow = flat.float()
    if flat.dtype == torch.float64:
        narrow = torch.where(finite, narrow.clamp(-_FLOAT32_MAX, _FLOAT32_MAX), narrow)
    buckets = (narrow.view(torch.int32) >> 16).long() & 0xFFFF
    # Not bincount: it waits for the device.
    counts = torch.zeros(BUCKETS, dtype=torch.int64, device=flat.device)
    counts.index_add_(0, buckets, torch.ones_like(buckets))
    infinity = torch.full((1,), torch.inf, dtype=wide.dtype, device=flat.device)
    numbers = torch.where(finite, wide, 0)
    return HistogramCounts(
        counts,
        torch.cat([torch.where(finite, wide, torch.inf), infinity]).min(),
        torch.cat([torch.where(finite, wide, -torch.inf), -infinity]).max(),
        numbers.sum(),
        (numbers * numbers).sum(),
    )


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:  # older formats cannot be mapped
        return file.read(4) == b"PK\x03\x04"


def _exact(
    tensor: torch.Tensor, array_of: Callable[[torch.Tensor], Array] = torch.Tensor.numpy
) -> Array:
    """Return ``tensor``, which is detached and on the CPU, as an array."""
    plain = tensor.resolve_conj().resolve_neg()
    dtype = numpy_dtype(plain.dtype)
    if dtype.kind != "V" and dtype.isbuiltin != 2:
        return array_of(plain)
    bits, _ = _BITS[plain.element_size()]
    return array_of(plain.contiguous().view(bits)).view(dtype)


def _read_only(tensor: torch.Tensor) -> Array:
    """Return an array to be read at once.

    ``numpy()`` would lock the size for good, and ``zero_grad`` resizes sparse tensors.
    """
    return np.from_dlpack(_Memory(tensor))


class _Memory:
    """The memory of a tensor, which itself is slower to ask."""

    __slots__ = ("_capsule",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self._capsule = cast(Any, torch).to_dlpack(tensor)

    def __dlpack__(self, **how: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def _dtype_named(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"torch has no tensors of dtype {name}")
    return dtype


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


ARRAYS = TorchArrays()
