"""A WAV encoder for samples of 16 bits. Format: RFC 2361, and soundfile.sapp.org/doc/WaveFormat."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

_PCM = 1
_HEADER = struct.Struct("<4sI4s4sIHHIIHH4sI")


def encode_wav(samples: NDArray[np.int16], sample_rate: int) -> bytes:
    """Return ``samples``, int16 ``[frames, channels]``, as a WAV file.

    ``sample_rate``: frames a second.
    """
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
