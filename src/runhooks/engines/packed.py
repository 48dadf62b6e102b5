"""``Packed``: an array of NumPy, torch or JAX as plain bytes, and back, for states in checkpoints.

A framework is imported only for arrays of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Packed(NamedTuple):
    """An array. ``kind``: whose it is. ``data``: its items in C order, a copy."""

    kind: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes


def pack(value: Any) -> Packed | None:
    """``value`` as bytes; None if it is no array, or one that these do not bring back."""
    if type(value) is np.ndarray:
        return _pack_numpy("numpy", value)
    # Whose module was not imported is not around.
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and type(value) is torch.Tensor:
        return _pack_torch(value)
    if jax is not None and isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer):
        return _pack_jax(value)
    return None


def unpack(packed: Packed) -> Any:
    """The array as it was; one of a device on the default device (JAX) or the CPU (torch).

    Raises ImportError if what it belongs to is not installed.
    """
    return _UNPACK[packed.kind](packed)


def dtype_name(dtype: np.dtype[Any]) -> str | None:
    """What ``dtype_named`` makes ``dtype`` of; None if nothing does, as for objects and records."""
    if dtype.hasobject:
        return None
    names = (dtype.str, dtype.name)
    return next((name for name in names if _is_name_of(name, dtype)), None)


def dtype_named(name: str) -> np.dtype[Any]:
    """The dtype of that name, those of ml_dtypes among them. Raises TypeError if there is none."""
    try:
        dtype: np.dtype[Any] = np.dtype(name)
    except TypeError:
        import ml_dtypes  # the frameworks that make such arrays bring it

        if not hasattr(ml_dtypes, name):
            raise
        dtype = np.dtype(getattr(ml_dtypes, name))
    return dtype


def _is_name_of(name: str, dtype: np.dtype[Any]) -> bool:
    try:
        return dtype_named(name) == dtype
    except (TypeError, ImportError):
        return False


def _pack_numpy(kind: str, array: np.ndarray[Any, Any]) -> Packed | None:
    name = dtype_name(array.dtype)
    return None if name is None else Packed(kind, name, array.shape, array.tobytes())


def _unpack_numpy(packed: Packed) -> np.ndarray[Any, Any]:
    return np.ndarray(packed.shape, dtype_named(packed.dtype), packed.data).copy()


def _pack_torch(tensor: Any) -> Packed | None:
    import torch

    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        return None
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    data = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
    return Packed("torch", str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), data)


def _unpack_torch(packed: Packed) -> Any:
    import torch

    dtype = getattr(torch, packed.dtype)
    if not packed.data:
        return torch.empty(packed.shape, dtype=dtype)
    return torch.frombuffer(bytearray(packed.data), dtype=dtype).reshape(packed.shape)


def _pack_jax(array: Any) -> Packed | None:
    import jax

    if jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key):
        data = np.asarray(jax.random.key_data(array))
        return Packed("jax key", str(jax.random.key_impl(array)), data.shape, data.tobytes())
    return _pack_numpy("jax", np.asarray(array))


def _unpack_jax(packed: Packed) -> Any:
    import jax

    return jax.numpy.array(_unpack_numpy(packed))


def _unpack_jax_key(packed: Packed) -> Any:
    import jax

    data = _unpack_numpy(packed._replace(dtype="uint32"))
    return jax.random.wrap_key_data(jax.numpy.array(data), impl=packed.dtype)


_UNPACK: dict[str, Callable[[Packed], Any]] = {
    "numpy": _unpack_numpy,
    "torch": _unpack_torch,
    "jax": _unpack_jax,
    "jax key": _unpack_jax_key,
}
