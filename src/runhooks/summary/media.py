"""Images, sounds and videos, written as PNG, WAV and animated GIF."""

from __future__ import annotations

import struct
import zlib
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runhooks import arguments
from runhooks.events.format import proto
from runhooks.events.format.proto import int_field
from runhooks.summary.message import SummaryMetadata, Value, entry, tensor_entry
from runhooks.summary.values import (
    Kept,
    as_float,
    encode_strings,
    finite_in,
    keep,
    numbered,
    warn_once,
)

_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
_UP = 2  # filter: the difference from the row above


def encode_png(image: NDArray[np.uint8]) -> bytes:
    """Return ``[height, width, 1 to 4 channels]`` as a PNG file."""
    height, width, channels = image.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    pixels = image.reshape(height, -1)
    rows = np.empty((height, 1 + width * channels), np.uint8)
    rows[:, 0] = _UP
    rows[0, 1:] = pixels[0]
    np.subtract(pixels[1:], pixels[:-1], out=rows[1:, 1:])
    # Filtered rows have runs; more takes many times as long.
    deflate = zlib.compressobj(strategy=zlib.Z_RLE)
    data = deflate.compress(rows.data) + deflate.flush()
    chunks = _chunk(b"IHDR", header), _chunk(b"IDAT", data), _chunk(b"IEND", b"")
    return b"".join((b"\x89PNG\r\n\x1a\n", *chunks))


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(content, zlib.crc32(kind))
    return b"".join((struct.pack(">I", len(content)), kind, content, struct.pack(">I", check)))


_IMAGE = 4
_IMAGES = SummaryMetadata("images")
_CHANNELS = _COLOR_TYPES.keys()
_AXES_BY_RANK = {2: "HW", 3: "HWC", 4: "NHWC"}
_AXES = set(map(frozenset, ("HW", "HWC", "NHW", "NHWC")))
_COLUMNS = 8  # of a grid
_ROUNDING = 0.01
_NOTHING = 1e-6  # is not scaled up
_BLOCK = 1 << 16  # numbers at a time: no fresh memory is needed
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
        images: ``[N, height, width, 1 to 4 channels]``. uint8 is written as it is. Of floats, each
            image is scaled: its largest number becomes 255, or if one is negative, 0.0 becomes 128
            and the number farthest from it 1 or 255; without any beyond 1e-6, all is 0, or 128.
            Fractions are cut off. A pixel that is not finite is red, or white in gray.
        max_outputs: At least 1.

    Raises:
        ValueError, TypeError: ``images`` has another shape or dtype, or ``max_outputs`` is below 1.
    """
    arguments.whole(max_outputs=max_outputs)
    kept = keep(f"image summary {tag!r}", images, _check_images)
    return Value(tag, (kept, max_outputs), _encode_images)


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
        grid: Whether to write a batch as one picture, 8 images in a row. Integers other than uint8
            are then 0 or 1, as in torch.

    Raises:
        ValueError, TypeError: ``image`` has another shape or dtype, or ``data_format`` is wrong.
    """
    axes = data_format.upper() if data_format is not None else None
    if axes is not None and (len(set(axes)) < len(axes) or frozenset(axes) not in _AXES):
        raise ValueError(
            f"the axes of image summary {tag!r} must be those of HW, HWC, NHW or NHWC, in any "
            f"order, got {data_format!r}"
        )
    kept = keep(f"image summary {tag!r}", image, partial(_check_picture, axes, grid))
    return Value(tag, (kept, axes, grid), _encode_picture)


def _check_images(what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
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


def _encode_images(tag: str, data: tuple[Kept, int]) -> bytes:
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
        batch = in_rows(batch, min(len(batch), _COLUMNS))[None]
    pixels = as_pixels("image", tag, batch)
    if grid or "N" not in axes:
        return image_entry(tag, pixels[0])
    # As in tf.summary.image: width and height as text, and the files.
    height, width = pixels.shape[1:3]
    strings = (b"%d" % width, b"%d" % height, *map(encode_png, pixels))
    return tensor_entry(tag, encode_strings((len(strings),), strings), _IMAGES)


def image_entry(tag: str, pixels: NDArray[np.uint8], encoded: bytes | None = None) -> bytes:
    """Return an entry of ``[height, width, channels]``: ``encoded``, or as PNG."""
    height, width, channels = pixels.shape
    fields = (
        proto.varint_field(1, height),
        proto.varint_field(2, width),
        proto.varint_field(3, channels),
        proto.bytes_field(4, encode_png(pixels) if encoded is None else encoded),
    )
    return entry(tag, proto.bytes_field(_IMAGE, b"".join(fields)))


@np.errstate(over="ignore", invalid="ignore")
def as_pixels(kind: str, tag: str, numbers: NDArray[Any]) -> NDArray[np.uint8]:
    """Return ``[..., channels]``, 0.0 to 1.0, as 0 to 255; what is not finite is red or white."""
    if numbers.dtype == np.uint8:
        return numbers
    if numbers.dtype == np.bool_:
        return numbers.astype(np.uint8) * np.uint8(255)
    finite = None
    least, most = _range(numbers)  # NaN if there is one
    if not np.isfinite([least, most]).all():
        finite = finite_in(kind, tag, numbers, "shown red")
        least, most = _range(numbers[finite])
    if least < -_ROUNDING or most > 1 + _ROUNDING:
        text = "values from %g to %g, beyond 0.0 to 1.0: cut off; convert 0 to 255 to uint8"
        warn_once(kind, tag, text, least, most)
    pixels: NDArray[np.uint8] = np.empty(numbers.shape, np.uint8)
    rows, out = (it.reshape(-1, *it.shape[-2:]) for it in (numbers, pixels))
    step = max(_BLOCK * len(rows) // max(rows.size, 1), 1)
    for begin in range(0, len(rows), step):
        scaled = np.multiply(rows[begin : begin + step], np.float32(255), dtype=np.float32)
        np.rint(np.clip(scaled, 0, 255, out=scaled), out=scaled)
        out[begin : begin + step] = scaled.astype(np.uint8)
    if finite is not None:
        pixels[~finite.all(axis=-1)] = _BAD_PIXELS[pixels.shape[-1]]
    return pixels


def _range(numbers: NDArray[Any]) -> tuple[float, float]:
    return (numbers.min(), numbers.max()) if numbers.size else (0, 0)


def in_rows(images: NDArray[Any], columns: int, least: int = 0) -> NDArray[Any]:
    """Return ``[N, height, width, C]`` as one image, ``columns`` in a row.

    Black ones are added if N is below ``least``.
    """
    count, height, width, channels = images.shape
    rows = -(-max(count, least) // columns)
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
        farthest = np.float32(farthest)
    pixels: NDArray[np.uint8] = np.empty(image.shape, np.uint8)
    pixels[finite] = good * (np.float32(top) / farthest if farthest >= _NOTHING else 0) + zero
    pixels[~finite] = _BAD_PIXELS[pixels.shape[-1]]
    return pixels


# --- Sounds

_AUDIO = 6
_SOUNDS = SummaryMetadata("audio", int_field(2, 11))  # of WAV
_LARGEST = 32767.0
_MOST_CHANNELS = 8
_PCM = 1


def audio_value(tag: str, samples: Any, sample_rate: float, max_outputs: int = 3) -> Value:
    """Return the first ``max_outputs`` clips of ``samples``, as ``tf.compat.v1.summary.audio``.

    Args:
        tag: The clips are tagged ``tag/audio/0`` and on; ``tag/audio`` if ``max_outputs`` is 1.
        samples: ``[N, frames]`` or ``[N, frames, channels]``, as for ``clip_value``.
        sample_rate: Frames a second.
        max_outputs: At least 1.

    Raises:
        ValueError, TypeError: As ``clip_value``.
    """
    arguments.whole(max_outputs=max_outputs)
    kept = keep(f"audio summary {tag!r}", samples, _check_batch)
    return Value(tag, (kept, _rate(sample_rate), max_outputs), _encode_batch)


def clip_value(tag: str, samples: Any, sample_rate: float) -> Value:
    """Return a clip, or a batch of clips under one tag.

    Args:
        tag: The tag.
        samples: ``[frames]``, ``[1, frames]``, ``[frames, channels]`` or ``[N, frames, channels]``
            with at most 8 channels: int16, or floats from -1.0 to 1.0. What is beyond is cut off,
            and NaN is silent; one warning per tag counts what is not finite.
        sample_rate: Frames a second, above 0.

    Raises:
        ValueError, TypeError: ``samples`` has another shape or dtype, or ``sample_rate`` is wrong.
    """
    kept = keep(f"audio summary {tag!r}", samples, _check_clips)
    return Value(tag, (kept, _rate(sample_rate)), _encode_clips)


def _rate(sample_rate: float) -> float:
    arguments.given(sample_rate=sample_rate)
    arguments.positive(sample_rate=sample_rate)
    arguments.finite(sample_rate=sample_rate)
    return float(sample_rate)


def _check_batch(what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if len(shape) not in (2, 3):
        raise ValueError(
            f"{what} must have the shape [N, frames] or [N, frames, channels], got {list(shape)}"
        )
    _check_samples(what, dtype)


def _check_clips(what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if len(shape) not in (1, 2, 3):
        raise ValueError(
            f"{what} must have the shape [frames], [frames, channels] or [N, frames, channels], "
            f"got {list(shape)}"
        )
    if len(shape) > 1 and shape[-1] > _MOST_CHANNELS and not _is_row(shape):
        raise ValueError(
            f"{what} must have at most {_MOST_CHANNELS} channels, its last axis, "
            f"got {list(shape)}: transpose it if its channels come first"
        )
    _check_samples(what, dtype)


def _is_row(shape: tuple[int, ...]) -> bool:
    """Whether a single channel comes first, as torchaudio has it."""
    return len(shape) == 2 and shape[0] == 1 and shape[1] > _MOST_CHANNELS


def _check_samples(what: str, dtype: np.dtype[Any]) -> None:
    if dtype.kind in "iub" and dtype != np.int16:
        raise TypeError(
            f"{what} must be a float type (-1.0 to 1.0) or int16, got {dtype}: "
            "convert it with .astype('int16')"
        )


def _encode_batch(tag: str, data: tuple[Kept, float, int]) -> bytes:
    samples, sample_rate, max_outputs = data
    array = samples.read()
    batch = array.reshape(*array.shape[:2], -1 if array.size else 1)
    return b"".join(
        _clip_entry(name, _samples(tag, clip), sample_rate)
        for name, clip in numbered(f"{tag}/audio", batch, max_outputs)
    )


def _encode_clips(tag: str, data: tuple[Kept, float]) -> bytes:
    samples, sample_rate = data
    pcm = _samples(tag, samples.read())
    if pcm.ndim < 3:
        is_mono = pcm.ndim == 1 or _is_row(pcm.shape)
        return _clip_entry(tag, pcm.reshape(-1, 1) if is_mono else pcm, sample_rate)
    # As in tf.summary.audio: a file and an empty label each.
    strings = (part for clip in pcm for part in (encode_wav(clip, round(sample_rate)), b""))
    return tensor_entry(tag, encode_strings((len(pcm), 2), strings), _SOUNDS)


def _samples(tag: str, array: NDArray[Any]) -> NDArray[np.int16]:
    if array.dtype == np.int16:
        return array
    array = as_float(array)
    finite = finite_in("audio", tag, array, "NaN silent, infinite ones cut off")
    scaled: NDArray[Any] = array * np.float32(32768)
    scaled += np.copysign(np.float32(0.5), scaled)  # halves go away from zero
    np.clip(scaled, -_LARGEST - 1, _LARGEST, out=scaled)
    if not finite.all():
        scaled[np.isnan(scaled)] = 0
    return scaled.astype(np.int16)


def _clip_entry(tag: str, clip: NDArray[np.int16], sample_rate: float) -> bytes:
    frames, channels = clip.shape
    fields = (
        proto.float_field(1, sample_rate),
        int_field(2, channels),
        int_field(3, frames),
        proto.bytes_field(4, encode_wav(clip, round(sample_rate))),
        proto.bytes_field(5, b"audio/wav"),
    )
    return entry(tag, proto.bytes_field(_AUDIO, b"".join(fields)))


def encode_wav(samples: NDArray[np.int16], sample_rate: int) -> bytes:
    """Return ``[frames, channels]`` as a WAV file: soundfile.sapp.org/doc/WaveFormat."""
    content = samples.astype("<i2", copy=False).tobytes()
    channels, size = samples.shape[1], len(content)
    frame = 2 * channels  # bytes
    form = _PCM, channels, sample_rate, sample_rate * frame, frame, 16
    header = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", 36 + size, b"WAVE", b"fmt ", 16, *form)
    return header + struct.pack("<4sI", b"data", size) + content


# --- Videos

_VIDEO_AXES = "NTCHW"
_VIDEO_CHANNELS = (1, 3)
_COLORS = 256
_SHORTEST_MS = 20  # viewers show faster frames ten times slower
_GRAYS = np.arange(256, dtype=np.uint8).repeat(3).tobytes()
_GIF_SCREEN = struct.Struct("<6sHHBBB")
_GIF_REPEAT = b"!\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"


def video_value(
    tag: str, video: Any, frames_per_second: float = 4, axes: str = _VIDEO_AXES
) -> Value:
    """Return videos as for ``SummaryWriter.add_video``, side by side in one animated GIF.

    Black ones fill up their number to a power of two. A frame has at most 256 colors and lasts a
    multiple of 1/100 second.
    """
    try:
        import PIL  # noqa: F401
    except ImportError as error:
        raise ImportError(f"the video summary {tag!r} needs Pillow: pip install pillow") from error
    arguments.positive(fps=frames_per_second)
    order = axes.upper()
    if sorted(order) != sorted(_VIDEO_AXES):
        raise ValueError(
            f"the axes of video summary {tag!r} must be those of {_VIDEO_AXES}, got {axes!r}"
        )
    kept = keep(f"video summary {tag!r}", video, partial(_check_video, order))
    return Value(tag, (kept, frames_per_second, order), _encode_video)


def _check_video(axes: str, what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    sizes = dict(zip(axes, shape, strict=False))
    if len(shape) != len(axes) or sizes["C"] not in _VIDEO_CHANNELS or 0 in shape:
        raise ValueError(
            f"{what} must have the axes {axes} with 1 or 3 channels, got the shape {list(shape)}"
        )


def _encode_video(tag: str, data: tuple[Kept, float, str]) -> bytes:
    video, frames_per_second, axes = data
    frames = _side_by_side(video.read().transpose([axes.index(axis) for axis in "NTHWC"]))
    pixels = as_pixels("video", tag, frames)
    return image_entry(tag, pixels[0], encode_gif(pixels, frames_per_second))


def _side_by_side(videos: NDArray[Any]) -> NDArray[Any]:
    """Return ``[N, frames, height, width, C]`` as ``[frames, rows, columns, C]``."""
    count, frames, height, width, channels = videos.shape
    total = 1 << (count - 1).bit_length()
    columns = total >> (count.bit_length() - 1) // 2
    images = videos.transpose(0, 2, 3, 1, 4).reshape(count, height, width, -1)
    placed = in_rows(images, columns, total)
    return np.moveaxis(placed.reshape(*placed.shape[:2], frames, channels), 2, 0)


def encode_gif(frames: NDArray[np.uint8], frames_per_second: float) -> bytes:
    """Return ``[n, height, width, 1 or 3]`` as a repeating GIF; a frame has what changed."""
    from PIL.GifImagePlugin import getdata

    _, height, width, _ = frames.shape
    duration = max(round(100 / frames_per_second) * 10, _SHORTEST_MS)
    parts = [_GIF_SCREEN.pack(b"GIF89a", width, height, 0, 0, 0), _GIF_REPEAT]
    previous = None
    for frame in frames:
        # Image.save would merge equal frames.
        top, bottom, left, right = _changed(frame, previous)
        picture = _picture(frame[top:bottom, left:right])
        parts += getdata(picture, (left, top), duration=duration, include_color_table=True)
        previous = frame
    return b"".join((*parts, b";"))


def _changed(frame: NDArray[np.uint8], previous: NDArray[np.uint8] | None) -> tuple[int, ...]:
    """Return top, bottom, left and right of what changed, or of a pixel."""
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
