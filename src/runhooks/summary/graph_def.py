"""A graph as TensorBoard's graph tab reads it.

Field numbers are those of TensorFlow's ``graph.proto``, ``node_def.proto`` and
``attr_value.proto``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from runhooks.events import Message
from runhooks.events.format import proto
from runhooks.events.format.proto import fields

_PRODUCER = 22  # the oldest graph version that all readers in use take


def encode_graph_def(nodes: Iterable[bytes]) -> bytes:
    """Return ``nodes``, as ``encode_node`` makes them, as a ``GraphDef``."""
    listed = [proto.bytes_field(1, node) for node in nodes]
    return b"".join((*listed, proto.bytes_field(4, proto.varint_field(1, _PRODUCER))))


def encode_node(
    name: str,
    operation: str,
    inputs: Iterable[str] = (),
    attributes: Mapping[str, bytes] | None = None,
) -> bytes:
    """Return a ``NodeDef``; ``attributes`` by name, each an ``AttrValue``, as below."""
    parts = [proto.bytes_field(1, name.encode()), proto.bytes_field(2, operation.encode())]
    parts += [proto.bytes_field(3, source.encode()) for source in inputs]
    for key, value in (attributes or {}).items():
        parts.append(
            proto.bytes_field(5, proto.bytes_field(1, key.encode()) + proto.bytes_field(2, value))
        )
    return b"".join(parts)


def text_attribute(text: str) -> bytes:
    """Return an attribute that is a string."""
    return proto.bytes_field(2, text.encode())


def shapes_attribute(shapes: Iterable[Sequence[int]]) -> bytes:
    """Return an attribute that is a list of shapes."""
    listed = b"".join(proto.bytes_field(7, _shape(shape)) for shape in shapes)
    return proto.bytes_field(1, listed)


def _shape(shape: Sequence[int]) -> bytes:
    sizes = (proto.bytes_field(2, proto.int_field(1, size)) for size in shape)
    return b"".join(sizes)


class GraphLike(Protocol):
    """A graph: anything that lists its operations.

    Each has a ``name``, a ``type``, ``inputs``, which are tensors named after their operation as
    ``"loss:0"``, and ``control_inputs``, which are operations.
    """

    def get_operations(self) -> Iterable[Any]: ...


#: A graph, a ``GraphDef`` or the bytes of one.
AnyGraph: TypeAlias = GraphLike | bytes | Message


def encode_graph(graph: AnyGraph | None) -> bytes:
    """Return the bytes of ``graph`` as a ``GraphDef``.

    Args:
        graph: A graph of TensorFlow, whose ``GraphDef`` has attributes and shapes; of runhooks,
            whose has names, types, inputs and control inputs; or a ``GraphDef`` or its bytes.

    Raises:
        TypeError: It is not a graph.
        ValueError: The bytes are not a ``GraphDef``.
    """
    as_graph_def = getattr(graph, "as_graph_def", None)
    message: Any = graph if as_graph_def is None else as_graph_def(add_shapes=True)
    if hasattr(message, "SerializeToString"):
        encoded: bytes = message.SerializeToString()
        return encoded
    if isinstance(graph, bytes):
        return _checked(graph)
    if not hasattr(message, "get_operations"):
        raise TypeError(
            f"graph must be a Graph of runhooks or TensorFlow, or a GraphDef, got {graph!r}"
        )
    return encode_graph_def(map(_node, message.get_operations()))


def _checked(graph_def: bytes) -> bytes:
    try:
        for _ in fields(graph_def):
            pass
    except ValueError as error:
        raise ValueError(f"graph must be the bytes of a GraphDef: {error}") from None
    return graph_def


def _node(operation: Any) -> bytes:
    inputs = [tensor.name.removesuffix(":0") for tensor in operation.inputs]
    controls = [f"^{control.name}" for control in operation.control_inputs]
    return encode_node(operation.name, operation.type, inputs + controls)
