"""``ValueGraph``: a graph in which whatever has a name can be fetched by it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from runhooks.graph.graph import Graph
from runhooks.graph.nodes import Operation, Tensor

#: Types of operations whose name means their value, where others mean the operation.
_FETCHED_AS_VALUES = ("StepOutput", "Placeholder", "Variable", "Call", "GetItem")

#: Types of operations that have values of the step, and compute nothing of their own.
_VALUES = ("StepOutput", "Placeholder", "Variable", "Part")


class NamedValues(ABC):
    """Values that have a name, beside the operations of a graph.

    Their tensors are made when they are asked for. Their operations are not added to the graph, so
    a finalized graph has them too, and names that nobody asks for cost nothing.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._given: dict[str, Tensor] = {}
        self._made: dict[str, Operation] = {}

    @property
    def operations(self) -> list[Operation]:
        """The operations that were made."""
        return list(self._made.values())

    def add(self, name: str, tensor: Tensor) -> None:
        """Let ``name`` mean ``tensor``."""
        self._given[name] = tensor

    def find(self, name: str) -> Tensor:
        """Return the tensor of that name, with or without ``":0"``.

        Raises:
            ValueError: If there is none.
        """
        key = name.removesuffix(":0")
        if key in self._given:
            return self._given[key]
        if key not in self._made:
            self._made[key] = self.make(key)
        return self._made[key].outputs[0]

    @abstractmethod
    def make(self, name: str) -> Operation:
        """Return an operation that has the value called ``name``.

        Raises:
            ValueError: If there is none.
        """

    def comes_first(self, name: str) -> bool:
        """Return whether ``name`` means a value even if an operation has it."""
        return False

    def check_text(self, text: str) -> None:
        """Check that ``text``, which a function is to be called with, is not meant as a name.

        Raises:
            TypeError: If a value has that name.
        """
        if self.comes_first(text):
            raise TypeError(
                f"{text!r} is the name of a tensor, and a function would be called with the text: "
                f"give graph[{text!r}]; or for the text itself, functools.partial(fn, ...)"
            )


class ValueGraph(Graph):
    """A graph in which names mean values: of its operations, and those that ``values`` finds."""

    @property
    def values(self) -> NamedValues:
        """The values that have a name beside its operations."""
        raise NotImplementedError

    def __getitem__(self, name: str) -> Tensor:
        """Return the tensor called ``name``; raise ValueError if there is none."""
        element = self.as_graph_element(name)
        if isinstance(element, Tensor):
            return element
        if not element.outputs:
            raise ValueError(f"the operation {name!r} has no value: fetch it to have it done")
        return element.outputs[0]

    def as_graph_element(self, element: Any) -> Tensor | Operation:
        if not isinstance(element, str):
            return super().as_graph_element(element)
        before, _, index = element.rpartition(":")
        operation = before if index.isdecimal() else element
        if self.values.comes_first(operation) or not self.has_operation(operation):
            return self.values.find(element)
        found = super().as_graph_element(element)
        is_operation = isinstance(found, Operation) and len(found.outputs) == 1
        if is_operation and found.type in _FETCHED_AS_VALUES:
            return found.outputs[0]
        return found

    def is_value(self, element: Any) -> bool:
        found = self.as_graph_element(element)
        op = found.op if isinstance(found, Tensor) else found
        return op.type in _VALUES

    def check_text(self, text: str) -> None:
        self.values.check_text(text)

    def get_tensor_by_name(self, name: str) -> Tensor:
        try:
            return super().get_tensor_by_name(name)
        except KeyError:
            if not name.endswith(":0"):
                raise
        try:
            return self.values.find(name)
        except ValueError as error:
            raise KeyError(error.args[0]) from None

    def get_operations(self) -> list[Operation]:
        return [*self.values.operations, *super().get_operations()]
