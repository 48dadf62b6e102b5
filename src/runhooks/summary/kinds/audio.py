"""Clips of sound, written as WAV of 16 bits."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks import arguments
from runhooks.events.format import proto
from runhooks.events.format.proto import int_field
from runhooks.summary.kinds.real_numbers import Kept, as_float, finite_in, keep, numbered
from runhooks.summary.kinds.tensor import encode_strings
from runhooks.summary.message import SummaryMetadata, Value, entry, tensor_entry

_AUDIO = 6
_METADATA = SummaryMetadata("audio", int_field(2, 11))  # of WAV
_LARGEST = 32767.0
_MOST_CHANNELS = 8
_PCM = 1
_HEADER = struct.Struct("<4sI4s4sIHHIIHH4sI")


def audio_value(tag: str, samples: Any, sample_rate: float, max_outputs: int = 3) -> Value:
    """Return the first ``max_outputs`` clips of ``samples``, as ``tf.compat.v1.summary.audio``.

    Args:
        tag: The clips are tagged ``tag/audio/0`` and on; ``tag/audio`` if ``max_outputs`` is 1.
        samples: ``[N, frames]`` or ``[N, frames, channels]``; int16 or floats, as for
            ``clip_value``.
        sample_rate: Frames a second.
        max_outputs: At least 1.

    Raises:
        ValueError, TypeError: As ``clip_value``.
    """
    arguments.whole(max_outputs=max_outputs)
    kept = keep(_name(tag), samples, _check_batch)
    return Value(tag, (kept, _rate(sample_rate), max_outputs), _encode_batch)


def clip_value(tag: str, samples: Any, sample_rate: float) -> Value:
    """Return a clip, or a batch of clips under one tag.

    Args:
        tag: The tag.
        samples: ``[frames]``, ``[1, frames]``, ``[frames, channels]`` or ``[N, frames, channels]``
            with at most 8 channels: int16, or floats from -1.0 to 1.0. What is beyond is cut off,
            and NaN is silent; one warning per tag counts what is not finite.
        sample_rate: Frames a second, above 0.

    Raises:
        ValueError: ``samples`` has another shape, or ``sample_rate`` is out of range.
        TypeError: ``samples`` has another dtype, or ``sample_rate`` is not a number.
    """
    return Value(tag, (keep(_name(tag), samples, _check_clips), _rate(sample_rate)), _encode_clips)


def _name(tag: str) -> str:
    return f"audio summary {tag!r}"


def _rate(sample_rate: float) -> float:
    arguments.given(sample_rate=sample_rate)
    arguments.positive(sample_rate=sample_rate)
    arguments.finite(sample_rate=sample_rate)
    return float(sample_rate)


def _check_batch(what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if len(shape) not in (2, 3):
        raise ValueError(
            f"{what} must have the shape [N, frames] or [N, frames, channels], got {list(shape)}"
        )
    _check_dtype(what, dtype)


def _check_clips(what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if len(shape) not in (1, 2, 3):
        raise ValueError(
            f"{what} must have the shape [frames], [frames, channels] or [N, frames, channels], "
            f"got {list(shape)}"
        )
    if len(shape) > 1 and shape[-1] > _MOST_CHANNELS and not _is_row(shape):
        raise ValueError(
            f"{what} must have at most {_MOST_CHANNELS} channels, its last axis, "
            f"got {list(shape)}: transpose it if its channels come first"
        )
    _check_dtype(what, dtype)


def _is_row(shape: tuple[int, ...]) -> bool:
    """Whether a single channel comes first, as torchaudio has it."""
    return len(shape) == 2 and shape[0] == 1 and shape[1] > _MOST_CHANNELS


def _check_dtype(what: str, dtype: np.dtype[Any]) -> None:
    if dtype.kind in "iub" and dtype != np.int16:
        raise TypeError(
            f"{what} must be a float type (-1.0 to 1.0) or int16, got {dtype}: "
            "convert it with .astype('int16')"
        )


def _encode_batch(tag: str, data: tuple[Kept, float, int]) -> bytes:
    samples, sample_rate, max_outputs = data
    array = samples.read()
    batch = array.reshape(*array.shape[:2], -1 if array.size else 1)
    return b"".join(
        _entry(name, _samples(tag, clip), sample_rate)
        for name, clip in numbered(f"{tag}/audio", batch, max_outputs)
    )


def _encode_clips(tag: str, data: tuple[Kept, float]) -> bytes:
    samples, sample_rate = data
    pcm = _samples(tag, samples.read())
    if pcm.ndim < 3:
        is_mono = pcm.ndim == 1 or _is_row(pcm.shape)
        return _entry(tag, pcm.reshape(-1, 1) if is_mono else pcm, sample_rate)
    # A WAV file and an empty label each, as tf.summary.audio has it.
    strings = (part for clip in pcm for part in (encode_wav(clip, round(sample_rate)), b""))
    return tensor_entry(tag, encode_strings((len(pcm), 2), strings), _METADATA)


def _samples(tag: str, array: NDArray[Any]) -> NDArray[np.int16]:
    if array.dtype == np.int16:
        return array
    array = as_float(array)
    finite = finite_in("audio", tag, array, "NaN silent, infinite ones cut off")
    scaled: NDArray[Any] = array * np.float32(32768)
    scaled += np.copysign(np.float32(0.5), scaled)  # halves go away from zero
    np.clip(scaled, -_LARGEST - 1, _LARGEST, out=scaled)
    if not finite.all():
        scaled[np.isnan(scaled)] = 0
    return scaled.astype(np.int16)


def _entry(tag: str, clip: NDArray[np.int16], sample_rate: float) -> bytes:
    frames, channels = clip.shape
    fields = (
        proto.float_field(1, sample_rate),
        int_field(2, channels),
        int_field(3, frames),
        proto.bytes_field(4, encode_wav(clip, round(sample_rate))),
        proto.bytes_field(5, b"audio/wav"),
    )
    return entry(tag, proto.bytes_field(_AUDIO, b"".join(fields)))


def encode_wav(samples: NDArray[np.int16], sample_rate: int) -> bytes:
    """Return ``[frames, channels]`` as a WAV file: soundfile.sapp.org/doc/WaveFormat."""
    content = samples.astype("<i2", copy=False).tobytes()
    channels = samples.shape[1]
    frame_bytes = 2 * channels
    return (
        _HEADER.pack(
            b"RIFF",
            _HEADER.size - 8 + len(content),
            b"WAVE",
            b"fmt ",
            16,
            _PCM,
            channels,
            sample_rate,
            sample_rate * frame_bytes,
            frame_bytes,
            16,
            b"data",
            len(content),
        )
        + content
    )
