"""Arrays as a safetensors file, laid out as https://huggingface.co/docs/safetensors says.

Those of a checkpoint have these strings in the header's ``__metadata__``:

    crc32c    the CRC-32C of all else in the header, as 8 hexadecimal digits
    dtypes    the dtypes of arrays that are stored as their bytes, as JSON, if there are any
    pieces    the CRC-32C of each 4 MiB of what follows the header, as 8 digits each
    runhooks  what the file says of itself, as JSON
    states    the states of hooks and inputs, as JSON; their arrays are in the file

An array whose dtype the format lacks, such as complex128, is stored as its bytes: uint8, with one
more dimension.
"""

from __future__ import annotations

import errno
import json
import math
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, lru_cache, reduce
from io import BufferedReader
from json.encoder import encode_basestring_ascii as quoted
from operator import itemgetter
from types import MappingProxyType
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from runhooks.arrays.array_library import dtype_named
from runhooks.checkpoint.files import Shared, mapped, opened, printable, read_into
from runhooks.checkpoint.manifest import ArraySpec, FileDigest, field, is_dtype, is_shape, is_text
from runhooks.errors import DataLossError, NotFoundError
from runhooks.stores.path import AnyPath, StorePath

# NumPy's names by those of the format.
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
_BEGIN = b'{"__metadata__":{"crc32c":"'
_FOREIGN = '{"__metadata__":{"format":"pt"}'  # some refuse files of no format

PIECE_BYTES = 4 << 20
_MOST_PIECES = 4
_MOST_HEADER_BYTES = 100_000_000  # that other programs read
_FIRST_BYTES = 64 << 10

_FOREIGN_ORDER = ">"
_ALIGNMENT = 64  # of memory that JAX on a CPU uses as it is

_SMALL_BYTES = 2 << 10
_MOST_BUFFERS = 16  # rather written one by one than joined
_SPAN_BYTES = 64 << 20
_GAP_BYTES = 64 << 10

COMMIT = "checkpoint.safetensors"  # makes a checkpoint complete
STATES = "__states__/"  # begins the names of the arrays of states

#: The dtype, shape, start and end of an array after the header. The garbage collector does not
#: visit plain tuples again and again.
Entry = tuple[str, tuple[int, ...], int, int]


def check(arrays: Mapping[str, Any]) -> None:
    """Raise TypeError for a dtype, ValueError for a name, that the format cannot hold."""
    are_unicode = is_unicode("".join(arrays))
    named: dict[np.dtype[Any], str] = {}
    for name, array in arrays.items():
        is_ours = name.startswith("__") and (name == "__metadata__" or name.startswith(STATES))
        if is_ours or not (are_unicode or is_unicode(name)):
            raise ValueError(f"a checkpoint cannot hold an array named {name!r}: rename it")
        named.setdefault(array.dtype, name)
    for dtype, name in named.items():
        if _name_of(dtype) not in _CODES and not _is_plain(dtype):
            raise TypeError(
                f"{name!r} has dtype {dtype}, which a checkpoint cannot hold: "
                "make it an array of numbers, bools or times"
            )


def spec_of(array: Any) -> ArraySpec:
    return ArraySpec(_name_of(array.dtype), array.shape)


def _specs_of(arrays: Mapping[str, Any]) -> dict[str, ArraySpec]:
    kinds: dict[tuple[Any, ...], ArraySpec] = {}
    specs = {}
    for name, array in arrays.items():
        kind = array.dtype, array.shape
        specs[name] = kinds.get(kind) or kinds.setdefault(kind, spec_of(array))
    return specs


class Encoding:
    """A file of a checkpoint to be written; ``check`` its arrays first. ``states`` is JSON.

    Raises ValueError if there are too many arrays.
    """

    def __init__(
        self, arrays: Mapping[str, Any], about: Mapping[str, Any], states: str | None = None
    ) -> None:
        specs = _specs_of(arrays)
        listed, offsets, size = _listed(specs)
        self._arrays = [arrays[name] for name in offsets]
        self._offsets = offsets
        dtypes = {name: dtype for name, (dtype, _) in specs.items() if dtype not in _CODES}
        strings = {"runhooks": json.dumps({**about, "size": size})}
        if dtypes:
            strings["dtypes"] = json.dumps(dtypes)
        if states is not None:
            strings["states"] = states
        tail = ",".join([json.dumps(strings)[1:], *listed])
        self._tail = f'",{tail}}}'.encode()
        pieces = 8 * -(-size // PIECE_BYTES)
        unpadded = len(_BEGIN) + len('00000000","pieces":"') + pieces + len(self._tail)
        self.header_bytes = -(-(_LENGTH.size + unpadded) // _ALIGNMENT) * _ALIGNMENT
        if self.header_bytes > _MOST_HEADER_BYTES:
            raise ValueError(f"{len(arrays)} arrays are too many for a checkpoint: stack some")

    def start_of(self, name: str) -> int:
        return self.header_bytes + self._offsets[name]

    def pieces(self) -> Iterator[list[Any]]:
        """Yield what follows the header in pieces, each as a few buffers."""
        parts: list[Any] = []
        room = PIECE_BYTES
        for array in self._arrays:
            array = np.asarray(array)
            # A small copy costs less than a view.
            is_small = array.nbytes <= _SMALL_BYTES and array.dtype.str[0] != _FOREIGN_ORDER
            data = array.tobytes() if is_small else as_bytes(array)
            while len(data) >= room:
                yield _few([*parts, data[:room]])
                data, parts, room = data[room:], [], PIECE_BYTES
            parts.append(data)
            room -= len(data)
        if room < PIECE_BYTES:
            yield _few(parts)

    def header(self, sums: Iterable[int]) -> tuple[bytes, int]:
        """Return the header, given the CRC-32C of each piece, and its own."""
        begin = _LENGTH.pack(self.header_bytes - _LENGTH.size) + _BEGIN
        rest = b'","pieces":"%b%b' % ("".join(map("{:08x}".format, sums)).encode(), self._tail)
        rest = rest.ljust(self.header_bytes - len(begin) - 8)
        crc = google_crc32c.extend(google_crc32c.value(begin), rest)
        return b"%b%08x%b" % (begin, crc, rest), crc


def sum_of(piece: Iterable[Any]) -> int:
    return reduce(google_crc32c.extend, piece, 0)


def _few(buffers: list[Any]) -> list[Any]:
    return buffers if len(buffers) < _MOST_BUFFERS else [b"".join(buffers)]


def foreign_header(specs: Mapping[str, ArraySpec]) -> tuple[bytes, dict[str, int]]:
    """Return the header of a file for other programs, and where in it each array begins."""
    for name, spec in specs.items():
        if name == "__metadata__" or not is_unicode(name):
            raise ValueError(f".safetensors cannot hold an array named {name!r}")
        if spec.dtype not in _CODES:
            raise TypeError(f"{name!r} is {spec.dtype}, which .safetensors cannot hold")
    listed, offsets, _ = _listed(specs)
    text = ",".join([_FOREIGN, *listed]).encode() + b"}"
    text = text.ljust(-(-len(text) // _LENGTH.size) * _LENGTH.size)
    at = _LENGTH.size + len(text)
    return _LENGTH.pack(len(text)) + text, {name: at + it for name, it in offsets.items()}


def _listed(specs: Mapping[str, ArraySpec]) -> tuple[list[str], dict[str, int], int]:
    """What a header says of arrays, where each begins after it, in that order, and the end."""
    kinds = {spec: _kind(*spec) for spec in set(specs.values())}
    kept = [(name, kinds[spec]) for name, spec in specs.items()]
    offsets, end = {}, 0
    for name, (_, size, _) in sorted(kept, key=lambda it: it[1][0]):
        offsets[name], end = end, end + size
    listed = []
    for name, (_, size, text) in kept:
        at = offsets[name]
        listed.append(f'{quoted(name)}:{{{text}"data_offsets":[{at},{at + size}]}}')
    return listed, offsets, end


def _kind(dtype: str, shape: Sequence[int]) -> tuple[tuple[bool, int], int, str]:
    """The sort key and the size of such arrays, and how their entry begins."""
    item, code = item_bytes(dtype), _CODES.get(dtype)
    size = math.prod(shape) * item
    dims = [*map(int, shape)] if code else [*map(int, shape), item]
    # Those after which memory is aligned, then the widest items: all are aligned.
    place = size % _ALIGNMENT != 0, -item
    return place, size, f'"dtype":"{code or "U8"}","shape":{dims},'


def as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of ``array`` in a file; they share its memory if they can."""
    if array.flags.c_contiguous and array.dtype.str[0] != _FOREIGN_ORDER:
        return array.reshape(-1).view(np.uint8)
    little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(little_endian).reshape(-1).view(np.uint8)


class TensorFile:
    """A safetensors file of any program; ValueError if it is not one."""

    sums: Sequence[int] | None = None  # the CRC-32C of each piece
    dtypes: Mapping[str, str] = MappingProxyType({})  # of arrays that are stored as their bytes

    def __init__(self, path: AnyPath) -> None:
        self.path = path
        with opened(path, ahead=False) as (file, size):
            self._header = _header_of(file, size)
            # Other programs write into existing files.
            self._map = mapped(file) if self.is_of_checkpoint else None
        self.nbytes = size - len(self._header)
        self._sound: set[int] = set()  # pieces of the map
        self._pieces = Shared[int, NDArray[np.uint8]](
            lambda begin: self._read(begin, min(begin + PIECE_BYTES, self.nbytes)), _MOST_PIECES
        )

    @property
    def is_of_checkpoint(self) -> bool:
        return self._header.startswith(_BEGIN, _LENGTH.size)

    @cached_property
    def entries(self) -> Mapping[str, Entry]:
        try:
            listed = json.loads(self._header[_LENGTH.size :])
            if not isinstance(listed, dict):
                raise ValueError("it is not a mapping")
            listed.pop("__metadata__", None)
            found = _entries(listed, self.dtypes)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"its header cannot be read: {error}") from None
        end = 0
        for _, _, start, stop in sorted(found.values(), key=itemgetter(2, 3)):
            if start != end:
                raise ValueError("its arrays overlap or leave a gap")
            end = stop
        if end != self.nbytes:
            size = len(self._header)
            raise ValueError(f"it has {size + self.nbytes} bytes, its header says {size + end}")
        return found

    def stream(self, wanted: Iterable[str]) -> Iterator[tuple[str, NDArray[Any]]]:
        """Yield arrays as they lie in the file; some share memory, none overlap."""
        listed = sorted(((self.entries[name], name) for name in wanted), key=lambda it: it[0][2:])
        for span in _spans(listed):
            (*_, begin, _), _ = span[0]
            (*_, last), _ = span[-1]
            data = self.data(begin, last)
            for (dtype, shape, start, end), name in span:
                array = data[start - begin : end - begin].view(dtype_named(dtype)).reshape(shape)
                yield name, array if array.flags.aligned else array.copy()

    def data(self, first: int, last: int) -> NDArray[np.uint8]:
        """Return bytes after the header; ValueError if they are damaged."""
        if first == last:
            return _memory(0)
        if self.sums is not None and self._map is None and last - first < PIECE_BYTES:
            return self._joined(first, last)
        step = _ALIGNMENT if self.sums is None else PIECE_BYTES
        begin, end = first // step * step, min(-(-last // step) * step, self.nbytes)
        return self._read(begin, end)[first - begin : last - begin]

    def _joined(self, first: int, last: int) -> NDArray[np.uint8]:
        """Bytes of one or two pieces, kept for their neighbours."""
        at = first // PIECE_BYTES * PIECE_BYTES
        data = self._pieces[at][first - at : last - at]
        if (more := last - first - len(data)) == 0:
            return data
        rest = self._pieces[at + PIECE_BYTES][:more]
        return np.concatenate([data, rest], out=_memory(last - first))

    def _read(self, begin: int, end: int) -> NDArray[np.uint8]:
        if self._map is not None:
            data = self._map[len(self._header) + begin : len(self._header) + end]
        else:
            data = _memory(end - begin)
            read_into(self.path, len(self._header) + begin, data)
        if self.sums is not None:
            for at in range(begin, end, PIECE_BYTES):
                number = at // PIECE_BYTES
                if number not in self._sound:
                    piece = data[at - begin : at - begin + PIECE_BYTES]
                    if google_crc32c.value(piece) != self.sums[number]:
                        raise ValueError("its checksum does not match its content")
                    if self._map is not None:
                        self._sound.add(number)
        return data


class CheckpointFile(TensorFile):
    """A file of a checkpoint, whose header has a checksum. Raises as ``naming``."""

    def __init__(self, path: AnyPath) -> None:
        self.path = path
        with self.naming():
            super().__init__(path)
            header, at = self._header, _LENGTH.size + len(_BEGIN)
            if not self.is_of_checkpoint:
                raise ValueError("it is not a file of a checkpoint, or its header is damaged")
            crc = google_crc32c.extend(google_crc32c.value(header[:at]), header[at + 8 :])
            if header[at : at + 8] != b"%08x" % crc:
                raise ValueError("the checksum of its header does not match its content")
            self.digest = FileDigest(len(header) + self.nbytes, crc)
            text = header[_LENGTH.size :].decode("ascii")
            strings, _ = json.JSONDecoder().raw_decode(text, len('{"__metadata__":'))
            self._strings: dict[str, Any] = {"dtypes": "{}", **strings}
            dtypes = json.loads(field(self._strings, "dtypes", is_text))
            self.dtypes = field({"dtypes": dtypes}, "dtypes", _are_dtypes)
            sums = bytes.fromhex(field(self._strings, "pieces", is_text))
            self.sums = np.frombuffer(sums, ">u4").tolist()
            count = len(sums) // 4
            if count != -(-self.nbytes // PIECE_BYTES):
                raise ValueError(f"it has {count} checksums of {self.nbytes} bytes")

    def naming(self) -> AbstractContextManager[None]:
        return naming(self.path.parent, self.path.name)

    def text_of_states(self) -> bytes:
        states: str = field(self._strings, "states", is_text)
        return states.encode()

    @cached_property
    def about(self) -> dict[str, Any]:
        with self.naming():
            about: dict[str, Any] = json.loads(field(self._strings, "runhooks", is_text))
            field(about, "size", lambda it: it == self.nbytes)
            return about

    @cached_property
    def entries(self) -> Mapping[str, Entry]:
        with self.naming():
            return super().entries

    def data(self, first: int, last: int) -> NDArray[np.uint8]:
        try:  # the context costs more than a small block
            return super().data(first, last)
        except (OSError, ValueError):
            with self.naming():
                raise

    def check(self) -> None:
        for at in range(0, self.nbytes, PIECE_BYTES):
            self.data(at, min(at + PIECE_BYTES, self.nbytes))
        _ = self.entries


def _are_dtypes(value: Any) -> bool:
    return isinstance(value, dict) and all(map(is_dtype, value.values()))


def _header_of(file: BufferedReader, size: int) -> bytes:
    header = file.read(min(size, _FIRST_BYTES))
    if len(header) < _LENGTH.size:
        raise ValueError("it is cut short")
    end = _LENGTH.size + int(_LENGTH.unpack_from(header)[0])
    if end > min(size, _MOST_HEADER_BYTES):
        raise ValueError(f"it has {size} bytes, and a header of {end}")
    return header[:end] if end <= len(header) else header + file.read(end - len(header))


def _memory(size: int) -> NDArray[np.uint8]:
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size]


def _spans(listed: Sequence[tuple[Entry, str]]) -> Iterator[list[tuple[Entry, str]]]:
    span: list[tuple[Entry, str]] = []
    begin = last = 0
    for it in listed:
        *_, start, end = it[0]
        if span and (start > last + _GAP_BYTES or end > begin + _SPAN_BYTES):
            yield span
            span = []
        begin, last = (begin if span else start), end
        span.append(it)
    if span:
        yield span


def is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _entries(listed: Mapping[str, Any], stated: Mapping[str, str]) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for name, content in listed.items():
        try:
            offsets, sizes = content["data_offsets"], content["shape"]
            if type(offsets) is not list or len(offsets) != 2 or type(sizes) is not list:
                raise TypeError
            dtype, shape, size = _form(stated.get(name), content["dtype"], *sizes)
        except (KeyError, TypeError):
            raise ValueError("an entry makes no sense") from None
        start, end = offsets
        if type(start) is not int or type(end) is not int or start < 0 or end - start != size:
            raise ValueError("the offsets of an array do not match its shape")
        found[name] = dtype, shape, start, end
    return found


@lru_cache(1024, typed=True)
def _form(stated: str | None, code: Any, *shape: Any) -> tuple[str, tuple[int, ...], int]:
    """The dtype, shape and size of an array; ``stated``: its dtype if it is bytes."""
    dtype = _DTYPES.get(code)
    if dtype is None:
        raise ValueError(f"it has an array of {code!r}, a dtype that runhooks does not know")
    if not is_shape([*shape]):
        raise ValueError("an entry has a shape that makes no sense")
    size = math.prod(shape) * item_bytes(dtype)
    if stated is not None:
        if dtype != "uint8" or shape[-1:] != (item_bytes(stated),):
            raise ValueError(f"an array of {stated} is not stored as its bytes")
        dtype, shape = stated, shape[:-1]
    return dtype, shape, size


@lru_cache(256)
def item_bytes(name: str) -> int:
    """Raises ValueError if there is no such dtype."""
    if name == "bool":
        return 1
    if name in _CODES:  # also without ml_dtypes
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
    return dtype.name  # NumPy makes it each time


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether an array is its bytes, and its dtype is known by its name."""
    if dtype.hasobject or issubclass(dtype.type, np.flexible):
        return False
    try:
        return dtype_named(dtype.name) == dtype.newbyteorder("=")
    except (TypeError, ImportError):
        return False


#: Errors of this process, for which no older checkpoint is restored.
NOT_OF_THE_FILE = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}


@contextmanager
def naming(path: AnyPath, name: str) -> Iterator[None]:
    """Turn errors of a file of a checkpoint into NotFoundError or DataLossError."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        if (path / COMMIT).is_file():
            raise damaged(path, f"{name} is missing") from None
        raise NotFoundError(f"there is no checkpoint {printable(path)}", path=str(path)) from None
    except OSError as error:
        if error.errno in NOT_OF_THE_FILE or isinstance(path, StorePath):
            raise  # a store that cannot be reached damages nothing
        raise damaged(path, f"{name} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"{name}: {error}") from error


def damaged(path: AnyPath, what: str) -> DataLossError:
    return DataLossError(f"checkpoint {printable(path)} is damaged: {what}", path=str(path))
