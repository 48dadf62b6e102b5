"""The graph in an ONNX file, for TensorBoard's graph tab.

Field numbers are those of ``onnx.proto``; the package ``onnx`` is not needed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from runhooks.events.format.fields import Field, as_bytes, as_float, as_int, fields
from runhooks.summary.node_def import (
    encode_graph_def,
    encode_node,
    shape_attribute,
    text_attribute,
    type_attribute,
)

_GRAPH = 7  # of a ModelProto
_NODE, _INPUT, _OUTPUT = 1, 11, 12  # of a GraphProto
_FLOAT, _INTEGER, _TEXT, _TENSOR, _FLOATS, _INTEGERS, _TEXTS, _TYPE = 2, 3, 4, 5, 7, 8, 9, 20


def onnx_graph_def(path: str | os.PathLike[str]) -> bytes:
    """Return the graph in the ONNX file at ``path`` as a ``GraphDef``.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not an ONNX file.
    """
    content = Path(path).read_bytes()
    try:
        graphs = [as_bytes(part.value) for part in fields(content) if part.number == _GRAPH]
        nodes = [node for graph in graphs for node in _nodes(graph)]
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)!r} is not an ONNX file: {error}") from None
    if not graphs:
        raise ValueError(f"{os.fspath(path)!r} is not an ONNX file: there is no graph in it")
    return encode_graph_def(nodes)


def _nodes(graph: bytes) -> Iterator[bytes]:
    parts = [part for part in fields(graph) if part.number in (_NODE, _INPUT, _OUTPUT)]
    for kind in (_INPUT, _OUTPUT):
        yield from (_tensor(as_bytes(part.value)) for part in parts if part.number == kind)
    yield from (_operation(as_bytes(part.value)) for part in parts if part.number == _NODE)


def _tensor(message: bytes) -> bytes:
    """Return an input or output of the graph, a ``ValueInfoProto``, as a node."""
    name = _last(message, 1).decode()
    tensor_type = _last(_last(message, 2), 1)
    kinds = [as_int(part.value) for part in fields(tensor_type) if part.number == 1]
    sizes = [as_bytes(p.value) for p in fields(_last(tensor_type, 2)) if p.number == 1]
    shape = [sum(as_int(p.value) for p in fields(size) if p.number == 1) for size in sizes]
    attributes = {"dtype": type_attribute(sum(kinds[-1:])), "shape": shape_attribute(shape)}
    return encode_node(name, "Variable", (), attributes)


def _operation(message: bytes) -> bytes:
    texts: dict[int, list[bytes]] = {1: [], 2: [], 4: [], 5: []}
    for part in fields(message):
        if part.number in texts:
            texts[part.number].append(as_bytes(part.value))
    sources, names, kinds, attributes = texts.values()
    name = names[0].decode() if names else ""
    parameters = ", ".join(map(_attribute, attributes))
    return encode_node(
        name,
        b"".join(kinds[-1:]).decode(),
        [source.decode() for source in sources],
        {"parameters": text_attribute(parameters)},
    )


def _attribute(message: bytes) -> str:
    """Return an attribute as ``name = value = type``."""
    name, values, kind = "", list[str](), ""
    lists: dict[int, list[object]] = {}
    for part in fields(message):
        if part.number == 1:
            name = as_bytes(part.value).decode()
        elif part.number == _TYPE:
            kind = str(as_int(part.value))
        elif part.number in (_FLOATS, _INTEGERS, _TEXTS):
            lists.setdefault(part.number, []).extend(_elements(part))
        elif part.number in (_FLOAT, _INTEGER, _TEXT, _TENSOR):
            values.append(_single(part))
    return " = ".join([name, *values, *map(str, lists.values()), kind])


def _single(part: Field) -> str:
    if part.number == _FLOAT:
        return str(as_float(part.value))
    if part.number == _INTEGER:
        return str(as_int(part.value))
    content = as_bytes(part.value)
    return str(content) if part.number == _TEXT else f"a tensor of {len(content)} bytes"


def _elements(part: Field) -> list[object]:
    if isinstance(part.value, int):
        return [as_int(part.value)]
    if part.number == _TEXTS:
        return [part.value]
    if part.number == _FLOATS:
        return [number for (number,) in struct.iter_unpack("<f", part.value)]
    # Packed integers, behind a key each, are fields of their own.
    return [as_int(field.value) for field in fields(_unpacked(part.value))]


def _unpacked(packed: bytes) -> bytes:
    found, starts = bytearray(), True
    for digit in packed:
        if starts:
            found.append(_INTEGERS << 3)
        found.append(digit)
        starts = digit < 0x80
    return bytes(found)


def _last(message: bytes, number: int) -> bytes:
    found = [part.value for part in fields(message) if part.number == number]
    return as_bytes(found[-1]) if found else b""
