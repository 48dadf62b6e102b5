"""Boxes with labels, drawn on a picture by Pillow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

_RED, _BLACK = "Red", "black"
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
    draw.line(outline, width=_THICKNESS, fill=_RED)
    if not label:
        return
    font = ImageFont.load_default()
    x_min, y_min, x_max, y_max = font.getbbox(label)
    text_width, text_height = x_max - x_min, y_max - y_min
    margin = math.ceil(_MARGIN * text_height)
    above = bottom - text_height - 2 * margin
    draw.rectangle([(left, above), (left + text_width, bottom)], fill=_RED)
    draw.text((left + margin, bottom - text_height - margin), label, fill=_BLACK, font=font)
