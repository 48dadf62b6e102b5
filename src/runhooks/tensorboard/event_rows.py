"""The rows that tbparse makes of an event file, by tag."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.events.reading.file_contents import StoredPoint
from runhooks.events.reading.metadata import parse_hparams
from runhooks.events.reading.parsed_event import parse_value
from runhooks.events.reading.tensor import tensor_array
from runhooks.events.reading.values import decode_message
from runhooks.tensorboard.event_source import (
    AUDIO,
    HISTOGRAMS,
    IMAGES,
    SCALARS,
    TENSORS,
    EventSource,
)

HPARAMS, TEXT = "hparams", "text"
EVENT_TYPES = (IMAGES, AUDIO, HISTOGRAMS, SCALARS, TENSORS, HPARAMS, TEXT)

_PLUGINS_APART = (HPARAMS, TEXT)
_START_TAG = "_hparams_/session_start_info"
_TEXT_SUFFIX = "/text_summary"
_SAMPLE_RANGE = 32768


class TagRows(NamedTuple):
    """The points of one tag; those of hyperparameters have neither steps nor times.

    ``columns``: by name, ``[n]`` each; ``"value"`` is the one that is named after the tag in a wide
    table, the others after the tag and themselves.
    """

    tag: str
    steps: NDArray[np.int64] | None
    wall_times: NDArray[np.float64] | None
    columns: Mapping[str, Sequence[Any] | NDArray[Any]]


def tags_of(source: EventSource, event_type: str) -> list[str]:
    """Return the tags of ``event_type`` as they are in the file."""
    if event_type == HPARAMS:
        return list(_hparams(source))
    if event_type == TEXT:
        return [tag for tag in source.tags(TENSORS) if source.metadata(tag).plugin == TEXT]
    tags = source.tags(event_type)
    if event_type != TENSORS:
        return tags
    return [tag for tag in tags if source.metadata(tag).plugin not in _PLUGINS_APART]


def rows_of(source: EventSource, event_type: str, extra: set[str]) -> Iterator[TagRows]:
    """Yield the rows of each tag of ``event_type``; ``extra``: columns that are wanted besides.

    Raises:
        ImportError: There are images, and Pillow is not installed.
    """
    if event_type == HPARAMS:
        for name, value in _hparams(source).items():
            yield TagRows(name, None, None, {"value": [value]})
        return
    for tag in tags_of(source, event_type):
        kind = TENSORS if event_type == TEXT else event_type
        if source.place(kind, tag).kind == "scalar":
            steps, values, wall_times = source.scalars(tag, kind)
            yield TagRows(tag, steps, wall_times, {"value": values})
        elif points := source.points(kind, tag):
            yield _decoded_rows(source, event_type, tag, points, extra)


def _decoded_rows(
    source: EventSource,
    event_type: str,
    tag: str,
    points: list[tuple[StoredPoint, bytes]],
    extra: set[str],
) -> TagRows:
    kind = TENSORS if event_type == TEXT else event_type
    place, metadata = source.place(kind, tag), source.metadata(tag)
    columns_of = _COLUMNS[event_type]
    rows = []
    for _, message in points:
        is_tensor = kind == TENSORS
        value = _array(message) if is_tensor else decode_message(message, place.kind, metadata)
        rows.append(columns_of(value, extra))
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return TagRows(
        tag.removesuffix(_TEXT_SUFFIX) if event_type == TEXT else tag,
        np.array([point.step for point, _ in points], np.int64),
        np.array([point.wall_time for point, _ in points], np.float64),
        columns,
    )


def _array(message: bytes) -> NDArray[Any]:
    content = parse_value(message, 0, len(message)).content
    if content is None:
        raise ValueError("a tensor is empty")
    return tensor_array(message, content.begin, content.end)


def _hparams(source: EventSource) -> dict[str, Any]:
    return parse_hparams(source.metadata(_START_TAG).content)


def _chosen(columns: dict[str, Any], extra: set[str], always: set[str]) -> dict[str, Any]:
    return {name: value for name, value in columns.items() if name in extra | always}


def _histogram(found: Any, extra: set[str]) -> dict[str, Any]:
    columns = {
        "counts": np.array(found.counts),
        "limits": np.array(found.limits),
        "max": found.max,
        "min": found.min,
        "num": found.num,
        "sum": found.sum,
        "sum_squares": found.sum_squares,
    }
    return _chosen(columns, extra, {"counts", "limits"})


def _image(found: Any, extra: set[str]) -> dict[str, Any]:
    (image,) = found
    columns = {"value": pixels_in(image.encoded), "height": image.height, "width": image.width}
    return _chosen(columns, extra, {"value"})


def _audio(found: Any, extra: set[str]) -> dict[str, Any]:
    (sound,) = found
    columns = {
        "value": samples_in(sound.encoded)[0],
        "content_type": sound.content_type,
        "length_frames": sound.frames,
        "sample_rate": sound.sample_rate,
    }
    return _chosen(columns, extra, {"value"})


def _tensor(array: NDArray[Any], extra: set[str]) -> dict[str, Any]:
    return {"value": array.item() if array.shape == () else array}


def _text(array: NDArray[Any], extra: set[str]) -> dict[str, Any]:
    texts = [text.decode(errors="backslashreplace") for text in array.flat]
    return {"value": texts[0] if len(texts) == 1 else texts}


_COLUMNS: dict[str, Callable[[Any, set[str]], dict[str, Any]]] = {
    HISTOGRAMS: _histogram,
    IMAGES: _image,
    AUDIO: _audio,
    TENSORS: _tensor,
    TEXT: _text,
}


def image_of_tensor(tensor: Sequence[bytes]) -> dict[str, Any]:
    """Return the images that TensorFlow 2 writes as a tensor: their pixels, width and height.

    Args:
        tensor: The width and the height as text, and the file of each image.

    Raises:
        ImportError: Pillow is not installed.
    """
    images = np.stack(list(map(pixels_in, tensor[2:])))
    shown = images[0] if len(images) == 1 else images
    return {"image": shown, "width": int(tensor[0]), "height": int(tensor[1])}


def sound_of_tensor(tensor: Sequence[Sequence[bytes]]) -> dict[str, Any]:
    """Return the sounds that TensorFlow 2 writes as a tensor, with their lengths and rates.

    Args:
        tensor: The WAV file and the label of each sound.

    Raises:
        ValueError: A file is of another kind.
    """
    found = [samples_in(row[0]) for row in tensor]
    sounds = np.stack([samples for samples, _ in found])
    rates = np.array([rate for _, rate in found])
    is_one = len(found) == 1
    return {
        "audio": sounds[0] if is_one else sounds,
        "content_type": "audio/wav",
        "length_frames": sounds.shape[1],
        "sample_rate": rates[0] if is_one else rates,
    }


def pixels_in(encoded: bytes) -> NDArray[np.uint8]:
    """Return the image in a file, uint8 ``[height, width, channels]``; frames first if animated.

    Raises:
        ImportError: Pillow is not installed.
    """
    try:
        from PIL import Image, ImageSequence
    except ImportError as error:
        raise ImportError("decoding images needs Pillow: pip install pillow") from error
    with Image.open(io.BytesIO(encoded)) as image:
        if getattr(image, "is_animated", False):
            frames = ImageSequence.Iterator(image)
            return np.stack([np.asarray(frame.convert("RGB")) for frame in frames])
        pixels = np.asarray(image.convert("RGB") if image.mode == "P" else image)
    return pixels if pixels.ndim == 3 else pixels[..., None]


def samples_in(encoded: bytes) -> tuple[NDArray[np.float32], int]:
    """Return the sound in a WAV file of 16 bits, ``[frames, channels]``, and frames a second.

    The range is -1.0 to 1.0.

    Raises:
        ValueError: It is another kind of file.
    """
    import wave

    try:
        with wave.open(io.BytesIO(encoded)) as file:
            width, channels = file.getsampwidth(), file.getnchannels()
            content, rate = file.readframes(file.getnframes()), file.getframerate()
    except (wave.Error, EOFError) as error:
        raise ValueError(f"a sound must be a WAV file: {error}") from None
    if width != 2:
        raise ValueError(f"a sound must be a WAV file of 16 bits, got {8 * width} bits")
    samples = np.frombuffer(content, "<i2").reshape(-1, channels)
    return samples.astype(np.float32) / np.float32(_SAMPLE_RANGE), rate
