"""Images, written as PNG: scaled as TensorFlow does it, as they are, a batch, or a grid."""

from __future__ import annotations

import struct
import zlib
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks import arguments
from runhooks.events.format import proto
from runhooks.summary.kinds.real_numbers import (
    Kept,
    as_float,
    finite_in,
    keep,
    numbered,
    warn_of_range,
)
from runhooks.summary.kinds.tensor import encode_strings
from runhooks.summary.message import SummaryMetadata, Value, entry, tensor_entry

_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
_UP = 2  # the filter that leaves the difference from the row above


def encode_png(image: NDArray[np.uint8]) -> bytes:
    """Return ``image``, ``[height, width, channels]`` with 1 to 4 channels, as a PNG file."""
    height, width, channels = image.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    pixels = image.reshape(height, -1)
    rows = np.empty((height, 1 + width * channels), np.uint8)
    rows[:, 0] = _UP
    rows[0, 1:] = pixels[0]
    np.subtract(pixels[1:], pixels[:-1], out=rows[1:, 1:])
    # Filtered rows have runs; a search for more would take many times as long.
    deflate = zlib.compressobj(strategy=zlib.Z_RLE)
    data = deflate.compress(rows.data) + deflate.flush()
    chunks = _chunk(b"IHDR", header), _chunk(b"IDAT", data), _chunk(b"IEND", b"")
    return b"".join((b"\x89PNG\r\n\x1a\n", *chunks))


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(content, zlib.crc32(kind))
    return b"".join((struct.pack(">I", len(content)), kind, content, struct.pack(">I", check)))


_IMAGE = 4
_METADATA = SummaryMetadata("images")
_CHANNELS = _COLOR_TYPES.keys()
_AXES_BY_RANK = {2: "HW", 3: "HWC", 4: "NHWC"}
_AXES = set(map(frozenset, ("HW", "HWC", "NHW", "NHWC")))
_COLUMNS = 8  # of a grid
_NOTHING = 1e-6  # what is below this is not scaled up
_BLOCK = 1 << 16  # numbers at a time, for which no fresh memory is needed
_BAD_PIXELS: dict[int, tuple[int, ...]] = {
    1: (255,),
    2: (255, 255),
    3: (255, 0, 0),
    4: (255, 0, 0, 255),
}


def image_value(tag: str, images: Any, max_outputs: int = 3) -> Value:
    """Return the first ``max_outputs`` of ``images``, as ``tf.compat.v1.summary.image``.

    Only float16 differs: it is scaled as float32.

    Args:
        tag: The images are tagged ``tag/image/0`` and on; ``tag/image`` if ``max_outputs`` is 1.
        images: ``[N, height, width, channels]``, gray, RGB or RGBA. uint8 is written as it is. Of
            floats, each image is scaled: its largest number becomes 255, or if one is negative, 0.0
            becomes 128 and the number farthest from it 1 or 255; without any beyond 1e-6, all is 0,
            or 128. Fractions are cut off. A pixel that is not finite becomes red, or white in gray.
        max_outputs: At least 1.

    Raises:
        ValueError: ``images`` has another shape, or ``max_outputs`` is below 1.
        TypeError: ``images`` has another dtype.
    """
    arguments.whole(max_outputs=max_outputs)
    return Value(tag, (keep(_name(tag), images, _check_batch), max_outputs), _encode_batch)


def picture_value(
    tag: str,
    image: Any,
    data_format: str | None = None,
    *,
    grid: bool = False,
) -> Value:
    """Return an image, or a batch under one tag.

    Args:
        tag: The tag.
        image: uint8 (0 to 255), bool (black and white), or floats from 0.0 to 1.0; what is beyond
            is cut off. A pixel that is not finite is red, or white in gray. One warning per tag.
        data_format: The order of its axes: the letters of ``"HW"``, ``"HWC"``, ``"NHW"`` or
            ``"NHWC"`` in any order, with 1 to 4 channels. None: one of these, by their number.
        grid: Whether a batch is written as one picture, 8 images in a row. Integers other than
            uint8 are then 0 or 1, as in torch.

    Raises:
        ValueError: ``image`` has another shape, or ``data_format`` is none of these.
        TypeError: ``image`` has another dtype.
    """
    axes = data_format.upper() if data_format is not None else None
    if axes is not None and (len(set(axes)) < len(axes) or frozenset(axes) not in _AXES):
        raise ValueError(
            f"the axes of {_name(tag)} must be those of HW, HWC, NHW or NHWC, in any order, "
            f"got {data_format!r}"
        )
    kept = keep(_name(tag), image, partial(_check_picture, axes, grid))
    return Value(tag, (kept, axes, grid), _encode_picture)


def _name(tag: str) -> str:
    return f"image summary {tag!r}"


def _check_batch(what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if len(shape) != 4 or shape[3] not in _CHANNELS or 0 in shape[1:]:
        raise ValueError(
            f"{what} must have the shape [N, height, width, channels] with 1 to 4 channels, "
            f"got {list(shape)}"
        )
    if dtype.kind in "iub" and dtype != np.uint8:
        raise TypeError(
            f"{what} must be uint8 (0 to 255) or a float type, got {dtype}: "
            "convert it with .astype('uint8')"
        )


def _check_picture(
    given: str | None, grid: bool, what: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> None:
    axes = given or _AXES_BY_RANK.get(len(shape), "HW")
    sizes = dict(zip(axes, shape, strict=False))
    is_empty = 0 in shape if grid else 0 in (sizes.get("H"), sizes.get("W"))
    if len(shape) != len(axes) or sizes.get("C", 1) not in _CHANNELS or is_empty:
        raise ValueError(
            f"{what} must have the shape {axes} with 1 to 4 channels, got {list(shape)}: "
            "say what its axes are, such as 'CHW'"
        )
    if dtype.kind in "iu" and dtype != np.uint8 and not grid:
        raise TypeError(
            f"{what} must be uint8 (0 to 255), bool or a float type (0.0 to 1.0), got {dtype}: "
            "convert it with .astype('uint8')"
        )


def _encode_batch(tag: str, data: tuple[Kept, int]) -> bytes:
    images, max_outputs = data
    return b"".join(
        image_entry(name, image if image.dtype == np.uint8 else _scaled(image))
        for name, image in numbered(f"{tag}/image", images.read(), max_outputs)
    )


def _encode_picture(tag: str, data: tuple[Kept, str | None, bool]) -> bytes:
    image, given, grid = data
    array = image.read()
    axes = given or _AXES_BY_RANK[array.ndim]
    missing = "".join(axis for axis in "NC" if axis not in axes)
    named = missing + axes
    batch = array[(None,) * len(missing)].transpose([named.index(axis) for axis in "NHWC"])
    if grid:
        batch = in_rows(batch, _COLUMNS)[None]
    pixels = as_pixels("image", tag, batch)
    if grid or "N" not in axes:
        return image_entry(tag, pixels[0])
    # As tf.summary.image has it: width and height as text, and a PNG file for each.
    height, width = pixels.shape[1:3]
    strings = (b"%d" % width, b"%d" % height, *map(encode_png, pixels))
    return tensor_entry(tag, encode_strings((len(strings),), strings), _METADATA)


def image_entry(tag: str, pixels: NDArray[np.uint8], encoded: bytes | None = None) -> bytes:
    """Return an entry of a summary: ``[height, width, channels]``, ``encoded`` or as PNG."""
    height, width, channels = pixels.shape
    fields = (
        proto.varint_field(1, height),
        proto.varint_field(2, width),
        proto.varint_field(3, channels),
        proto.bytes_field(4, encode_png(pixels) if encoded is None else encoded),
    )
    return entry(tag, proto.bytes_field(_IMAGE, b"".join(fields)))


def as_pixels(kind: str, tag: str, numbers: NDArray[Any]) -> NDArray[np.uint8]:
    """Return ``[..., channels]``, 0.0 to 1.0, as 0 to 255; what is not finite is red or white."""
    if numbers.dtype == np.uint8:
        return numbers
    if numbers.dtype == np.bool_:
        return numbers.astype(np.uint8) * np.uint8(255)
    with np.errstate(over="ignore"):
        shown = numbers.astype(np.float32, copy=False)
    finite = None if _are_finite(shown) else finite_in(kind, tag, numbers, "shown red")
    if finite is not None:
        warn_of_range(kind, tag, numbers[finite], "cut off")
        shown = np.nan_to_num(shown)
    else:
        warn_of_range(kind, tag, numbers, "cut off; convert 0 to 255 to uint8")
    pixels: NDArray[np.uint8] = np.empty(shown.shape, np.uint8)
    rows, out = (it.reshape(-1, *it.shape[-2:]) for it in (shown, pixels))
    step = max(_BLOCK * len(rows) // max(rows.size, 1), 1)
    with np.errstate(over="ignore"):
        for begin in range(0, len(rows), step):
            scaled = rows[begin : begin + step] * np.float32(255)
            np.rint(np.clip(scaled, 0, 255, out=scaled), out=scaled)
            out[begin : begin + step] = scaled.astype(np.uint8)
    if finite is not None:
        pixels[~finite.all(axis=-1)] = _BAD_PIXELS[pixels.shape[-1]]
    return pixels


def _are_finite(numbers: NDArray[Any]) -> bool:
    """Whether all are finite, found in one pass; False for huge ones too."""
    if numbers.dtype.kind in "biu":
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(numbers.sum(dtype=np.float32)))


def in_rows(images: NDArray[Any], columns: int) -> NDArray[Any]:
    """Return ``[N, height, width, C]`` as one image, ``columns`` in a row."""
    count, height, width, channels = images.shape
    columns = max(min(count, columns), 1)
    rows = -(-count // columns)
    canvas = np.zeros((rows * columns, height, width, channels), images.dtype)
    canvas[:count] = images
    by_rows = canvas.reshape(rows, columns, height, width, channels)
    return by_rows.swapaxes(1, 2).reshape(rows * height, columns * width, channels)


def _scaled(image: NDArray[Any]) -> NDArray[np.uint8]:
    image = as_float(image)
    finite = np.isfinite(image).all(axis=2)
    good = image[finite]
    least, largest = good.min(initial=np.inf), good.max(initial=-np.inf)
    zero, top, farthest = (128, 127, max(-least, largest)) if least < 0 else (0, 255, largest)
    with np.errstate(over="ignore"):
        farthest = np.float32(farthest)  # of single precision for float64 too
    pixels: NDArray[np.uint8] = np.empty(image.shape, np.uint8)
    pixels[finite] = good * (np.float32(top) / farthest if farthest >= _NOTHING else 0) + zero
    pixels[~finite] = _BAD_PIXELS[pixels.shape[-1]]
    return pixels
