"""Tensors: an array as it is, as a ``TensorProto``.

Field numbers and types are those of TensorFlow's ``tensor.proto`` and ``types.proto``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks.events import Message, wire
from runhooks.summary.kinds.real_array import as_now, read_array
from runhooks.summary.message import Value
from runhooks.summary.metadata import tensor_entry

_DTYPE, _SHAPE, _CONTENT, _STRINGS = 1, 2, 4, 8
_STRING = 7
_TYPES = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "complex64": 8,
    "int64": 9,
    "bool": 10,
    "bfloat16": 14,
    "uint16": 17,
    "complex128": 18,
    "float16": 19,
    "uint32": 22,
    "uint64": 23,
    "float8_e5m2": 24,
    "float8_e4m3fn": 25,
}


def tensor_value(tag: str, value: Any, metadata: Message | bytes = b"") -> Value:
    """Return ``value``, an array of any shape, to be written as it is.

    Its elements are numbers, bfloat16 and complex ones too, or str or bytes. ``metadata``: a
    ``SummaryMetadata``, or the bytes of one, that says which plugin of TensorBoard it is for. It
    is read when the summary is written, which raises TypeError for another dtype.
    """
    return Value(tag, (as_now(value), metadata), _encode)


def encode_tensor(tag: str, array: NDArray[Any]) -> bytes:
    """Return ``array`` as a ``TensorProto``. Raises TypeError, naming ``tag``, for its dtype."""
    rule = f"tensor summary {tag!r} must hold numbers, str or bytes"
    if array.dtype.kind in "USTO":
        return encode_texts(array, rule)
    if array.dtype == np.longdouble:
        array = array.astype(np.float64)
    if array.dtype.name not in _TYPES:
        raise TypeError(f"{rule}, got dtype {array.dtype}")
    content = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return _tensor(_TYPES[array.dtype.name], array.shape, wire.bytes_field(_CONTENT, content))


def encode_texts(array: NDArray[Any], rule: str) -> bytes:
    """Return ``array``, of str or bytes, as a ``TensorProto``.

    Raises TypeError, which says ``rule``, for an element that is neither.
    """
    return encode_strings(array.shape, (_utf8(element, rule) for element in array.flat))


def encode_strings(shape: tuple[int, ...], strings: Iterable[bytes]) -> bytes:
    """Return ``strings``, as many as ``shape`` says, as a ``TensorProto``."""
    content = b"".join(wire.bytes_field(_STRINGS, string) for string in strings)
    return _tensor(_STRING, shape, content)


def _tensor(dtype: int, shape: tuple[int, ...], content: bytes) -> bytes:
    sizes = b"".join(wire.bytes_field(2, wire.varint_field(1, size)) for size in shape)
    return b"".join((wire.varint_field(_DTYPE, dtype), wire.bytes_field(_SHAPE, sizes), content))


def _encode(tag: str, data: tuple[Any, Message | bytes]) -> bytes:
    value, metadata = data
    return tensor_entry(tag, encode_tensor(tag, read_array(value)), metadata)


def _utf8(element: object, rule: str) -> bytes:
    if isinstance(element, bytes):
        return element
    if isinstance(element, str):
        return element.encode()
    raise TypeError(f"{rule}, got {element!r}")
