"""Meshes whose vertices, faces and colors are all written as float32.

Field numbers are those of ``plugins/mesh/plugin_data.proto`` of TensorBoard.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from runhooks.events.format.wire import int_field, packed_ints_field, text_field
from runhooks.summary.kinds.real_numbers import keep, read
from runhooks.summary.kinds.tensor import encode_tensor
from runhooks.summary.message import SummaryMetadata, Value, tensor_entry

_PARTS = {"VERTEX": 1, "FACE": 2, "COLOR": 3}


def float_mesh_values(
    tag: str,
    vertices: Any,
    colors: Any = None,
    faces: Any = None,
    config: Mapping[str, Any] | None = None,
) -> list[Value]:
    """Return a batch of meshes, to be written as torch does: a value for each part, as float32.

    Args:
        tag: The parts are tagged ``tag_VERTEX``, ``tag_FACE`` and ``tag_COLOR``.
        vertices: ``[N, vertices, 3]``, x, y and z.
        colors: ``[N, vertices, 3]``, RGB of each vertex, 0 to 255.
        faces: ``[N, faces, 3]``, which vertices each triangle has.
        config: Classes of three.js and their options, such as
            ``{"material": {"cls": "PointsMaterial", "size": 0.1}}``.

    Raises:
        TypeError: A part is not made of real numbers, or JSON cannot hold ``config``.
        ValueError: A part has another shape.
    """
    settings = "{}" if config is None else json.dumps(config, sort_keys=True)
    given = {"VERTEX": vertices, "FACE": faces, "COLOR": colors}
    parts = {part: value for part, value in given.items() if value is not None}
    components = sum(1 << _PARTS[part] for part in parts)
    return [
        Value(
            f"{tag}_{part}",
            (keep(_name(tag, part), value, _check), tag, part, components, settings),
            _encode,
        )
        for part, value in parts.items()
    ]


def _name(tag: str, part: str) -> str:
    return f"mesh summary '{tag}_{part}'"


def _check(what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if len(shape) != 3 or shape[2] != 3:
        raise ValueError(f"{what} must have the shape [N, count, 3], got {list(shape)}")


def _encode(value_tag: str, data: tuple[Any, str, str, int, str]) -> bytes:
    kept, tag, part, components, settings = data
    array = read(_name(tag, part), kept, _check).astype(np.float32)
    content = (
        text_field(2, tag),
        int_field(3, _PARTS[part]),
        text_field(5, settings),
        packed_ints_field(6, array.shape),
        int_field(7, components),
    )
    metadata = SummaryMetadata("mesh", b"".join(content))
    return tensor_entry(value_tag, encode_tensor(value_tag, array), metadata)
