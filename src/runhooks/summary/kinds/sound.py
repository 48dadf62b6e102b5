"""Clips of sound whose amplitude 1.0 is 32767, as torch and tensorboardX write them."""

from __future__ import annotations

from typing import Any

import numpy as np

from runhooks import arguments
from runhooks.events.format import wire
from runhooks.events.format.wire import int_field
from runhooks.summary.kinds.audio import encode_wav
from runhooks.summary.kinds.real_numbers import finite_in, keep, read
from runhooks.summary.message import Value, entry

_AUDIO = 6
_LOUDEST = 32767
_CHANNELS = (1, 2)


def sound_value(tag: str, samples: Any, sample_rate: int = 44100) -> Value:
    """Return ``samples``, to be written as WAV of 16 bits.

    Args:
        tag: The tag.
        samples: ``[frames]``, or ``[frames, channels]`` with 1 or 2 of them; axes of size 1 do not
            count. The range is -1.0 to 1.0, whatever the dtype. What is beyond is cut off, and NaN
            is silent.
        sample_rate: Frames a second.

    Raises:
        ValueError: ``samples`` has another shape, or ``sample_rate`` is below 1.
        TypeError: ``samples`` are not real numbers, or ``sample_rate`` is not a whole number.
    """
    arguments.whole(sample_rate=sample_rate)
    return Value(tag, (keep(_name(tag), samples, _check), int(sample_rate)), _encode)


def _name(tag: str) -> str:
    return f"audio summary {tag!r}"


def _check(what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    sizes = [size for size in shape if size != 1]
    if len(sizes) > 1 and (len(sizes) > 2 or sizes[1] not in _CHANNELS):
        raise ValueError(
            f"{what} must have the shape [frames], or [frames, channels] with 1 or 2 channels, "
            f"got {list(shape)}"
        )


def _encode(tag: str, data: tuple[Any, int]) -> bytes:
    samples, sample_rate = data
    array = read(_name(tag), samples, _check).squeeze()
    clip = array.reshape(len(array), -1) if array.ndim else array.reshape(1, 1)
    if clip.dtype.kind == "f" or clip.dtype.itemsize < 4:
        clip = clip.astype(np.float64 if clip.dtype.itemsize > 4 else np.float32, copy=False)
    finite_in("audio", tag, clip, "NaN silent, infinite ones cut off")
    amplitudes = np.nan_to_num(clip, nan=0.0).clip(-1, 1)
    pcm = (amplitudes * _LOUDEST).astype(np.int16)
    frames, channels = pcm.shape
    fields = (
        wire.float_field(1, sample_rate),
        int_field(2, channels),
        int_field(3, frames),
        wire.bytes_field(4, encode_wav(pcm, sample_rate)),
        wire.bytes_field(5, b"audio/wav"),
    )
    return entry(tag, wire.bytes_field(_AUDIO, b"".join(fields)))
