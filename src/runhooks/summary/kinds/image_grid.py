"""Pictures in RGB: one, or a batch that is laid out as a grid, with boxes drawn on it."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.events.format import proto
from runhooks.summary.kinds.image import encode_png
from runhooks.summary.kinds.real_numbers import finite_in, keep, read, warn_of_range
from runhooks.summary.message import Value, entry

_RED_PEN, _BLACK = "Red", "black"
_THICKNESS = 2
_MARGIN = 0.05  # around a label, of its height


def check_pillow(what: str) -> None:
    """Raise ImportError, which says what to install, if there is no Pillow; ``what`` needs it."""
    try:
        import PIL  # noqa: F401
    except ImportError as error:
        raise ImportError(f"{what} needs Pillow: pip install pillow") from error


def with_boxes(
    pixels: NDArray[np.uint8], corners: NDArray[Any], labels: list[str] | None, rescale: float
) -> NDArray[np.uint8]:
    """Return a picture with red boxes, enlarged by ``rescale``.

    Args:
        pixels: uint8 ``[height, width, channels]``.
        corners: ``[n, 4]``: xmin, ymin, xmax and ymax of each box.
        labels: A text for each box, shown inside of its lower left corner.
        rescale: By how much the picture is enlarged afterwards.
    """
    from PIL import Image, ImageDraw

    height, width = pixels.shape[:2]
    picture: Any = Image.fromarray(pixels)
    draw = ImageDraw.Draw(picture)
    for number, corner in enumerate(corners.tolist()):
        _draw_box(draw, corner, labels[number] if labels else "")
    size = int(width * rescale), int(height * rescale)
    if size != (width, height):
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    drawn: NDArray[np.uint8] = np.asarray(picture)
    return drawn


def _draw_box(draw: Any, corner: list[float], label: str) -> None:
    from PIL import ImageFont

    left, top, right, bottom = corner
    outline = [(left, top), (left, bottom), (right, bottom), (right, top), (left, top)]
    draw.line(outline, width=_THICKNESS, fill=_RED_PEN)
    if not label:
        return
    font = ImageFont.load_default()
    x_min, y_min, x_max, y_max = font.getbbox(label)
    text_width, text_height = x_max - x_min, y_max - y_min
    margin = math.ceil(_MARGIN * text_height)
    above = bottom - text_height - 2 * margin
    draw.rectangle([(left, above), (left + text_width, bottom)], fill=_RED_PEN)
    draw.text((left + margin, bottom - text_height - margin), label, fill=_BLACK, font=font)


_IMAGE = 4
_COLUMNS = 8
_CHANNELS = (1, 2, 3, 4)
_GRID_CHANNELS = (1, 3, 4)
_AXES = {2: "HW", 3: "HWC", 4: "NHWC"}
_BLOCK = 1 << 16  # numbers at a time, so that what is made on the way takes no fresh memory
_RED = np.array((255, 0, 0, 255), np.uint8)


class Boxes(NamedTuple):
    """Boxes to draw on a picture.

    ``corners``: ``[n, 4]``, xmin, ymin, xmax, ymax in pixels. ``labels``: a text for each, or None.
    ``rescale``: by how much the picture is enlarged afterwards.
    """

    corners: Any
    labels: list[str] | None
    rescale: float


def grid_value(tag: str, image: Any, axes: str, boxes: Boxes | None = None) -> Value:
    """Return ``image``, to be written as one PNG file in RGB or RGBA.

    Args:
        tag: The tag.
        image: uint8 (0 to 255) is written as it is. Any other dtype is multiplied by 255, cut off
            at 0 and 255, with a warning once for each tag, and fractions are cut off. A pixel that
            is not finite is red, and a warning, once for each tag, says how many numbers were not.
            One channel is gray. The images of a batch are put side by side, 8 in a row.
        axes: What the axes of ``image`` are: the letters of ``"HW"``, ``"HWC"`` or ``"NHWC"``, in
            any order.
        boxes: What to draw on it.

    Raises:
        ValueError: ``axes`` is something else, or ``image`` does not have these axes.
        TypeError: ``image`` is not made of real numbers.
    """
    order = axes.upper()
    if len(set(order)) != len(order) or set(order) not in map(set, _AXES.values()):
        raise ValueError(
            f"the axes of {_name(tag)} must be those of HW, HWC or NHWC in any order, got {axes!r}"
        )
    check = partial(_check, order)
    kept = keep(_name(tag), image, check)
    if boxes is not None:
        boxes = boxes._replace(
            corners=keep(f"the boxes of {_name(tag)}", boxes.corners, _check_boxes)
        )
    return Value(tag, (kept, order, boxes), _encode)


def as_bytes_of_color(kind: str, tag: str, numbers: NDArray[Any]) -> NDArray[np.uint8]:
    """Return ``numbers`` as 0 to 255, 1.0 being the brightest; those that are not finite are 0."""
    if numbers.dtype == np.uint8:
        return numbers
    numbers = numbers.astype(np.float32, copy=False)
    if not are_finite(numbers):
        finite_in(kind, tag, numbers, "shown red or dark")
        numbers = np.nan_to_num(numbers, posinf=0, neginf=0)
    warn_of_range(kind, tag, numbers, "0.0 to 1.0", "cut off; convert 0 to 255 to uint8")
    pixels = np.empty(numbers.shape, np.uint8)
    step = max(_BLOCK * len(numbers) // max(numbers.size, 1), 1)
    with np.errstate(over="ignore"):
        for begin in range(0, len(numbers), step):
            scaled = numbers[begin : begin + step] * np.float32(255)
            np.clip(scaled, 0, 255, out=scaled)
            pixels[begin : begin + step] = scaled.astype(np.uint8)
    return pixels


def are_finite(numbers: NDArray[Any]) -> bool:
    """Whether all of ``numbers`` are finite, in one pass if so; False for huge ones too."""
    if numbers.dtype.kind in "biu":
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(numbers.sum(dtype=np.float32)))


def in_rows(images: NDArray[Any], columns: int) -> NDArray[Any]:
    """Return ``images``, ``[N, height, width, C]``, side by side as one, ``columns`` in a row."""
    count, height, width, channels = images.shape
    columns = max(min(count, columns), 1)
    rows = -(-count // columns)
    canvas = np.zeros((rows * columns, height, width, channels), images.dtype)
    canvas[:count] = images
    by_rows = canvas.reshape(rows, columns, height, width, channels)
    return by_rows.swapaxes(1, 2).reshape(rows * height, columns * width, channels)


def image_entry(tag: str, height: int, width: int, channels: int, encoded: bytes) -> bytes:
    """Return an entry of a summary that holds ``encoded``, a file of an image or an animation."""
    fields = (
        proto.varint_field(1, height),
        proto.varint_field(2, width),
        proto.varint_field(3, channels),
        proto.bytes_field(4, encoded),
    )
    return entry(tag, proto.bytes_field(_IMAGE, b"".join(fields)))


def _name(tag: str) -> str:
    return f"image summary {tag!r}"


def _check(axes: str, what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if len(shape) != len(axes):
        raise ValueError(f"{what} must have the axes {axes}, got the shape {list(shape)}")
    sizes = dict(zip(axes, shape, strict=True))
    allowed = _GRID_CHANNELS if "N" in axes else _CHANNELS
    if sizes.get("C", 1) not in allowed or 0 in shape:
        raise ValueError(
            f"{what} must have the axes {axes} with {', '.join(map(str, allowed))} channels, "
            f"got the shape {list(shape)}: dataformats says what its axes are, such as 'CHW'"
        )


def _check_boxes(what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if len(shape) != 2 or shape[1] != 4:
        raise ValueError(
            f"{what} must have the shape [n, 4], xmin, ymin, xmax, ymax, got {list(shape)}"
        )


def _encode(tag: str, data: tuple[Any, str, Boxes | None]) -> bytes:
    image, axes, boxes = data
    array = read(_name(tag), image, partial(_check, axes))
    array = array.transpose([axes.index(axis) for axis in _AXES[len(axes)]])
    array = array[..., None] if "C" not in axes else array
    picture = in_rows(array, _COLUMNS) if "N" in axes else array
    pixels = as_bytes_of_color("image", tag, picture)
    if pixels.shape[-1] == 1:
        pixels = np.repeat(pixels, 3, axis=-1)
    if not are_finite(picture) and pixels.shape[-1] > 2:
        pixels[~np.isfinite(picture).all(axis=-1)] = _RED[: pixels.shape[-1]]
    height, width, channels = pixels.shape
    if boxes is not None:
        corners = read(f"the boxes of {_name(tag)}", boxes.corners, _check_boxes)
        pixels = with_boxes(pixels, corners, boxes.labels, boxes.rescale)
    return image_entry(tag, height, width, channels, encode_png(np.ascontiguousarray(pixels)))
