"""Batches of images as a tensor, as TensorFlow 2 writes them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks import arguments
from runhooks.summary.kinds.png import encode_png
from runhooks.summary.kinds.real_numbers import as_float, finite_in, keep, read
from runhooks.summary.kinds.tensor import encode_strings
from runhooks.summary.message import SummaryMetadata, Value, tensor_entry

_METADATA = SummaryMetadata("images")
_CHANNELS = (1, 2, 3, 4)
_BRIGHTEST = 255.5  # fractions are cut off
_RED = np.array((255, 0, 0, 255), np.uint8)


def image_batch_value(
    tag: str, images: Any, axes: str = "NHWC", max_outputs: int = 3, rgb: bool = False
) -> Value:
    """Return the first ``max_outputs`` of ``images``, to be written under one tag.

    Args:
        tag: The tag.
        images: uint8 (0 to 255) is written as it is; a float type has the range 0.0 to 1.0, and
            what is beyond is cut off. A pixel that is not finite is red, or dark in gray, with a
            warning once for each tag.
        axes: What its axes are: ``"NHWC"``, ``"NHW"``, ``"HWC"`` or ``"HW"``.
        max_outputs: How many images to write at most.
        rgb: Whether gray images are written in RGB.

    Raises:
        ValueError: ``images`` has other axes.
        TypeError: ``images`` has another dtype.
    """
    arguments.whole(0, max_outputs=max_outputs)
    kept = keep(_name(tag), images, partial(_check, axes))
    return Value(tag, (kept, axes, max_outputs, rgb), _encode)


def _name(tag: str) -> str:
    return f"image summary {tag!r}"


def _check(axes: str, what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    channels = shape[-1] if axes.endswith("C") and shape else 1
    if len(shape) != len(axes) or channels not in _CHANNELS or 0 in shape[axes.startswith("N") :]:
        raise ValueError(
            f"{what} must have the axes {axes} with 1 to 4 channels, got the shape {list(shape)}"
        )
    if dtype.kind in "iu" and dtype != np.uint8:
        raise TypeError(
            f"{what} must be uint8 (0 to 255), bool or a float type (0.0 to 1.0), got {dtype}: "
            "convert it with .astype('uint8')"
        )


def _encode(tag: str, data: tuple[Any, str, int, bool]) -> bytes:
    kept, axes, max_outputs, rgb = data
    array = read(_name(tag), kept, partial(_check, axes))
    array = array if axes.startswith("N") else array[None]
    array = array if axes.endswith("C") else array[..., None]
    height, width = array.shape[1:3]
    pixels = _pixels(tag, array[:max_outputs])
    if rgb and pixels.shape[-1] == 1:
        pixels = np.repeat(pixels, 3, axis=-1)
    strings = (b"%d" % width, b"%d" % height, *map(encode_png, pixels))
    return tensor_entry(tag, encode_strings((len(strings),), strings), _METADATA)


def _pixels(tag: str, batch: NDArray[Any]) -> NDArray[np.uint8]:
    if batch.dtype == np.uint8:
        return batch
    numbers = as_float(batch)
    finite = finite_in("image", tag, numbers, "shown red or dark")
    scaled = np.nan_to_num(numbers, posinf=0, neginf=0) * numbers.dtype.type(_BRIGHTEST)
    pixels: NDArray[np.uint8] = scaled.clip(0, 255).astype(np.uint8)
    if not finite.all() and pixels.shape[-1] > 2:
        pixels[~finite.all(axis=-1)] = _RED[: pixels.shape[-1]]
    return pixels
