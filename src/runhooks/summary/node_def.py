"""Graphs for TensorBoard's graph tab, node by node.

Field numbers are those of TensorFlow's ``graph.proto``, ``node_def.proto`` and
``attr_value.proto``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from runhooks.events.format import wire

_PRODUCER = 22  # the oldest graph version that all readers in use take


def encode_graph_def(nodes: Iterable[bytes]) -> bytes:
    """Return ``nodes``, as ``encode_node`` makes them, as a ``GraphDef``."""
    listed = [wire.bytes_field(1, node) for node in nodes]
    return b"".join((*listed, wire.bytes_field(4, wire.varint_field(1, _PRODUCER))))


def encode_node(
    name: str,
    operation: str,
    inputs: Iterable[str] = (),
    attributes: Mapping[str, bytes] | None = None,
) -> bytes:
    """Return a ``NodeDef``; ``attributes`` by name, each an ``AttrValue``, as below."""
    parts = [wire.bytes_field(1, name.encode()), wire.bytes_field(2, operation.encode())]
    parts += [wire.bytes_field(3, source.encode()) for source in inputs]
    for key, value in (attributes or {}).items():
        parts.append(
            wire.bytes_field(5, wire.bytes_field(1, key.encode()) + wire.bytes_field(2, value))
        )
    return b"".join(parts)


def text_attribute(text: str) -> bytes:
    """Return an attribute that is a string."""
    return wire.bytes_field(2, text.encode())


def type_attribute(number: int) -> bytes:
    """Return an attribute that is a type, by its number."""
    return wire.varint_field(6, number)


def shape_attribute(shape: Sequence[int]) -> bytes:
    """Return an attribute that is a shape."""
    return wire.bytes_field(7, _shape(shape))


def shapes_attribute(shapes: Iterable[Sequence[int]]) -> bytes:
    """Return an attribute that is a list of shapes."""
    listed = b"".join(wire.bytes_field(7, _shape(shape)) for shape in shapes)
    return wire.bytes_field(1, listed)


def _shape(shape: Sequence[int]) -> bytes:
    sizes = (wire.bytes_field(2, wire.int_field(1, size)) for size in shape)
    return b"".join(sizes)
