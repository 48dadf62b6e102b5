"""Pictures: images whose numbers mean brightness, shown as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks.summary.kinds.image import CHANNELS, image_entry, redden
from runhooks.summary.kinds.non_finite import finite_in, warn_of_range
from runhooks.summary.kinds.png import encode_png
from runhooks.summary.kinds.real_array import as_float, as_now, read_real_array
from runhooks.summary.kinds.tensor import encode_strings
from runhooks.summary.message import Value
from runhooks.summary.metadata import SummaryMetadata, tensor_entry

_METADATA = SummaryMetadata("images")
_BY_RANK = {2: "HW", 3: "HWC", 4: "NHWC"}
_FORMATS = ("HW", "HWC", "CHW", "NHW", "NHWC", "NCHW")


def picture_value(tag: str, image: Any, data_format: str | None = None) -> Value:
    """Return ``image``, one or a batch, to be written as PNG under one tag.

    uint8 is written as it is; bool is black and white; a float type has the range 0.0 to 1.0, and
    what is beyond is cut off. A pixel that is not finite is red, or white in gray, and a warning,
    once for each tag, says how many numbers were not. ``data_format``: what its axes are:
    ``"HW"``, ``"HWC"``, ``"CHW"``, ``"NHW"``, ``"NHWC"`` or ``"NCHW"``, with 1, 3 or 4 channels;
    if None, by their number ``"HW"``, ``"HWC"`` or ``"NHWC"``.

    It is read when the summary is written, which raises ValueError for another shape and TypeError
    for another dtype. Raises ValueError for another ``data_format``.
    """
    if data_format not in (None, *_FORMATS):
        raise ValueError(
            f"data_format of image summary {tag!r} must be one of {', '.join(_FORMATS)}, "
            f"got {data_format!r}"
        )
    return Value(tag, (as_now(image), data_format), _encode)


def _encode(tag: str, data: tuple[Any, str | None]) -> bytes:
    image, data_format = data
    array = read_real_array(tag, image)
    axes = data_format or _BY_RANK.get(array.ndim)
    if axes is None:
        raise ValueError(
            f"image summary {tag!r} must have the shape HW, HWC or NHWC, got {list(array.shape)}"
        )
    batch = _batch(tag, array, axes)
    pixels = batch if batch.dtype == np.uint8 else _pixels(tag, batch)
    if "N" not in axes:
        return image_entry(tag, pixels[0])
    # As tf.summary.image has it: width and height as text, and a PNG file for each.
    height, width = pixels.shape[1:3]
    strings = (b"%d" % width, b"%d" % height, *map(encode_png, pixels))
    return tensor_entry(tag, encode_strings((len(strings),), strings), _METADATA)


def _batch(tag: str, array: NDArray[Any], axes: str) -> NDArray[Any]:
    """Return ``array`` with the axes NHWC."""
    batch = array
    if array.ndim == len(axes):
        missing = [axis for axis in "NC" if axis not in axes]
        named = "".join(missing) + axes
        batch = array[(None,) * len(missing)].transpose([named.index(axis) for axis in "NHWC"])
    if batch.ndim != 4 or batch.shape[3] not in CHANNELS or 0 in batch.shape[1:]:
        raise ValueError(
            f"image summary {tag!r} must have the shape {axes} with 1, 3 or 4 channels, "
            f"got {list(array.shape)}: data_format says what its axes are, such as 'CHW'"
        )
    return batch


def _pixels(tag: str, batch: NDArray[Any]) -> NDArray[np.uint8]:
    if batch.dtype == np.bool_:
        return batch.astype(np.uint8) * np.uint8(255)
    if batch.dtype.kind in "iu":
        raise TypeError(
            f"image summary {tag!r} must be uint8 (0 to 255), bool or a float type (0.0 to 1.0), "
            f"got {batch.dtype}: convert it with .astype('uint8')"
        )
    numbers = as_float(batch)
    finite = finite_in("image", tag, numbers, "shown red")
    warn_of_range(
        "image", tag, numbers if finite.all() else numbers[finite], "0.0 to 1.0", "cut off"
    )
    shown = np.clip(np.nan_to_num(numbers), 0, 1)
    pixels: NDArray[np.uint8] = np.rint(shown * numbers.dtype.type(255)).astype(np.uint8)
    redden(pixels, np.logical_not(finite.all(axis=3)))
    return pixels
