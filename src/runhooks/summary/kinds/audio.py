"""Audio: clips of sound, written as WAV of 16 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks import arguments
from runhooks.events import wire
from runhooks.events.fields import int_field
from runhooks.summary.kinds.non_finite import finite_in
from runhooks.summary.kinds.real_array import as_float, as_now, read_real_array
from runhooks.summary.kinds.tensor import encode_strings
from runhooks.summary.kinds.wav import encode_wav
from runhooks.summary.message import Value, entry
from runhooks.summary.metadata import SummaryMetadata, tensor_entry

_AUDIO = 6
_WAV = 11
_METADATA = SummaryMetadata("audio", int_field(2, _WAV))
_LARGEST = 32767.0
_MOST_CHANNELS = 8


def audio_value(tag: str, samples: Any, sample_rate: float, max_outputs: int = 3) -> Value:
    """Return the first ``max_outputs`` clips of ``samples``, to be written as WAV files.

    ``samples`` is ``[N, frames]`` or ``[N, frames, channels]``, otherwise as for ``clip_value``.
    The tags are ``tag/audio``, or ``tag/audio/0`` and on if ``max_outputs`` is above 1. All this
    is as in ``tf.compat.v1.summary.audio``.

    Raises ValueError if ``max_outputs`` is below 1 or ``sample_rate`` is not above 0.
    """
    arguments.whole(max_outputs=max_outputs)
    return Value(tag, (as_now(samples), _rate(sample_rate), max_outputs), _encode_numbered)


def clip_value(tag: str, samples: Any, sample_rate: float) -> Value:
    """Return ``samples``, a clip or a batch of clips, to be written as WAV under one tag.

    ``samples`` is ``[frames]``, ``[frames, channels]`` or ``[N, frames, channels]``: int16, or a
    float type of the range -1.0 to 1.0. What is beyond is cut off, and what is NaN is silent; a
    warning, once for each tag, says how many were not finite. ``sample_rate``: frames a second.

    They are read when the summary is written, which raises ValueError for another shape, or more
    than 8 channels, and TypeError for another dtype. Raises TypeError or ValueError if
    ``sample_rate`` is no finite number above 0.
    """
    return Value(tag, (as_now(samples), _rate(sample_rate)), _encode_clips)


def _rate(sample_rate: float) -> float:
    arguments.given(sample_rate=sample_rate)
    arguments.positive(sample_rate=sample_rate)
    arguments.finite(sample_rate=sample_rate)
    return float(sample_rate)


def _encode_numbered(tag: str, data: tuple[Any, float, int]) -> bytes:
    samples, sample_rate, max_outputs = data
    array = read_real_array(tag, samples)
    _check_rank(tag, array, (2, 3), "[N, frames] or [N, frames, channels]")
    batch = array.reshape(*array.shape[:2], -1 if array.size else 1)[:max_outputs]
    tags = [f"{tag}/audio/{index}" for index in range(len(batch))]
    if max_outputs == 1:
        tags = [f"{tag}/audio"]
    clips = (_samples(tag, clip) for clip in batch)
    return b"".join(
        _entry(name, clip, sample_rate) for name, clip in zip(tags, clips, strict=False)
    )


def _encode_clips(tag: str, data: tuple[Any, float]) -> bytes:
    samples, sample_rate = data
    array = read_real_array(tag, samples)
    _check_rank(tag, array, (1, 2, 3), "[frames], [frames, channels] or [N, frames, channels]")
    if array.ndim > 1 and array.shape[-1] > _MOST_CHANNELS:
        raise ValueError(
            f"audio summary {tag!r} must have at most {_MOST_CHANNELS} channels, its last axis, "
            f"got {list(array.shape)}: transpose it if its channels come first"
        )
    pcm = _samples(tag, array)
    if pcm.ndim < 3:
        return _entry(tag, pcm if pcm.ndim == 2 else pcm[:, None], sample_rate)
    # A WAV file and an empty label each, as tf.summary.audio has it.
    parts = (part for clip in pcm for part in (encode_wav(clip, round(sample_rate)), b""))
    return tensor_entry(tag, encode_strings((len(pcm), 2), parts), _METADATA)


def _check_rank(tag: str, array: NDArray[Any], ranks: tuple[int, ...], shapes: str) -> None:
    if array.ndim not in ranks:
        raise ValueError(
            f"audio summary {tag!r} must have the shape {shapes}, got {list(array.shape)}"
        )


def _samples(tag: str, array: NDArray[Any]) -> NDArray[np.int16]:
    if array.dtype == np.int16:
        return array
    if array.dtype.kind in "iub":
        raise TypeError(
            f"audio summary {tag!r} must be a float type (-1.0 to 1.0) or int16, "
            f"got {array.dtype}: convert it with .astype('int16')"
        )
    array = as_float(array)
    finite_in("audio", tag, array, "NaN silent, infinite ones cut off")
    scaled = np.nan_to_num(array, nan=0.0, posinf=1.0, neginf=-1.0) * np.float32(32768)
    # Halves away from zero, where rint would go to the even number.
    rounded = np.copysign(np.floor(np.abs(scaled) + np.float32(0.5)), scaled)
    pcm: NDArray[np.int16] = np.clip(rounded, -_LARGEST - 1, _LARGEST).astype(np.int16)
    return pcm


def _entry(tag: str, clip: NDArray[np.int16], sample_rate: float) -> bytes:
    frames, channels = clip.shape
    fields = (
        wire.float_field(1, sample_rate),
        int_field(2, channels),
        int_field(3, frames),
        wire.bytes_field(4, encode_wav(clip, round(sample_rate))),
        wire.bytes_field(5, b"audio/wav"),
    )
    return entry(tag, wire.bytes_field(_AUDIO, b"".join(fields)))
