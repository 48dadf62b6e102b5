"""Decoding the values of a summary, kind by kind.

Field numbers are those of TensorFlow's ``summary.proto`` and ``histogram.proto``; the layouts of
tensors are those of TensorBoard's plugins.
"""

from __future__ import annotations

import wave
from collections.abc import Callable
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.events.format.proto import as_bytes, as_float, as_int, fields
from runhooks.events.reading.messages import (
    SCALAR,
    TENSOR,
    Metadata,
    ParsedValue,
    TagMetadata,
    kind_of,
    parse_summary,
    parse_value,
    text_at,
    text_of,
)
from runhooks.events.reading.tensor import tensor_array


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
    """A clip of audio: ``encoded`` is a whole file of type ``content_type``, mostly ``audio/wav``.

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
        self._metadata = TagMetadata()

    def decode(self, summary: bytes) -> list[TaggedValue]:
        """Return the values of ``summary``, a Summary message. Raises ValueError if malformed."""
        found = []
        for value in parse_summary(summary, 0, len(summary)):
            tag = text_at(summary, value.tag)
            metadata = self._metadata.of_value(summary, value, tag)
            kind = kind_of(value, metadata)
            if kind is not None:
                found.append(TaggedValue(tag, kind, decode_value(summary, value, kind, metadata)))
        return found


def decode_message(message: bytes, tag: str, kind: str, known: TagMetadata) -> Any:
    """Return the decoded ``message``, one value of a summary. Raises ValueError.

    ``known``: the metadata of the tags of its run.
    """
    value = parse_value(message, 0, len(message))
    return decode_value(message, value, kind, known.of_value(message, value, tag))


def decode_value(message: bytes, value: ParsedValue, kind: str, metadata: Metadata) -> Any:
    """Return the decoded ``value``, which is in ``message``. Raises ValueError."""
    if value.content is None or kind == "hparams":
        return metadata.content
    if value.content.number == TENSOR:
        array = tensor_array(message, value.content.begin, value.content.end)
        return _OF_TENSOR.get(kind, _same)(array)
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
    """Return a WAV file with the data of its header."""
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


def _same(array: NDArray[Any]) -> NDArray[Any]:
    return array


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
