"""Arrays as a safetensors file, laid out as https://huggingface.co/docs/safetensors says.

The file is written from the memory of the arrays, one after the other, and read into memory that
the arrays share: neither saving nor reading needs a second copy of a model, and an error of the
disk stays an ``OSError``. An array whose dtype the format lacks, such as complex128, is stored as
its bytes: uint8, with one more dimension. Its dtype then stands in the manifest alone.
"""

from __future__ import annotations

import errno
import json
import math
import re
import struct
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from runhooks.arrays.array_library import dtype_named
from runhooks.checkpoint.manifest import MANIFEST, ArraySpec, FileDigest, is_place, is_shape
from runhooks.checkpoint.reading import opened, printable
from runhooks.contexts import contextmanager
from runhooks.errors import DataLossError, NotFoundError
from runhooks.stores.path import AnyPath, StorePath

#: The names of dtypes in NumPy by their names in the format.
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
_LENGTH = struct.Struct("<Q")
#: How many bytes at the start of a file say how long its header is.
LENGTH_BYTES = _LENGTH.size

_PIECE_BYTES = 4 << 20
_MOST_HEADER_BYTES = 100 << 20

#: What the format's little-endian items are not, as ``dtype.str`` begins.
_FOREIGN_ORDER = ">"

#: Where memory must begin for JAX on a CPU to use it as it is.
_ALIGNMENT = 64
_LEAST_BYTES_TO_ALIGN = 1 << 16


def check(arrays: Mapping[str, Any]) -> None:
    """Raise TypeError for a dtype, ValueError for a name, that the format cannot hold."""
    for name, array in arrays.items():
        if name == "__metadata__" or not is_unicode(name):
            raise ValueError(f"a checkpoint cannot hold an array named {name!r}: rename it")
        if _name_of(array.dtype) not in _CODES and not _is_plain(array.dtype):
            raise TypeError(
                f"{name!r} has dtype {array.dtype}, which a checkpoint cannot hold: "
                "make it an array of numbers, bools or times"
            )


def encode(arrays: Mapping[str, NDArray[Any]]) -> Iterator[bytes | NDArray[np.uint8]]:
    """Yield the bytes of the file, piece by piece; ``check`` the arrays first."""
    ordered = in_order_of_writing(arrays)
    header, _ = layout({name: spec_of(it) for name, it in ordered})
    yield header
    for _, array in ordered:
        yield as_bytes(np.asarray(array))  # some are read when they are written


def spec_of(array: Any) -> ArraySpec:
    """Return the dtype and the shape of ``array``."""
    return ArraySpec(_name_of(array.dtype), array.shape)


def layout(
    specs: Mapping[str, ArraySpec], metadata: Mapping[str, str] | None = None
) -> tuple[bytes, dict[str, int]]:
    """Return the header of a file of arrays, in their order, and where after it each begins.

    Args:
        specs: Their dtypes and shapes by name.
        metadata: Strings by name, which the header is to have as well.
    """
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    offsets: dict[str, int] = {}
    end = 0
    for name, (dtype, shape) in specs.items():
        code = _CODES.get(dtype)
        offsets[name], end = end, end + Entry(dtype, shape, end).nbytes
        header[name] = {
            "dtype": code or "U8",
            "shape": shape if code else (*shape, item_bytes(dtype)),
            "data_offsets": (offsets[name], end),
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return _LENGTH.pack(len(text)) + text, offsets


def as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of ``array`` as they stand in a file; shares its memory if it can."""
    if array.flags.c_contiguous and array.dtype.str[0] != _FOREIGN_ORDER:
        return array.reshape(-1).view(np.uint8)
    little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(little_endian).reshape(-1).view(np.uint8)


def foreign_layout(specs: Mapping[str, ArraySpec]) -> tuple[bytes, dict[str, int]]:
    """As ``layout``, for a file that other programs read: in any order.

    Raises:
        TypeError: An array has a dtype that the format itself lacks.
    """
    for name, spec in specs.items():
        if spec.dtype not in _CODES:
            raise TypeError(f"{name!r} is {spec.dtype}, which .safetensors cannot hold")
    # Its arrays must not be out of line with their items. And some programs refuse a file that does
    # not say for whom it was written, which makes no difference otherwise.
    ordered = sorted(specs, key=lambda name: (-item_bytes(specs[name].dtype), name))
    return layout({name: specs[name] for name in ordered}, {"format": "pt"})


def in_order_of_writing(arrays: Mapping[str, NDArray[Any]]) -> list[tuple[str, NDArray[Any]]]:
    """Return the arrays by name in the order in which ``encode`` writes them."""
    # Widest items first: then each array starts at a multiple of its item size.
    return sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))


def decode(data: bytes, specs: Mapping[str, ArraySpec] | None = None) -> dict[str, NDArray[Any]]:
    """Return the arrays in the bytes of a file; they share its memory and are read-only.

    Args:
        data: The content of the file.
        specs: The arrays that must be in it. None: any.

    Raises:
        ValueError: The bytes are not such a file, or it holds other arrays.
        ImportError: An array has a dtype of ml_dtypes, which is not installed.
    """
    end = header_end(data[:LENGTH_BYTES])
    return {
        name: np.ndarray(it.shape, dtype_named(it.dtype), data, end + it.start)
        for name, it in read_header(data[:end], len(data), specs).items()
    }


class Entry(NamedTuple):
    """An array in a file. ``start``: of its bytes, counted from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def nbytes(self) -> int:
        """How many bytes it takes."""
        return math.prod(self.shape) * item_bytes(self.dtype)


def header_end(data: bytes) -> int:
    """Return how long the header of a file is that begins with ``data``, 8 bytes."""
    if len(data) != LENGTH_BYTES:
        raise ValueError("it is cut short")
    return LENGTH_BYTES + int(_LENGTH.unpack(data)[0])


def header_of(file: BinaryIO, size: int) -> bytes:
    """Read the header of an open file of ``size`` bytes, from its start."""
    start = file.read(LENGTH_BYTES)
    end = min(header_end(start), size)
    if end > _MOST_HEADER_BYTES:
        raise ValueError(f"its header has {end} bytes, the most is {_MOST_HEADER_BYTES}")
    return start + file.read(end - LENGTH_BYTES)


def read_array(file: BinaryIO, entry: Entry, crc: int = 0) -> tuple[NDArray[Any], int]:
    """Read an array from where an open file is; return it and ``crc``, its bytes included."""
    data = _memory(entry.nbytes)
    array = data.view(dtype_named(entry.dtype)).reshape(entry.shape)
    for start in range(0, len(data), _PIECE_BYTES):
        piece = data[start : start + _PIECE_BYTES]
        if file.readinto(piece) != len(piece):  # type: ignore[attr-defined] # of any binary file
            raise ValueError("it is cut short")
        crc = google_crc32c.extend(crc, piece)
    return array, crc


def _memory(size: int) -> NDArray[np.uint8]:
    if size < _LEAST_BYTES_TO_ALIGN:
        return np.empty(size, np.uint8)
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size]


def skip(file: BinaryIO, size: int, crc: int) -> int:
    """Read ``size`` bytes, or as many as there are; return ``crc``, these bytes included."""
    while size and (piece := file.read(min(size, _PIECE_BYTES))):
        crc = google_crc32c.extend(crc, piece)
        size -= len(piece)
    return crc


def read_header(
    header: bytes, size: int, specs: Mapping[str, ArraySpec] | None = None
) -> dict[str, Entry]:
    """Return the arrays that ``header`` lists for a file of ``size`` bytes, as they lie in it.

    Raises as ``decode`` does.
    """
    try:
        listed = json.loads(header[LENGTH_BYTES:])
        if not isinstance(listed, dict):
            raise ValueError("it is not a mapping")
        listed.pop("__metadata__", None)
        spans = {name: _span(it) for name, it in listed.items()}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its header cannot be read: {error}") from None
    end = 0
    ordered = sorted(spans.items(), key=lambda it: (it[1][0].start, it[1][1]))
    for _, (entry, stop) in ordered:
        if entry.start != end:
            raise ValueError("its arrays overlap or leave a gap")
        end = stop
    if len(header) + end != size:
        raise ValueError(f"it has {size} bytes, its header says {len(header) + end}")
    entries = {name: entry for name, (entry, _) in ordered}
    return entries if specs is None else _as_stated(entries, specs)


def is_unicode(text: str) -> bool:
    """Return whether ``text`` can be encoded: whether it has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _span(content: Any) -> tuple[Entry, int]:
    """The array that an entry of a header describes, and where it ends."""
    try:
        code, shape = content["dtype"], content["shape"]
        start, stop = content["data_offsets"]
        dtype = _DTYPES.get(code)
    except (KeyError, TypeError, ValueError):
        raise ValueError("an entry makes no sense") from None
    if dtype is None:
        raise ValueError(f"it has an array of {code!r}, a dtype that runhooks does not know")
    if not is_shape(shape) or not is_place([start, stop]):
        raise ValueError("an entry has a shape or offsets that make no sense")
    if stop - start != math.prod(shape) * item_bytes(dtype):
        raise ValueError("the size of an array does not match its shape")
    return Entry(dtype, tuple(shape), start), stop


def _as_stated(entries: Mapping[str, Entry], specs: Mapping[str, ArraySpec]) -> dict[str, Entry]:
    if differing := sorted(entries.keys() ^ specs.keys()):
        raise ValueError(f"it or its description lacks {differing[0]!r}")
    stated = {}
    for name, entry in entries.items():
        dtype, shape = specs[name]
        stored = (dtype, shape) if dtype in _CODES else ("uint8", (*shape, item_bytes(dtype)))
        if (entry.dtype, entry.shape) != stored:
            raise ValueError(f"{name!r} is not {dtype}{list(shape)}, as is stated")
        stated[name] = Entry(dtype, shape, entry.start)
    return stated


@lru_cache(256)
def item_bytes(name: str) -> int:
    """Return the size of an item of the dtype ``name``. Raises ValueError for no such dtype."""
    if name == "bool":
        return 1
    if name in _CODES:  # without ml_dtypes, which may not be installed
        return int(re.findall(r"\d+", name)[0]) // 8
    try:
        dtype = dtype_named(name)
    except TypeError:
        dtype = None
    if dtype is None or not _is_plain(dtype):
        raise ValueError(f"it has an array of {name!r}, which is not a dtype of a checkpoint")
    return dtype.itemsize


@lru_cache(256)
def _name_of(dtype: np.dtype[Any]) -> str:
    return dtype.name  # which NumPy puts together each time


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether an array of ``dtype`` is its bytes, and ``dtype`` is known by its name."""
    if dtype.hasobject or issubclass(dtype.type, np.flexible):
        return False
    try:
        return dtype_named(dtype.name) == dtype.newbyteorder("=")
    except (TypeError, ImportError):
        return False


#: Errors of this process. To go on from an older checkpoint because of them would lose steps.
NOT_OF_THE_FILE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def read_file(path: AnyPath, name: str, expected: FileDigest) -> bytes:
    """Return the content of the file ``name`` of the checkpoint ``path``.

    Raises:
        NotFoundError: There is no such checkpoint.
        DataLossError: The file is missing, damaged, or cannot be read.
    """
    with naming(path, name):
        data = _content(path / name, expected)
        check_sum(google_crc32c.value(data), expected.crc32c)
        return data


def _content(path: AnyPath, expected: FileDigest) -> bytes:
    if isinstance(path, StorePath):
        data = path.read_bytes()
        check_size(len(data), expected)
        return data
    with opened(path) as (file, size):
        check_size(size, expected)
        return file.read(size)


def _is_there(path: AnyPath) -> bool:
    """Whether there is a checkpoint, if a damaged one."""
    return (path / MANIFEST).is_file() if isinstance(path, StorePath) else path.is_dir()


def check_arrays(
    path: AnyPath, name: str, expected: FileDigest, specs: Mapping[str, ArraySpec] | None = None
) -> Mapping[str, Entry]:
    """Check a file of arrays piece by piece; return what it holds.

    Raises as ``read_file`` does.
    """
    with naming(path, name), opened(path / name) as (file, size):
        check_size(size, expected)
        header = header_of(file, size)
        crc = skip(file, size - len(header), google_crc32c.value(header))
        check_sum(crc, expected.crc32c)
        return read_header(header, size, specs)


def check_size(size: int, expected: FileDigest) -> None:
    """Raise ValueError unless a file has the size that it should have."""
    if size != expected.size:
        raise ValueError(f"it has {size} bytes and should have {expected.size}")


def check_sum(crc: int, expected: int) -> None:
    """Raise ValueError unless a checksum is the one that was recorded."""
    if crc != expected:
        raise ValueError("its checksum does not match its content")


@contextmanager
def naming(path: AnyPath, name: str) -> Iterator[None]:
    """Turn what is wrong with the file ``name`` of a checkpoint into an error that says so."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        if _is_there(path):
            raise damaged(path, f"{name} is missing") from None
        raise NotFoundError(f"there is no checkpoint {printable(path)}", path=str(path)) from None
    except OSError as error:
        # What a store holds is not damaged because the store cannot be reached.
        if error.errno in NOT_OF_THE_FILE or isinstance(path, StorePath):
            raise
        raise damaged(path, f"{name} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise damaged(path, f"{name}: {error}") from error


def damaged(path: AnyPath, what: str) -> DataLossError:
    """Return the error that says what is wrong with the checkpoint ``path``."""
    return DataLossError(f"checkpoint {printable(path)} is damaged: {what}", path=str(path))
