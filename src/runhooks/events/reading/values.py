"""Decoding the values of a summary, and tensors.

What is malformed raises ValueError. Formats: TensorFlow's ``summary.proto``, ``histogram.proto``,
``tensor.proto``, ``types.proto``, and the tensors of TensorBoard's plugins.
"""

from __future__ import annotations

import functools
import math
import wave
from collections.abc import Callable
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.events.format.proto import (
    LENGTH_DELIMITED,
    VARINT,
    LocatedField,
    as_bytes,
    as_float,
    as_int,
    fields,
    locate_fields,
    signed,
    varint_at,
)
from runhooks.events.reading.messages import (
    SCALAR,
    TENSOR,
    Metadata,
    ParsedValue,
    TagMetadata,
    parse_summary,
    parse_value,
    text_of,
)


class Histogram(NamedTuple):
    """A histogram: ``counts[i]`` of ``num`` numbers are in ``(limits[i - 1], limits[i]]``.

    ``limits`` and ``counts`` are float64 ``[n]``. ``sum`` and ``sum_squares`` are NaN if they were
    not written, as by TensorFlow 2.
    """

    min: float
    max: float
    num: float
    sum: float
    sum_squares: float
    limits: NDArray[np.float64]
    counts: NDArray[np.float64]


class Image(NamedTuple):
    """An image: ``encoded`` is a whole file, mostly PNG; ``channels`` is 0 if unknown."""

    height: int
    width: int
    channels: int
    encoded: bytes


class Audio(NamedTuple):
    """A clip of audio: ``encoded`` is a whole file of type ``content_type``, mostly ``audio/wav``.

    ``sample_rate``, in frames per second, ``channels`` and ``frames`` are 0 if unknown.
    """

    sample_rate: float
    channels: int
    frames: int
    encoded: bytes
    content_type: str


class TaggedValue(NamedTuple):
    """One value of a summary. ``value``: a float if ``kind`` is scalar, else see ``Run``."""

    tag: str
    kind: str
    value: Any


class SummaryDecoder:
    """Decodes summaries, and remembers the metadata of tags, which some writers send only once."""

    def __init__(self) -> None:
        self._metadata = TagMetadata()

    def decode(self, summary: bytes) -> list[TaggedValue]:
        """Return the values of ``summary``, a Summary message. Raises ValueError if malformed."""
        found = []
        for value in parse_summary(summary, 0, len(summary)):
            tag, metadata, kind = self._metadata.identify(summary, value)
            if kind is not None:
                found.append(TaggedValue(tag, kind, decode_value(summary, value, kind, metadata)))
        return found


def decode_message(message: bytes, kind: str, known: TagMetadata) -> Any:
    value = parse_value(message, 0, len(message))
    _, metadata, _ = known.identify(message, value)
    return decode_value(message, value, kind, metadata)


def decode_value(message: bytes, value: ParsedValue, kind: str, metadata: Metadata) -> Any:
    if value.content is None or kind == "hparams":
        return metadata.content
    if value.content.number == TENSOR:
        array = tensor_array(message, value.content.begin, value.content.end)
        return _OF_TENSOR[kind](array) if kind in _OF_TENSOR else array
    return _OF_MESSAGE[kind](message[value.content.begin : value.content.end])


_ZERO = bytes(8)


def _histogram(message: bytes) -> Histogram:
    single: dict[int, int | bytes] = {}
    doubles: dict[int, list[bytes]] = {6: [], 7: []}  # packed or one by one
    for number, content in fields(message):
        if number in doubles:
            doubles[number].append(as_bytes(content))
        else:
            single[number] = content
    limits, counts = (np.frombuffer(b"".join(parts), "<f8") for parts in doubles.values())
    if len(limits) != len(counts):
        raise ValueError(f"a histogram has {len(limits)} limits and {len(counts)} counts")
    least, largest, num, total, squares = (as_float(single.get(n, _ZERO)) for n in range(1, 6))
    return Histogram(least, largest, num, total, squares, limits, counts)


def _image(message: bytes) -> tuple[Image, ...]:
    found = dict(fields(message))
    height, width, channels = (as_int(found.get(number, 0)) for number in (1, 2, 3))
    return (Image(height, width, channels, as_bytes(found.get(4, b""))),)


def _audio(message: bytes) -> tuple[Audio, ...]:
    found = dict(fields(message))
    channels, frames = (as_int(found.get(number, 0)) for number in (2, 3))
    encoded, content_type = (as_bytes(found.get(number, b"")) for number in (4, 5))
    rate = as_float(found.get(1, _ZERO))
    return (Audio(rate, channels, frames, encoded, text_of(content_type)),)


def _scalar_tensor(array: NDArray[Any]) -> float:
    if array.size != 1 or array.dtype.kind not in "fiub":
        raise ValueError(f"a scalar must be one number, got {array.dtype} of shape {array.shape}")
    return float(array.item())


def _histogram_tensor(array: NDArray[Any]) -> Histogram:
    if array.ndim != 2 or array.shape[1] != 3 or array.dtype.kind not in "fiu":
        raise ValueError(f"a histogram must be [n, 3] numbers, got {array.dtype} {array.shape}")
    left, right, counts = array.astype(np.float64).T
    ends = (float(left[0]), float(right[-1])) if len(left) else (0.0, 0.0)
    return Histogram(*ends, float(counts.sum()), np.nan, np.nan, right.copy(), counts.copy())


def _image_tensor(array: NDArray[Any]) -> tuple[Image, ...]:
    _check_strings(array, 1, "images")
    if array.size < 2:
        raise ValueError(f"images must come with their size, got {array.size} strings")
    width, height, *images = array
    try:
        size = int(height), int(width)
    except ValueError:
        raise ValueError(f"images must have a size, got {width!r} x {height!r}") from None
    return tuple(Image(*size, 0, image) for image in images)


def _audio_tensor(array: NDArray[Any]) -> tuple[Audio, ...]:
    _check_strings(array, 2, "audio")
    return tuple(_wav(row[0]) for row in array if len(row))


def _wav(encoded: bytes) -> Audio:
    try:
        with wave.open(BytesIO(encoded)) as file:
            rate, channels, frames = file.getframerate(), file.getnchannels(), file.getnframes()
    except (wave.Error, EOFError, RuntimeError):  # another format, truncated, or damaged
        rate = channels = frames = 0
    return Audio(float(rate), channels, frames, encoded, "audio/wav")


def _text_tensor(array: NDArray[Any]) -> str | NDArray[Any]:
    _check_strings(array, array.ndim, "text")
    texts = np.empty(array.size, object)
    texts[:] = [text_of(text) for text in array.flat]
    return str(texts[0]) if texts.size == 1 else texts.reshape(array.shape)


def _layout_tensor(array: NDArray[Any]) -> bytes:
    _check_strings(array, array.ndim, "a layout")
    return b"".join(array.flat)


def _check_strings(array: NDArray[Any], ndim: int, noun: str) -> None:
    if array.dtype != object or array.ndim != ndim:
        raise ValueError(f"{noun} must be strings, got {array.dtype} of shape {array.shape}")


_OF_MESSAGE: dict[str, Callable[[bytes], Any]] = {
    SCALAR: as_float,
    "histogram": _histogram,
    "image": _image,
    "audio": _audio,
}
_OF_TENSOR = {
    SCALAR: _scalar_tensor,
    "histogram": _histogram_tensor,
    "image": _image_tensor,
    "audio": _audio_tensor,
    "text": _text_tensor,
    "custom_scalars": _layout_tensor,
}


_STRING = 7
_BFLOAT16, _FLOAT8_E5M2, _FLOAT8_E4M3FN = 14, 24, 25

_DTYPES = {
    1: "<f4",
    2: "<f8",
    3: "<i4",
    4: "u1",
    5: "<i2",
    6: "i1",
    8: "<c8",
    9: "<i8",
    10: "?",
    14: "<u2",  # bfloat16 and, below, float8, until they are widened
    17: "<u2",
    18: "<c16",
    19: "<f2",
    22: "<u4",
    23: "<u8",
    24: "u1",
    25: "u1",
}
#: The types of the fields of numbers, None for varints.
_FIELDS = {5: "<f4", 6: "<f8", 7: None, 9: "<f4", 10: None, 11: None, 12: "<f8", 13: None}
_FIELDS |= {16: None, 17: None, 18: "u1"}
_STRING_FIELD = 8
_MOST_BYTES = 1 << 26  # of an array whose last number is repeated


class ParsedTensor(NamedTuple):
    """The fields of a tensor; ``dtype`` is the number of its type."""

    dtype: int
    shape: tuple[int, ...]
    content: LocatedField | None
    numbers: list[LocatedField]
    strings: list[LocatedField]


def parse_tensor(message: bytes, begin: int, end: int) -> ParsedTensor:
    dtype, content = 0, None
    shape: tuple[int, ...] = ()
    numbers, strings = list[LocatedField](), list[LocatedField]()
    for field in locate_fields(message, begin, end):
        if field.number == 1 and field.wire_type == VARINT:
            dtype = field.value
        elif field.number == 2 and field.wire_type == LENGTH_DELIMITED:
            shape = _shape(message, field)
        elif field.number == 4 and field.wire_type == LENGTH_DELIMITED:
            content = field
        elif field.number == _STRING_FIELD and field.wire_type == LENGTH_DELIMITED:
            strings.append(field)
        elif field.number in _FIELDS:
            numbers.append(field)
    return ParsedTensor(dtype, shape, content, numbers, strings)


def _shape(message: bytes, field: LocatedField) -> tuple[int, ...]:
    sizes = []
    for dim in locate_fields(message, field.begin, field.end):
        if dim.number == 2 and dim.wire_type == LENGTH_DELIMITED:
            of_dim = locate_fields(message, dim.begin, dim.end)
            sizes.append(sum(signed(s.value) for s in of_dim if s.number == 1))
        if dim.number == 3 and dim.value:
            raise ValueError("a tensor in an event file must have a known shape")
    if any(size < 0 for size in sizes):
        raise ValueError(f"a tensor must have sizes of 0 or more, got {sizes}")
    return tuple(sizes)


def tensor_array(message: bytes, begin: int, end: int) -> NDArray[Any]:
    """Return strings as an object array of bytes, bfloat16 and float8 as float32."""
    tensor = parse_tensor(message, begin, end)
    if tensor.dtype == _STRING:
        strings = np.empty(len(tensor.strings), object)
        strings[:] = [message[field.begin : field.end] for field in tensor.strings]
        return _filled(strings, tensor.shape)
    if tensor.dtype not in _DTYPES:
        raise ValueError(f"a tensor must be of a type that NumPy has, got the type {tensor.dtype}")
    dtype = np.dtype(_DTYPES[tensor.dtype])
    if tensor.content is not None and tensor.content.end > tensor.content.begin:
        flat = np.frombuffer(message[tensor.content.begin : tensor.content.end], dtype)
        if flat.size != math.prod(tensor.shape):
            raise ValueError(f"a tensor of shape {tensor.shape} has {flat.size} elements")
    else:
        flat = _filled(_numbers(message, tensor, dtype), tensor.shape)
    return _widened(tensor.dtype, flat).reshape(tensor.shape)


def _widened(dtype: int, flat: NDArray[Any]) -> NDArray[Any]:
    if dtype == _BFLOAT16:
        return (flat.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype == _FLOAT8_E5M2:
        return (flat.astype(np.uint16) << np.uint16(8)).view(np.float16).astype(np.float32)
    if dtype == _FLOAT8_E4M3FN:
        return _float8_e4m3fn().take(flat)
    return flat


@functools.cache
def _float8_e4m3fn() -> NDArray[np.float32]:
    exponents, mantissas = np.divmod(np.arange(128), 8)
    least = np.ldexp(mantissas.astype(np.float32), -9)
    numbers = np.where(exponents, np.ldexp(1 + mantissas / 8, exponents - 7), least)
    numbers[-1] = np.nan
    return np.concatenate((numbers, -numbers)).astype(np.float32)


def _numbers(message: bytes, tensor: ParsedTensor, dtype: np.dtype[Any]) -> NDArray[Any]:
    numbers: list[Any] = []
    for field in tensor.numbers:
        numbers += _numbers_of(message, field)
    if dtype.kind == "c":
        pairs = np.array(numbers, np.float64)
        return pairs.view(np.complex128).astype(dtype)
    if dtype.kind == "f" and dtype.itemsize == 2:  # stored as its bits
        return (np.array(numbers, np.int64) & 0xFFFF).astype(np.uint16).view(dtype)
    return np.array(numbers, np.float64 if dtype.kind == "f" else np.int64).astype(dtype)


def _numbers_of(message: bytes, field: LocatedField) -> list[Any]:
    dtype = _FIELDS[field.number]
    if field.wire_type == VARINT:
        return [signed(field.value)] if dtype is None else []
    if dtype is not None:
        return list(np.frombuffer(message[field.begin : field.end], dtype).tolist())
    at, found = field.begin, []
    while at < field.end:
        value, at = varint_at(message, at, field.end)
        found.append(signed(value))
    return found


def _filled(flat: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return ``flat`` in this shape; its last element is repeated for those that are missing."""
    size = math.prod(shape)
    if flat.size > size or (size and not flat.size and flat.dtype == object):
        raise ValueError(f"a tensor of shape {shape} has {flat.size} elements")
    if flat.size < size:
        if size * flat.itemsize > _MOST_BYTES:
            raise ValueError(f"a tensor of shape {shape} has only {flat.size} elements")
        last = flat[-1] if flat.size else 0
        flat = np.concatenate([flat, np.full(size - flat.size, last, flat.dtype)])
    return flat.reshape(shape)
