"""Decoding the values of a summary, kind by kind.

Field numbers are those of TensorFlow's ``summary.proto`` and ``histogram.proto``; the layouts of
tensors are those of TensorBoard's plugins.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.events.format.proto import (
    LENGTH_DELIMITED,
    VARINT,
    LocatedField,
    locate_fields,
    signed,
)
from runhooks.events.reading.messages import (
    SCALAR,
    TENSOR,
    Metadata,
    ParsedValue,
    TagNumbers,
    TagRegistry,
    Wanted,
    float_at,
    kind_of,
    parse_metadata,
    parse_summary,
    parse_value,
    text_at,
)
from runhooks.events.reading.tensor import tensor_array

_CHUNK = struct.Struct("<4sI")  # of a WAV file: its name, and how many bytes follow
_FORMAT = struct.Struct("<HHIIH")  # encoding, channels, frames and bytes a second, bytes a frame


class Histogram(NamedTuple):
    """A histogram: ``counts[i]`` of the numbers are in ``(limits[i - 1], limits[i]]``.

    Attributes:
        min: The smallest number.
        max: The largest number.
        num: How many numbers there are.
        sum: Their sum; NaN if it was not written, as by TensorFlow 2.
        sum_squares: The sum of their squares; likewise.
        limits: float64 ``[n]``.
        counts: float64 ``[n]``.
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
    """A sound: ``encoded`` is a whole file of type ``content_type``, mostly ``audio/wav``.

    ``sample_rate`` is in frames per second; it, ``channels`` and ``frames`` are 0 if unknown.
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
    """Decodes summaries of any writer one after the other.

    It remembers the metadata of each tag, which some writers send only once.
    """

    def __init__(self) -> None:
        self._registry = TagRegistry(TagNumbers(Wanted(None, None)))

    def decode(self, summary: bytes) -> list[TaggedValue]:
        """Return the values of ``summary``, a Summary message. Raises ValueError if malformed."""
        found = []
        for value in parse_summary(summary, 0, len(summary)):
            tag = text_at(summary, value.tag)
            metadata = self._registry.metadata_of(summary, value, tag)
            kind = kind_of(value, metadata)
            if kind is not None:
                found.append(TaggedValue(tag, kind, decode_value(summary, value, kind, metadata)))
        return found


def decode_message(message: bytes, kind: str, metadata: Metadata) -> Any:
    """Return the decoded ``message``, one value of a summary. Raises ValueError.

    ``metadata``: that of its tag, unless it has its own.
    """
    value = parse_value(message, 0, len(message))
    if value.metadata:
        metadata = parse_metadata(message, value.metadata.begin, value.metadata.end)
    return decode_value(message, value, kind, metadata)


def decode_value(message: bytes, value: ParsedValue, kind: str, metadata: Metadata) -> Any:
    """Return the decoded ``value``, which is in ``message``. Raises ValueError."""
    content = value.content
    if content is None or kind == "hparams":
        return metadata.content
    if content.number == TENSOR:
        array = tensor_array(message, content.begin, content.end)
        return _OF_TENSOR.get(kind, _same)(array)
    if kind == SCALAR:
        return float_at(message, content)
    return _OF_MESSAGE[kind](message, content)


def _numbers(message: bytes, parent: LocatedField) -> dict[int, Any]:
    """Return the single fields of a message: doubles, floats, integers and bytes."""
    found: dict[int, Any] = {}
    for field in locate_fields(message, parent.begin, parent.end):
        content = message[field.begin : field.end]
        if field.wire_type == VARINT:
            found[field.number] = signed(field.value)
        elif field.wire_type == LENGTH_DELIMITED:
            found[field.number] = content
        else:
            found[field.number] = struct.unpack("<d" if len(content) == 8 else "<f", content)[0]
    return found


def _number(fields: dict[int, Any], number: int) -> Any:
    value = fields.get(number, 0)
    return 0 if isinstance(value, bytes) else value


def _content(fields: dict[int, Any], number: int) -> bytes:
    value = fields.get(number, b"")
    return value if isinstance(value, bytes) else b""


def _histogram(message: bytes, parent: LocatedField) -> Histogram:
    fields = _numbers(message, parent)
    doubles: dict[int, list[bytes]] = {6: [], 7: []}  # packed or one by one
    for field in locate_fields(message, parent.begin, parent.end):
        if field.number in doubles and field.wire_type != VARINT:
            doubles[field.number].append(message[field.begin : field.end])
    limits, counts = (np.frombuffer(b"".join(parts), "<f8") for parts in doubles.values())
    if len(limits) != len(counts):
        raise ValueError(f"a histogram has {len(limits)} limits and {len(counts)} counts")
    least, largest, num, total, squares = (float(_number(fields, n)) for n in range(1, 6))
    return Histogram(least, largest, num, total, squares, limits, counts)


def _image(message: bytes, parent: LocatedField) -> tuple[Image, ...]:
    fields = _numbers(message, parent)
    height, width, channels = (int(_number(fields, number)) for number in (1, 2, 3))
    return (Image(height, width, channels, _content(fields, 4)),)


def _audio(message: bytes, parent: LocatedField) -> tuple[Audio, ...]:
    fields = _numbers(message, parent)
    return (
        Audio(
            float(_number(fields, 1)),
            int(_number(fields, 2)),
            int(_number(fields, 3)),
            _content(fields, 4),
            _content(fields, 5).decode(errors="backslashreplace"),
        ),
    )


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
    """Return a WAV file with the data of its header. Format: RFC 2361, appendix."""
    chunks, at = {}, 12
    while encoded[:4] == b"RIFF" and at + 8 <= len(encoded):
        name, length = _CHUNK.unpack_from(encoded, at)
        chunks[name] = at + 8, length
        at += 8 + length + length % 2
    begin, length = chunks.get(b"fmt ", (0, 0))
    if length < _FORMAT.size or begin + length > len(encoded):  # another format, or truncated
        return Audio(0.0, 0, 0, encoded, "audio/wav")
    _, channels, sample_rate, _, frame_bytes = _FORMAT.unpack_from(encoded, begin)
    _, data_bytes = chunks.get(b"data", (0, 0))
    return Audio(
        float(sample_rate), channels, data_bytes // max(frame_bytes, 1), encoded, "audio/wav"
    )


def _text_tensor(array: NDArray[Any]) -> str | NDArray[Any]:
    _check_strings(array, array.ndim, "text")
    texts = np.empty(array.size, object)
    texts[:] = [text.decode(errors="backslashreplace") for text in array.flat]
    return str(texts[0]) if texts.size == 1 else texts.reshape(array.shape)


def _layout_tensor(array: NDArray[Any]) -> bytes:
    _check_strings(array, array.ndim, "a layout")
    return b"".join(array.flat)


def _check_strings(array: NDArray[Any], ndim: int, noun: str) -> None:
    if array.dtype != object or array.ndim != ndim:
        raise ValueError(f"{noun} must be strings, got {array.dtype} of shape {array.shape}")


def _same(array: NDArray[Any]) -> NDArray[Any]:
    return array


_OF_MESSAGE = {"histogram": _histogram, "image": _image, "audio": _audio}
_OF_TENSOR = {
    SCALAR: _scalar_tensor,
    "histogram": _histogram_tensor,
    "image": _image_tensor,
    "audio": _audio_tensor,
    "text": _text_tensor,
    "custom_scalars": _layout_tensor,
}
