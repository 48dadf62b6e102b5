"""Tensors of torch as arrays of NumPy and back, with the dtypes that NumPy has from ml_dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from runhooks.engines.host_copy import copied
from runhooks.engines.packed import dtype_named
from runhooks.summary.kinds.histogram import BUCKETS, HistogramCounts, histogram_counts

Array = np.ndarray[Any, Any]

#: By the names of dtypes of which NumPy knows nothing: integers of the same size, to pass by.
_BITS = {1: (torch.uint8, np.uint8), 2: (torch.int16, np.int16)}
_FLOAT32_MAX = torch.finfo(torch.float32).max


def numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """NumPy's dtype of the same name, or that of ml_dtypes.

    Raises TypeError if there is none, ImportError if it would be one of ml_dtypes, which is not
    installed.
    """
    return dtype_named(_name(dtype))


def form(tensor: torch.Tensor) -> str:
    """The dtype and shape of ``tensor``, for messages: ``float32[2, 3]``."""
    return f"{_name(tensor.dtype)}{list(tensor.shape)}"


def to_numpy(tensor: torch.Tensor) -> Array:
    """``tensor``, which is on the CPU, as an array of its dtype; it shares the memory if it can."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    dtype = numpy_dtype(plain.dtype)
    if dtype.kind != "V" and dtype.isbuiltin == 1:
        return plain.numpy()
    bits, _ = _BITS[plain.element_size()]
    return plain.contiguous().view(bits).numpy().view(dtype)


def from_numpy(array: Array, dtype: torch.dtype | None = None) -> torch.Tensor:
    """``array`` as a tensor on the CPU, a copy; ``dtype``: of the same name, None: find it.

    Raises TypeError for a dtype that torch has not.
    """
    if dtype is None:
        dtype = getattr(torch, array.dtype.name, None)
        if not isinstance(dtype, torch.dtype):
            raise TypeError(f"torch has no tensors of dtype {array.dtype}")
    native = np.array(array, array.dtype.newbyteorder("="), order="C")
    if native.dtype.kind != "V" and native.dtype.isbuiltin == 1:
        return torch.from_numpy(native)
    _, bits = _BITS[native.itemsize]
    return torch.from_numpy(native.reshape(-1).view(bits)).view(dtype).reshape(array.shape)


def to_host(tensors: Sequence[torch.Tensor], into: Sequence[Array | None] | None) -> list[Array]:
    """As ``Engine.to_host``."""
    host = [t.detach().to("cpu", non_blocking=True) for t in tensors]
    synchronize(tensors)
    if into is None:
        return [to_numpy(tensor) for tensor in host]
    return [
        copied(to_numpy(tensor), place) if tensor.device == host[i].device else to_numpy(host[i])
        for i, (tensor, place) in enumerate(zip(tensors, into, strict=True))
    ]


def synchronize(tensors: Sequence[Any]) -> None:
    """Wait for all devices that ``tensors`` are on."""
    devices = {t.device for t in tensors if isinstance(t, torch.Tensor)}
    for device in devices:
        if device.type not in ("cpu", "meta"):
            torch.get_device_module(device).synchronize(device)


def stored(tensor: torch.Tensor) -> torch.Tensor:
    """The values that ``tensor`` holds: all of them, or those that a sparse one has."""
    return tensor.detach().coalesce().values() if tensor.is_sparse else tensor.detach()


def cloned(leaf: Any) -> Any:
    """A detached copy of ``leaf`` if it is a tensor, else itself."""
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def count(values: torch.Tensor) -> HistogramCounts:
    """``values``, or those a sparse tensor has, counted on their device without waiting for it."""
    flat = stored(values).reshape(-1)
    if flat.dtype in (torch.bfloat16, torch.float16) or flat.element_size() < 2:
        flat = flat.float()
    if flat.device.type == "cpu":
        return histogram_counts(flat.numpy())
    wide = flat.float() if flat.device.type == "mps" else flat.double()
    finite = wide.isfinite()
    narrow = flat.float()
    if flat.dtype == torch.float64:
        narrow = torch.where(finite, narrow.clamp(-_FLOAT32_MAX, _FLOAT32_MAX), narrow)
    buckets = (narrow.view(torch.int32) >> 16).long() & 0xFFFF
    # Not bincount: it waits for the device, to know how long its result is.
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


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
