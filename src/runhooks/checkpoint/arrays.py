"""Arrays as a safetensors file, laid out as https://huggingface.co/docs/safetensors says.

The file is written from the memory of the arrays, one after the other, so that saving needs no
second copy of a model and an error of the disk stays the ``OSError`` it is. Reading is left to
the safetensors library, which checks what it is given.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray

from runhooks.engines.packed import dtype_named

#: NumPy's name of each dtype that the format has, by the format's own.
_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
    "C64": "complex64",
}
_CODES = {name: code for code, name in _DTYPES.items()}


def check(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise TypeError for a dtype, ValueError for a name, that the format does not have."""
    for name, array in arrays.items():
        if name == "__metadata__" or not _is_unicode(name):
            raise ValueError(f"a checkpoint cannot hold an array named {name!r}: rename it")
        if array.dtype.name not in _CODES:
            raise TypeError(
                f"{name!r} has dtype {array.dtype}, which a checkpoint cannot hold: "
                f"make it one of {', '.join(_CODES)}"
            )


def encode(arrays: Mapping[str, NDArray[Any]]) -> Iterator[bytes | NDArray[np.uint8]]:
    """The bytes of the file, piece by piece; ``check`` the arrays first."""
    # Widest items first: then each array starts at a multiple of its item size.
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    header: dict[str, Any] = {}
    end = 0
    for name, array in ordered:
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": _CODES[array.dtype.name],
            "shape": array.shape,
            "data_offsets": (start, end),
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for _, array in ordered:
        little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
        yield np.ascontiguousarray(little_endian).reshape(-1).view(np.uint8)


def decode(data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays in the bytes of a file.

    Raises ValueError if they are not such a file, ImportError if NumPy needs ml_dtypes for a
    dtype in it and has it not.
    """
    try:
        found = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
    except safetensors.SafetensorError as error:
        raise ValueError(str(error)) from error
    return {
        name: np.frombuffer(it["data"], dtype_named(_DTYPES[it["dtype"]])).reshape(it["shape"])
        for name, it in found
    }


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
