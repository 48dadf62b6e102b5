"""The files that TensorBoard's projector reads."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.arrays import to_numpy
from runhooks.stores.path import AnyPath
from runhooks.summary.media import as_pixels, encode_png, in_rows

CONFIG = "projector_config.pbtxt"
_MOST_PIXELS = 8192  # on a side of a sprite, or nothing is shown
_ROWS = 1024  # converted at a time
_BLANK = "\u2800"  # looks like a space
# Of Protocol Buffers' text format.
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|#.*|[{}<>\[\]]|\w+')

_logger = logging.getLogger("runhooks")


class Embedding(NamedTuple):
    """Points for the projector, as for ``SummaryWriter.add_embedding``."""

    name: str
    points: Any
    labels: Sequence[Any] | None = None
    header: Sequence[str] | None = None
    pictures: Any = None


def write_embedding(logdir: AnyPath, folder: str, embedding: Embedding) -> None:
    """Write ``embedding`` to ``folder`` in ``logdir``, and list it in ``projector_config.pbtxt``.

    An entry of the same name is replaced. Raises ValueError for wrong shapes, or OSError.
    """
    points = to_numpy(embedding.points)
    if points.ndim != 2:
        raise ValueError(f"mat must have the shape [N, dimensions], got {list(points.shape)}")
    pictures = None if embedding.pictures is None else to_numpy(embedding.pictures)
    table = _table(embedding, len(points))
    sprite = None if pictures is None else _sprite(pictures, len(points))
    place = logdir / folder
    if place.exists():
        if not place.is_dir():
            raise NotADirectoryError(f"{place} must be a directory, but is a file")
        _logger.warning("%s is written again: give each embedding its own tag or step", place)
    place.mkdir(parents=True, exist_ok=True)
    if table is not None:
        (place / "metadata.tsv").write_bytes("".join(f"{line}\n" for line in table).encode())
    if sprite is not None:
        (place / "sprite.png").write_bytes(encode_png(sprite))
    _write_points(place / "tensors.tsv", points)
    size = None if pictures is None else (pictures.shape[3], pictures.shape[2])
    _list_in(logdir / CONFIG, _entry(embedding.name, folder, table is not None, size))


def _table(embedding: Embedding, count: int) -> list[str] | None:
    labels = embedding.labels
    if labels is None:
        return None
    if len(labels) != count:
        raise ValueError(
            f"metadata must have a label for each of {count} points, got {len(labels)}"
        )
    if not embedding.header:
        return [_line([label]) for label in labels]
    rows = [embedding.header, *labels]
    for row in rows:
        if len(row) != len(embedding.header):
            raise ValueError(
                f"each label must have {len(embedding.header)} values, one for each of "
                f"metadata_header, got {row!r}"
            )
    return list(map(_line, rows))


def _line(row: Sequence[Any]) -> str:
    # Line breaks and tabs would end a label.
    line = "\t".join(re.sub(r"[\t\r\n]+", " ", str(label)) for label in row)
    return line if line.strip() else f"{_BLANK}{line}"  # the projector skips a line of spaces


def _sprite(pictures: NDArray[Any], count: int) -> NDArray[np.uint8]:
    if pictures.ndim != 4 or pictures.shape[1] not in (1, 3) or len(pictures) != count:
        raise ValueError(
            f"label_img must have the shape [{count}, 1 or 3, height, width], a picture for each "
            f"point, got {list(pictures.shape)}"
        )
    columns = max(math.ceil(math.sqrt(count)), 1)
    pixels = as_pixels("embedding", "label_img", pictures.transpose(0, 2, 3, 1))
    grid = in_rows(np.broadcast_to(pixels, (*pixels.shape[:3], 3)), columns)
    height, width = grid.shape[:2]
    if max(height, width) > _MOST_PIXELS:
        raise ValueError(
            f"label_img makes a sprite of {width} x {height} pixels, but the projector shows at "
            f"most {_MOST_PIXELS}: give smaller pictures, or fewer"
        )
    square = np.zeros((max(height, width), width, 3), np.uint8)
    square[:height] = grid
    return square


def _write_points(path: AnyPath, points: NDArray[Any]) -> None:
    if isinstance(path, Path):
        with path.open("wb") as file:
            file.writelines(_lines(points))
    else:
        path.write_bytes(b"".join(_lines(points)))


def _lines(points: NDArray[Any]) -> Iterator[bytes]:
    for begin in range(0, len(points), _ROWS):
        rows = points[begin : begin + _ROWS].tolist()
        yield "".join("\t".join(map(str, row)) + "\n" for row in rows).encode()


def _entry(name: str, folder: str, has_labels: bool, size: tuple[int, int] | None) -> str:
    lines = [
        "embeddings {",
        f"  tensor_name: {_quoted(name)}",
        f"  tensor_path: {_quoted(folder + '/tensors.tsv')}",
    ]
    if has_labels:
        lines.append(f"  metadata_path: {_quoted(folder + '/metadata.tsv')}")
    if size is not None:
        lines += [
            "  sprite {",
            f"    image_path: {_quoted(folder + '/sprite.png')}",
            *(f"    single_image_dim: {pixels}" for pixels in size),
            "  }",
        ]
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _list_in(config: AnyPath, listed: str) -> None:
    before = config.read_text(encoding="utf-8") if config.exists() else ""
    name = listed.splitlines()[1].partition(": ")[2]
    for begin, end in reversed(_entries(before, name)):
        before = before[:begin] + before[end:].removeprefix("\n")
    if before and not before.endswith("\n"):
        before += "\n"
    config.write_bytes((before + listed).encode())


def _entries(config: str, name: str) -> list[tuple[int, int]]:
    """Return where the embeddings of that ``name``, in quotes, are."""
    found: list[tuple[int, int]] = []
    depth = begin = 0
    is_it, word = False, ""
    for token in _TOKENS.finditer(config):
        text = token[0]
        if text in "{<[":
            depth += 1
        elif text in "}>]":
            depth -= 1
            if not depth and is_it:
                found.append((begin, token.end()))
                is_it = False
        elif depth == 1 and text == name and word == "tensor_name":
            is_it = config[begin:].startswith("embeddings")
        elif text[0] not in "#\"'":
            word = text
            if not depth:
                begin = token.start()
    return found
