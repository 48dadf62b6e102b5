"""A graph as TensorBoard's graph tab reads it.

Field numbers are those of TensorFlow's ``graph.proto`` and ``node_def.proto``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from runhooks.events import Message
from runhooks.events.format import wire
from runhooks.events.format.fields import fields

_PRODUCER = 22  # the oldest graph version that all readers in use take


class GraphTensor(Protocol):
    """A tensor, named after its operation: ``"loss:0"``."""

    @property
    def name(self) -> str: ...


class GraphOperation(Protocol):
    """An operation and where its inputs come from."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def inputs(self) -> Iterable[GraphTensor]: ...

    @property
    def control_inputs(self) -> Iterable[GraphOperation]: ...


class GraphLike(Protocol):
    """A graph: anything that lists its operations."""

    def get_operations(self) -> Iterable[GraphOperation]: ...


def encode_graph(graph: GraphLike) -> bytes:
    """Return ``graph`` as a ``GraphDef``: names, types, inputs and control inputs.

    Raises:
        TypeError: It is not a graph.
    """
    if not hasattr(graph, "get_operations"):
        raise TypeError(f"graph must be a Graph of runhooks or TensorFlow, got {graph!r}")
    nodes = [wire.bytes_field(1, _node(operation)) for operation in graph.get_operations()]
    return b"".join((*nodes, wire.bytes_field(4, wire.varint_field(1, _PRODUCER))))


def checked_graph_def(graph_def: bytes | Message) -> bytes | Message:
    """Return ``graph_def``. Raises TypeError or ValueError if it is not a ``GraphDef``."""
    if isinstance(graph_def, bytes):
        try:
            for _ in fields(graph_def):
                pass
        except ValueError as error:
            raise ValueError(f"graph_def must be the bytes of a GraphDef: {error}") from None
    elif not hasattr(graph_def, "SerializeToString"):
        raise TypeError(f"graph_def must be a GraphDef or the bytes of one, got {graph_def!r}")
    return graph_def


def _node(operation: GraphOperation) -> bytes:
    inputs = [tensor.name.removesuffix(":0") for tensor in operation.inputs]
    controls = [f"^{control.name}" for control in operation.control_inputs]
    return b"".join(
        (
            wire.bytes_field(1, operation.name.encode()),
            wire.bytes_field(2, operation.type.encode()),
            *(wire.bytes_field(3, name.encode()) for name in inputs + controls),
        )
    )
