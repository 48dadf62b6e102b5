"""Images: a batch of them a step, shown as PNG."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks.events import wire
from runhooks.summary.message import Value, entry
from runhooks.summary.png import encode_png
from runhooks.summary.real_array import read_real_array

_IMAGE = 4
_CHANNELS = (1, 3, 4)  # gray, RGB, RGBA
_BAD_PIXEL = np.array((255, 0, 0, 255), np.uint8)


def image_value(tag: str, images: Any, max_outputs: int = 3) -> Value:
    """Return the first ``max_outputs`` of ``images``, to be written as PNG files.

    ``images`` is ``[N, height, width, channels]`` with 1 (gray), 3 (RGB) or 4 (RGBA) channels.
    uint8 is written as it is. Any float type is normalised, each image by itself: if it has no
    negative number its largest becomes 255; else 0.0 becomes 127 and the number farthest from
    it, as the range allows, 0 or 255. A pixel that is not finite becomes red, or white in gray.
    The tags are ``tag/image``, or ``tag/image/0`` and on if ``max_outputs`` is above 1. All this
    is as in ``tf.compat.v1.summary.image``.

    The images are read when the summary is written, which raises ValueError for another shape and
    TypeError for another dtype. Raises ValueError if ``max_outputs`` is below 1.
    """
    if max_outputs < 1:
        raise ValueError(
            f"max_outputs of image summary {tag!r} must be 1 or more, got {max_outputs}"
        )
    return Value(tag, (images, max_outputs), _encode)


def _encode(tag: str, data: tuple[Any, int]) -> bytes:
    images, max_outputs = data
    batch = _checked(tag, read_real_array(tag, images))[:max_outputs]
    tags = [f"{tag}/image/{index}" for index in range(len(batch))]
    if max_outputs == 1:
        tags = [f"{tag}/image"]
    return b"".join(map(_entry, tags, batch))


def _checked(tag: str, images: NDArray[Any]) -> NDArray[Any]:
    if images.ndim != 4 or images.shape[3] not in _CHANNELS or 0 in images.shape[1:]:
        raise ValueError(
            f"image summary {tag!r} must have the shape [N, height, width, channels] with 1, 3 or "
            f"4 channels, got {list(images.shape)}"
        )
    if images.dtype.kind in "iub" and images.dtype != np.uint8:
        raise TypeError(
            f"image summary {tag!r} must be uint8 (0 to 255) or a float type, got {images.dtype}: "
            "convert it with .astype('uint8')"
        )
    return images


def _entry(tag: str, image: NDArray[Any]) -> bytes:
    height, width, channels = image.shape
    pixels = image if image.dtype == np.uint8 else _normalised(image.astype(np.float64))
    fields = (
        wire.varint_field(1, height),
        wire.varint_field(2, width),
        wire.varint_field(3, channels),
        wire.bytes_field(4, encode_png(pixels)),
    )
    return entry(tag, wire.bytes_field(_IMAGE, b"".join(fields)))


def _normalised(image: NDArray[np.float64]) -> NDArray[np.uint8]:
    finite = np.isfinite(image)
    image = np.where(finite, image, 0)
    least, largest = float(image.min()), float(image.max())
    if least >= 0:
        zero, unit = 0, largest / 255
    else:
        zero, unit = 127, max(-least / 127, largest / 128)
    pixels = np.rint(image / unit + zero if unit else image).astype(np.uint8)
    bad = ~finite.all(axis=2)
    pixels[bad] = _BAD_PIXEL[: image.shape[2]]
    return pixels
