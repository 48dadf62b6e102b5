"""A graph as TensorBoard's graph tab reads it.

Field numbers are those of TensorFlow's ``graph.proto`` and ``node_def.proto``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

from runhooks.events import Message
from runhooks.events.format import proto
from runhooks.events.format.proto import fields

_PRODUCER = 22  # the oldest graph version that all readers in use take


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
    nodes = [proto.bytes_field(1, _node(it)) for it in message.get_operations()]
    return b"".join((*nodes, proto.bytes_field(4, proto.varint_field(1, _PRODUCER))))


def _checked(graph_def: bytes) -> bytes:
    try:
        for _ in fields(graph_def):
            pass
    except ValueError as error:
        raise ValueError(f"graph must be the bytes of a GraphDef: {error}") from None
    return graph_def


def _node(operation: Any) -> bytes:
    """Return ``operation`` as a ``NodeDef``."""
    inputs = [tensor.name.removesuffix(":0") for tensor in operation.inputs]
    controls = [f"^{control.name}" for control in operation.control_inputs]
    parts = [proto.bytes_field(1, operation.name.encode())]
    parts.append(proto.bytes_field(2, operation.type.encode()))
    return b"".join((*parts, *(proto.bytes_field(3, it.encode()) for it in inputs + controls)))
