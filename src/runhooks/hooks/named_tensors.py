"""Tensors that are shown to people, under names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from runhooks.graph.graph import get_default_graph
from runhooks.graph.tensor import Operation, Tensor


class NamedTensors:
    """``tensors``: a dict of tensors, or names of tensors, by label; or just a list of them.

    A dict is shown in the order of its labels, a list as it is, each under its own name.
    """

    def __init__(self, tensors: Mapping[str, Any] | Iterable[Any]) -> None:
        if isinstance(tensors, str | Tensor | Operation):
            raise TypeError(
                f"tensors must be a dict or a list, got {tensors!r}: put it in brackets, [...]"
            )
        if not isinstance(tensors, Iterable):
            raise TypeError(f"tensors must be a dict or a list, got {tensors!r}")
        if isinstance(tensors, Mapping):
            self._by_key: dict[Any, Any] = {label: tensors[label] for label in sorted(tensors)}
        else:
            self._by_key = {tensor: tensor for tensor in tensors}

    def __len__(self) -> int:
        return len(self._by_key)

    def fetches(self) -> dict[Any, Any]:
        """The tensors of the default graph by key: a label, or what was in the list.

        An operation, or its name, stands for its output. Raises ValueError or TypeError for what
        is no tensor of it, or several.
        """
        graph = get_default_graph()
        elements = {key: graph.as_graph_element(part) for key, part in self._by_key.items()}
        return {key: _only_output(element) for key, element in elements.items()}

    def labelled(self, values: Mapping[Any, Any]) -> list[tuple[str, Any]]:
        """The labels and ``values``, fetched by key, in the order in which they are shown."""
        return [(str(getattr(key, "name", key)), values[key]) for key in self._by_key]


def _only_output(element: Any) -> Any:
    # Of whatever engine: an operation has outputs, a tensor has not.
    outputs = getattr(element, "outputs", None)
    if outputs is None:
        return element
    if not outputs:
        raise ValueError(f"tensors: the operation {element.name!r} has no value to show")
    if len(outputs) > 1:
        raise ValueError(
            f"tensors: {element.name!r} is ambiguous, an operation with {len(outputs)} outputs: "
            f"name one of them, such as {element.name + ':0'!r}"
        )
    return outputs[0]
