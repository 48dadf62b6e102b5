"""Images: a batch of them a step, shown as PNG."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks import arguments
from runhooks.events import wire
from runhooks.summary.kinds.png import encode_png
from runhooks.summary.kinds.real_array import as_float, as_now, read_real_array
from runhooks.summary.message import Value, entry

_IMAGE = 4

#: How many channels an image may have: gray, RGB or RGBA.
CHANNELS = (1, 3, 4)

_NOTHING = 1e-6  # what is below this is not scaled up
_BAD_PIXEL = np.array((255, 0, 0, 255), np.uint8)


def image_value(tag: str, images: Any, max_outputs: int = 3) -> Value:
    """Return the first ``max_outputs`` of ``images``, to be written as PNG files.

    ``images`` is ``[N, height, width, channels]`` with 1 (gray), 3 (RGB) or 4 (RGBA) channels.
    uint8 is written as it is. Any float type is scaled, each image by itself: if it has no
    negative number its largest becomes 255; else 0.0 becomes 128 and the number farthest from
    it 1 or 255; an image with none beyond 1e-6 is all 0, or all 128. Fractions are cut off. A
    pixel that is not finite becomes red, or white in gray. The tags are ``tag/image``, or
    ``tag/image/0`` and on if ``max_outputs`` is above 1. All this is as in
    ``tf.compat.v1.summary.image``, only that float16 is scaled as float32 is.

    The images are read when the summary is written, which raises ValueError for another shape and
    TypeError for another dtype. Raises ValueError if ``max_outputs`` is below 1.
    """
    arguments.whole(max_outputs=max_outputs)
    return Value(tag, (as_now(images), max_outputs), _encode)


def _encode(tag: str, data: tuple[Any, int]) -> bytes:
    images, max_outputs = data
    batch = _checked(tag, read_real_array(tag, images))[:max_outputs]
    tags = [f"{tag}/image/{index}" for index in range(len(batch))]
    if max_outputs == 1:
        tags = [f"{tag}/image"]
    pixels = (image if image.dtype == np.uint8 else _scaled(image) for image in batch)
    return b"".join(map(image_entry, tags, pixels))


def _checked(tag: str, images: NDArray[Any]) -> NDArray[Any]:
    if images.ndim != 4 or images.shape[3] not in CHANNELS or 0 in images.shape[1:]:
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


def image_entry(tag: str, pixels: NDArray[np.uint8]) -> bytes:
    """Return one entry of a summary that holds ``pixels``, uint8 ``[height, width, channels]``."""
    height, width, channels = pixels.shape
    fields = (
        wire.varint_field(1, height),
        wire.varint_field(2, width),
        wire.varint_field(3, channels),
        wire.bytes_field(4, encode_png(pixels)),
    )
    return entry(tag, wire.bytes_field(_IMAGE, b"".join(fields)))


def redden(pixels: NDArray[np.uint8], where: NDArray[np.bool_]) -> None:
    """Make the pixels ``where`` it is True red, or white in gray: they have no color to show."""
    pixels[where] = _BAD_PIXEL[: pixels.shape[-1]]


def _scaled(image: NDArray[Any]) -> NDArray[np.uint8]:
    image = as_float(image)
    finite = np.isfinite(image).all(axis=2)
    good = image[finite]
    least, largest = good.min(initial=np.inf), good.max(initial=-np.inf)
    zero, top, farthest = (128, 127, max(-least, largest)) if least < 0 else (0, 255, largest)
    with np.errstate(over="ignore"):
        farthest = np.float32(farthest)  # the factor is of single precision for float64 too
    pixels = np.empty(image.shape, np.uint8)
    pixels[finite] = good * (np.float32(top) / farthest if farthest >= _NOTHING else 0) + zero
    redden(pixels, ~finite)
    return pixels
