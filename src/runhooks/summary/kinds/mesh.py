"""Meshes: point clouds and triangles in three dimensions.

Field numbers are those of ``plugins/mesh/plugin_data.proto`` of TensorBoard.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from runhooks import arguments
from runhooks.events.fields import int_field, packed_ints_field, text_field
from runhooks.summary.kinds.non_finite import finite_in
from runhooks.summary.kinds.real_array import as_now, read_real_array
from runhooks.summary.kinds.tensor import encode_tensor
from runhooks.summary.message import Value
from runhooks.summary.metadata import SummaryMetadata, tensor_entry

_MOST_COLOR = 255


class _Part(IntEnum):
    VERTEX = 1
    FACE = 2
    COLOR = 3


_DTYPES: dict[_Part, DTypeLike] = {
    _Part.VERTEX: np.float32,
    _Part.FACE: np.int32,
    _Part.COLOR: np.uint8,
}


def mesh_values(
    tag: str,
    vertices: Any,
    colors: Any = None,
    faces: Any = None,
    config: Mapping[str, Any] | None = None,
) -> list[Value]:
    """Return a mesh, or a batch of them, to be written: a value for each of its parts.

    ``vertices``: float ``[N, vertices, 3]``, x, y and z; one that is not finite is put where the
    first one of its mesh is that is, with a warning once for each tag. ``colors``: integers 0 to
    255 ``[N, vertices, 3]``, RGB of each vertex. ``faces``: integers ``[N, faces, 3]``, which
    vertices each triangle has. All may be given without their first axis. ``config``: classes of
    three.js and their options, such as ``{"material": {"cls": "PointsMaterial", "size": 0.1}}``.

    They are read when the summary is written, which raises ValueError for another shape, a color
    beyond 255 or a face of a vertex that is not there, and TypeError for floats as either. Raises
    TypeError if ``vertices`` is None or ``config`` is nothing for JSON.
    """
    arguments.given(vertices=vertices)
    given = {_Part.VERTEX: vertices, _Part.FACE: faces, _Part.COLOR: colors}
    parts = {part: as_now(array) for part, array in given.items() if array is not None}
    components = sum(1 << part for part in parts)
    mesh = _Mesh(tag, components, _settings(config), parts[_Part.VERTEX])
    return [
        Value(f"{tag}_{part.name}", array, partial(_encode, mesh, part))
        for part, array in parts.items()
    ]


class _Mesh(NamedTuple):
    """What its parts have in common."""

    tag: str
    components: int
    settings: str
    vertices: Any


def _settings(config: Any) -> str:
    try:
        return json.dumps({**(config or {})}, sort_keys=True)
    except TypeError:
        raise TypeError(f"config must be a dict of what JSON has, got {config!r}") from None


def _encode(mesh: _Mesh, part: _Part, tag: str, data: Any) -> bytes:
    array = _batch(tag, data)
    if part is not _Part.VERTEX:
        _check(tag, part, array, _batch(tag, mesh.vertices).shape)
    array = array.astype(_DTYPES[part])
    if part is _Part.VERTEX:
        _put_back(mesh.tag, array)
    content = (
        text_field(2, mesh.tag),
        int_field(3, part),
        text_field(5, mesh.settings),
        packed_ints_field(6, array.shape),
        int_field(7, mesh.components),
    )
    metadata = SummaryMetadata("mesh", b"".join(content))
    return tensor_entry(tag, encode_tensor(tag, array), metadata)


def _batch(tag: str, data: Any) -> NDArray[Any]:
    array = read_real_array(tag, data)
    batch: NDArray[Any] = array[None] if array.ndim == 2 else array
    if batch.ndim != 3 or batch.shape[2] != 3:
        raise ValueError(
            f"mesh summary {tag!r} must have the shape [N, count, 3] or [count, 3], "
            f"got {list(array.shape)}"
        )
    return batch


def _check(tag: str, part: _Part, array: NDArray[Any], vertices: tuple[int, ...]) -> None:
    """Raise unless the colors, or faces, in ``array`` are some of vertices of that shape."""
    fits = array.shape == vertices if part is _Part.COLOR else len(array) == vertices[0]
    if not fits:
        raise ValueError(
            f"mesh summary {tag!r} must be for vertices of shape {list(vertices)}, "
            f"got the shape {list(array.shape)}"
        )
    if array.dtype.kind not in "iu":
        raise TypeError(f"mesh summary {tag!r} must be integers, got {array.dtype}")
    most = _MOST_COLOR if part is _Part.COLOR else vertices[1] - 1
    if array.size and (array.min() < 0 or array.max() > most):
        raise ValueError(
            f"mesh summary {tag!r} must be from 0 to {most}, got {array.min()} to {array.max()}"
        )


def _put_back(tag: str, vertices: NDArray[Any]) -> None:
    """Move the vertices that are nowhere to where others are: viewers fail on a single NaN."""
    finite = finite_in("mesh", tag, vertices, "put on another vertex")
    if not finite.all():
        for cloud, numbers in zip(vertices, finite, strict=True):
            good = numbers.all(axis=1)
            cloud[~good] = cloud[good.argmax()] if good.any() else 0
