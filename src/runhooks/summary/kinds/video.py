"""Videos, written as animated GIF."""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks import arguments
from runhooks.summary.kinds.image import as_pixels, image_entry
from runhooks.summary.kinds.real_numbers import Kept, keep
from runhooks.summary.message import Value

_AXES = "NTCHW"
_CHANNELS = (1, 3)
_COLORS = 256
_SHORTEST_MS = 20  # viewers show faster frames ten times slower
_GRAYS = np.arange(256, dtype=np.uint8).repeat(3).tobytes()
_SCREEN = Struct("<6sHHBBB")
_REPEAT = b"!\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"


def video_value(tag: str, video: Any, frames_per_second: float = 4, axes: str = _AXES) -> Value:
    """Return a batch of videos, side by side in one animated GIF.

    Args:
        tag: The tag.
        video: ``[N, frames, channels, height, width]``, gray or RGB: uint8 (0 to 255), or another
            dtype from 0.0 to 1.0; what is beyond is cut off. Black ones fill up their number to a
            power of two. The colors of a frame are reduced to 256.
        frames_per_second: How fast it is shown, in steps of 1/100 second a frame.
        axes: The axes of ``video``: the letters of ``"NTCHW"`` in any order.

    Raises:
        ValueError: ``video`` has other axes, or ``frames_per_second`` is not above 0.
        TypeError: ``video`` is not made of real numbers.
        ImportError: Pillow is not installed.
    """
    try:
        import PIL  # noqa: F401
    except ImportError as error:
        raise ImportError(f"the {_name(tag)} needs Pillow: pip install pillow") from error
    arguments.positive(fps=frames_per_second)
    order = axes.upper()
    if sorted(order) != sorted(_AXES):
        raise ValueError(f"the axes of {_name(tag)} must be those of {_AXES}, got {axes!r}")
    kept = keep(_name(tag), video, partial(_check, order))
    return Value(tag, (kept, frames_per_second, order), _encode)


def _name(tag: str) -> str:
    return f"video summary {tag!r}"


def _check(axes: str, what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    sizes = dict(zip(axes, shape, strict=False))
    if len(shape) != len(axes) or sizes["C"] not in _CHANNELS or 0 in shape:
        raise ValueError(
            f"{what} must have the axes {axes} with 1 or 3 channels, got the shape {list(shape)}"
        )


def _encode(tag: str, data: tuple[Kept, float, str]) -> bytes:
    video, frames_per_second, axes = data
    frames = _side_by_side(video.read().transpose([axes.index(axis) for axis in "NTHWC"]))
    pixels = as_pixels("video", tag, frames)
    return image_entry(tag, pixels[0], encode_gif(pixels, frames_per_second))


def _side_by_side(videos: NDArray[Any]) -> NDArray[Any]:
    """Return ``[N, frames, height, width, C]`` as ``[frames, rows, columns, C]``."""
    count, frames, height, width, channels = videos.shape
    total = 1 << (count - 1).bit_length()
    padded = np.zeros((total, *videos.shape[1:]), videos.dtype)
    padded[:count] = videos
    rows = 1 << (count.bit_length() - 1) // 2
    columns = total // rows
    placed = padded.reshape(rows, columns, frames, height, width, channels)
    return placed.transpose(2, 0, 3, 1, 4, 5).reshape(
        frames, rows * height, columns * width, channels
    )


def encode_gif(frames: NDArray[np.uint8], frames_per_second: float) -> bytes:
    """Return ``[n, height, width, 1 or 3]`` as a GIF that repeats; a frame has what changed."""
    from PIL.GifImagePlugin import getdata

    _, height, width, _ = frames.shape
    duration = max(round(100 / frames_per_second) * 10, _SHORTEST_MS)
    parts = [_SCREEN.pack(b"GIF89a", width, height, 0, 0, 0), _REPEAT]
    previous = None
    for frame in frames:
        # Image.save would merge a frame with an equal one before it.
        top, bottom, left, right = _changed(frame, previous)
        picture = _picture(frame[top:bottom, left:right])
        parts += getdata(picture, (left, top), duration=duration, include_color_table=True)
        previous = frame
    return b"".join((*parts, b";"))


def _changed(frame: NDArray[np.uint8], previous: NDArray[np.uint8] | None) -> tuple[int, ...]:
    """Return the top, bottom, left and right of what changed; of a pixel if nothing has."""
    height, width, _ = frame.shape
    if previous is None:
        return 0, height, 0, width
    changed = (frame != previous).any(axis=-1)
    if not changed.any():
        return 0, 1, 0, 1
    rows, columns = (np.flatnonzero(changed.any(axis=axis)).tolist() for axis in (1, 0))
    return rows[0], rows[-1] + 1, columns[0], columns[-1] + 1


def _picture(frame: NDArray[np.uint8]) -> Any:
    from PIL import Image

    if frame.shape[-1] == 1:
        gray = Image.fromarray(frame[..., 0])
        gray.putpalette(_GRAYS)
        return gray
    picture = Image.fromarray(frame)
    if picture.getcolors(_COLORS) is None:
        return picture.quantize(_COLORS, Image.Quantize.FASTOCTREE)
    red, green, blue = np.moveaxis(frame.astype(np.uint32), -1, 0)
    colors, numbers = np.unique(red << 16 | green << 8 | blue, return_inverse=True)
    exact = Image.fromarray(numbers.reshape(frame.shape[:2]).astype(np.uint8))
    exact.putpalette(colors.astype(">u4").view(np.uint8).reshape(-1, 4)[:, 1:].tobytes())
    return exact
