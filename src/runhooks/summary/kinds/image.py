"""Images, shown as PNG: scaled as TensorFlow does it, as they are, or a batch as a tensor."""

from __future__ import annotations

import struct
import zlib
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks import arguments
from runhooks.events.format import proto
from runhooks.summary.kinds.real_numbers import as_float, finite_in, keep, read, warn_of_range
from runhooks.summary.kinds.tensor import encode_strings
from runhooks.summary.message import SummaryMetadata, Value, entry, tensor_entry

_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
_UP = 2  # the filter that leaves the difference from the row above


def encode_png(image: NDArray[np.uint8]) -> bytes:
    """Return ``image``, uint8 ``[height, width, channels]`` with 1 to 4 channels, as a PNG file."""
    height, width, channels = image.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    pixels = image.reshape(height, -1)
    rows = np.empty((height, 1 + width * channels), np.uint8)
    rows[:, 0] = _UP
    rows[0, 1:] = pixels[0]
    np.subtract(pixels[1:], pixels[:-1], out=rows[1:, 1:])
    # Filtered rows have runs and frequent bytes; a search for more costs many times the time.
    deflate = zlib.compressobj(strategy=zlib.Z_RLE)
    data = deflate.compress(rows.data) + deflate.flush()
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", header),
            _chunk(b"IDAT", data),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(content, zlib.crc32(kind))
    return b"".join((struct.pack(">I", len(content)), kind, content, struct.pack(">I", check)))


_IMAGE = 4
_METADATA = SummaryMetadata("images")
_CHANNELS = (1, 3, 4)  # gray, RGB or RGBA
_AXES_BY_RANK = {2: "HW", 3: "HWC", 4: "NHWC"}
_FORMATS = ("HW", "HWC", "CHW", "NHW", "NHWC", "NCHW")
_NOTHING = 1e-6  # what is below this is not scaled up
_BAD_PIXEL = np.array((255, 0, 0, 255), np.uint8)


def image_value(tag: str, images: Any, max_outputs: int = 3) -> Value:
    """Return the first ``max_outputs`` of ``images``, to be written as PNG files.

    All this is as in ``tf.compat.v1.summary.image``, only that float16 is scaled as float32 is.

    Args:
        tag: The images are tagged ``tag/image/0`` and on; ``tag/image`` if ``max_outputs`` is 1.
        images: ``[N, height, width, channels]`` with 1 (gray), 3 (RGB) or 4 (RGBA) channels.
            uint8 is written as it is. Any float type is scaled, each image by itself: if it has
            no negative number its largest becomes 255; else 0.0 becomes 128 and the number
            farthest from it 1 or 255; an image with none beyond 1e-6 is all 0, or all 128.
            Fractions are cut off. A pixel that is not finite becomes red, or white in gray.
        max_outputs: How many images to write at most.

    Raises:
        ValueError: ``images`` has another shape, or ``max_outputs`` is below 1.
        TypeError: ``images`` has another dtype.
    """
    arguments.whole(max_outputs=max_outputs)
    return Value(tag, (keep(_name(tag), images, _check_batch), max_outputs), _encode_batch)


def picture_value(tag: str, image: Any, data_format: str | None = None) -> Value:
    """Return ``image``, one or a batch, to be written as PNG under one tag.

    Args:
        tag: The tag of all of them.
        image: uint8 (0 to 255) is written as it is; bool is black and white; a float type has the
            range 0.0 to 1.0, and what is beyond is cut off. A pixel that is not finite is red, or
            white in gray. A warning, once for each tag, says how many numbers were not.
        data_format: What its axes are: ``"HW"``, ``"HWC"``, ``"CHW"``, ``"NHW"``, ``"NHWC"`` or
            ``"NCHW"``, with 1, 3 or 4 channels. None: ``"HW"``, ``"HWC"`` or ``"NHWC"``, by
            their number.

    Raises:
        ValueError: ``image`` has another shape, or ``data_format`` is none of these.
        TypeError: ``image`` has another dtype.
    """
    if data_format not in (None, *_FORMATS):
        raise ValueError(
            f"data_format of image summary {tag!r} must be one of {', '.join(_FORMATS)}, "
            f"got {data_format!r}"
        )
    check = partial(_check_picture, data_format)
    return Value(tag, (keep(_name(tag), image, check), data_format), _encode_picture)


def _name(tag: str) -> str:
    return f"image summary {tag!r}"


def _check_batch(what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if len(shape) != 4 or shape[3] not in _CHANNELS or 0 in shape[1:]:
        raise ValueError(
            f"{what} must have the shape [N, height, width, channels] with 1, 3 or 4 channels, "
            f"got {list(shape)}"
        )
    if dtype.kind in "iub" and dtype != np.uint8:
        raise TypeError(
            f"{what} must be uint8 (0 to 255) or a float type, got {dtype}: "
            "convert it with .astype('uint8')"
        )


def _check_picture(
    data_format: str | None, what: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> None:
    axes = data_format or _AXES_BY_RANK.get(len(shape))
    if axes is None:
        raise ValueError(f"{what} must have the shape HW, HWC or NHWC, got {list(shape)}")
    sizes = dict(zip(axes, shape, strict=False))
    channels = sizes.get("C", 1)
    if len(shape) != len(axes) or channels not in _CHANNELS or not sizes["H"] * sizes["W"]:
        raise ValueError(
            f"{what} must have the shape {axes} with 1, 3 or 4 channels, got {list(shape)}: "
            "data_format says what its axes are, such as 'CHW'"
        )
    if dtype.kind in "iu" and dtype != np.uint8:
        raise TypeError(
            f"{what} must be uint8 (0 to 255), bool or a float type (0.0 to 1.0), got {dtype}: "
            "convert it with .astype('uint8')"
        )


def _encode_batch(tag: str, data: tuple[Any, int]) -> bytes:
    images, max_outputs = data
    batch = read(_name(tag), images, _check_batch)[:max_outputs]
    tags = [f"{tag}/image/{index}" for index in range(len(batch))]
    if max_outputs == 1:
        tags = [f"{tag}/image"]
    pixels = (image if image.dtype == np.uint8 else _scaled(image) for image in batch)
    return b"".join(map(_image_entry, tags, pixels))


def _encode_picture(tag: str, data: tuple[Any, str | None]) -> bytes:
    image, data_format = data
    array = read(_name(tag), image, partial(_check_picture, data_format))
    axes = data_format or _AXES_BY_RANK[array.ndim]
    missing = [axis for axis in "NC" if axis not in axes]
    named = "".join(missing) + axes
    batch = array[(None,) * len(missing)].transpose([named.index(axis) for axis in "NHWC"])
    pixels = batch if batch.dtype == np.uint8 else _pixels(tag, batch)
    if "N" not in axes:
        return _image_entry(tag, pixels[0])
    # As tf.summary.image has it: width and height as text, and a PNG file for each.
    height, width = pixels.shape[1:3]
    strings = (b"%d" % width, b"%d" % height, *map(encode_png, pixels))
    return tensor_entry(tag, encode_strings((len(strings),), strings), _METADATA)


def _image_entry(tag: str, pixels: NDArray[np.uint8]) -> bytes:
    height, width, channels = pixels.shape
    fields = (
        proto.varint_field(1, height),
        proto.varint_field(2, width),
        proto.varint_field(3, channels),
        proto.bytes_field(4, encode_png(pixels)),
    )
    return entry(tag, proto.bytes_field(_IMAGE, b"".join(fields)))


def _pixels(tag: str, batch: NDArray[Any]) -> NDArray[np.uint8]:
    if batch.dtype == np.bool_:
        return batch.astype(np.uint8) * np.uint8(255)
    numbers = as_float(batch)
    finite = finite_in("image", tag, numbers, "shown red")
    warn_of_range(
        "image", tag, numbers if finite.all() else numbers[finite], "0.0 to 1.0", "cut off"
    )
    shown = np.clip(np.nan_to_num(numbers), 0, 1)
    pixels: NDArray[np.uint8] = np.rint(shown * numbers.dtype.type(255)).astype(np.uint8)
    _redden(pixels, np.logical_not(finite.all(axis=3)))
    return pixels


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
    _redden(pixels, ~finite)
    return pixels


def _redden(pixels: NDArray[np.uint8], where: NDArray[np.bool_]) -> None:
    """Make the pixels ``where`` it is True red, or white in gray: they have no color to show."""
    pixels[where] = _BAD_PIXEL[: pixels.shape[-1]]


_BATCH_CHANNELS = (1, 2, 3, 4)
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


def _check(axes: str, what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    channels = shape[-1] if axes.endswith("C") and shape else 1
    if (
        len(shape) != len(axes)
        or channels not in _BATCH_CHANNELS
        or 0 in shape[axes.startswith("N") :]
    ):
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
    pixels = _batch_pixels(tag, array[:max_outputs])
    if rgb and pixels.shape[-1] == 1:
        pixels = np.repeat(pixels, 3, axis=-1)
    strings = (b"%d" % width, b"%d" % height, *map(encode_png, pixels))
    return tensor_entry(tag, encode_strings((len(strings),), strings), _METADATA)


def _batch_pixels(tag: str, batch: NDArray[Any]) -> NDArray[np.uint8]:
    if batch.dtype == np.uint8:
        return batch
    numbers = as_float(batch)
    finite = finite_in("image", tag, numbers, "shown red or dark")
    scaled = np.nan_to_num(numbers, posinf=0, neginf=0) * numbers.dtype.type(_BRIGHTEST)
    pixels: NDArray[np.uint8] = scaled.clip(0, 255).astype(np.uint8)
    if not finite.all() and pixels.shape[-1] > 2:
        pixels[~finite.all(axis=-1)] = _RED[: pixels.shape[-1]]
    return pixels
