"""Point clouds and meshes of triangles.

Field numbers are those of TensorBoard's ``plugins/mesh/plugin_data.proto``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from runhooks.arrays import host_form
from runhooks.events.format.proto import int_field, packed_ints_field, text_field
from runhooks.summary.kinds.real_numbers import Kept, finite_in, keep, warn_of_dark
from runhooks.summary.kinds.tensor import encode_tensor
from runhooks.summary.message import SummaryMetadata, Value, tensor_entry

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
    """Return the parts of a mesh, or of a batch of them; the first axis may be left out.

    Args:
        tag: The parts are tagged ``tag_VERTEX``, ``tag_COLOR`` and ``tag_FACE``.
        vertices: float ``[N, vertices, 3]``, x, y and z. One that is not finite is put on the first
            finite one of its mesh, with one warning per tag.
        colors: ``[N, vertices, 3]``, RGB of each vertex, 0 to 255: integers, or floats, which
            TensorBoard rounds down; one warning per tag if all are at most 1.0, which is black.
        faces: ``[N, faces, 3]``, which vertices each triangle has.
        config: Classes of three.js and their options, such as
            ``{"material": {"cls": "PointsMaterial", "size": 0.1}}``.

    Raises:
        TypeError: ``vertices`` is None, an array is not made of real numbers, or JSON cannot hold
            ``config``.
        ValueError: An array has another shape; or, when the summary is written, a color is above
            255 or a face has a vertex that does not exist.
    """
    given = {_Part.VERTEX: vertices, _Part.FACE: faces, _Part.COLOR: colors}
    parts = {
        part: keep(_name(tag, part), array, _check_shape)
        for part, array in given.items()
        if array is not None or part is _Part.VERTEX
    }
    forms = {part: host_form(kept.values) for part, kept in parts.items()}
    shapes = {part: form[0] for part, form in forms.items() if form is not None}
    for part in (_Part.FACE, _Part.COLOR):
        if part in shapes and _Part.VERTEX in shapes:
            _check_fit(tag, part, shapes[part], shapes[_Part.VERTEX])
    components = sum(1 << part for part in parts)
    mesh = _Mesh(tag, components, _settings(config), parts[_Part.VERTEX])
    return [
        Value(f"{tag}_{part.name}", kept, partial(_encode, mesh, part))
        for part, kept in parts.items()
    ]


class _Mesh(NamedTuple):
    """The fields that its parts share."""

    tag: str
    components: int
    settings: str
    vertices: Kept


def _settings(config: Any) -> str:
    try:
        return json.dumps({**(config or {})}, sort_keys=True)
    except TypeError:
        raise TypeError(f"config must be a dict of what JSON has, got {config!r}") from None


def _name(tag: str, part: _Part) -> str:
    return f"mesh summary '{tag}_{part.name}'"


def _check_shape(what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if len(shape) not in (2, 3) or shape[-1] != 3:
        raise ValueError(
            f"{what} must have the shape [N, count, 3] or [count, 3], got {list(shape)}"
        )


def _check_fit(tag: str, part: _Part, shape: tuple[int, ...], vertices: tuple[int, ...]) -> None:
    """Raise unless colors, or faces, can belong to ``vertices``, by their shapes."""
    batch, of = (1, *shape)[-3:], (1, *vertices)[-3:]
    if batch != of if part is _Part.COLOR else batch[0] != of[0]:
        raise ValueError(
            f"{_name(tag, part)} must be for vertices of shape {list(vertices)}, "
            f"got the shape {list(shape)}"
        )


def _encode(mesh: _Mesh, part: _Part, tag: str, data: Kept) -> bytes:
    array = _batch(data.read())
    if part is not _Part.VERTEX:
        vertices = _batch(mesh.vertices.read())
        _check_fit(mesh.tag, part, array.shape, vertices.shape)
        _check_range(mesh.tag, part, array, vertices.shape[1])
    is_float_color = part is _Part.COLOR and array.dtype.kind not in "iub"
    if is_float_color:
        warn_of_dark("mesh", mesh.tag, array)
    array = array.astype(np.float32 if is_float_color else _DTYPES[part])
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


def _batch(array: NDArray[Any]) -> NDArray[Any]:
    return array[None] if array.ndim == 2 else array


def _check_range(tag: str, part: _Part, array: NDArray[Any], vertices: int) -> None:
    most = _MOST_COLOR if part is _Part.COLOR else vertices - 1
    if array.size and not (array.min() >= 0 and array.max() <= most):
        raise ValueError(
            f"{_name(tag, part)} must be from 0 to {most}, got {array.min()} to {array.max()}"
        )


def _put_back(tag: str, vertices: NDArray[Any]) -> None:
    """Put each vertex that is not finite on another: viewers fail on a single NaN."""
    finite = finite_in("mesh", tag, vertices, "put on another vertex")
    if not finite.all():
        for cloud, numbers in zip(vertices, finite, strict=True):
            good = numbers.all(axis=1)
            cloud[~good] = cloud[good.argmax()] if good.any() else 0
