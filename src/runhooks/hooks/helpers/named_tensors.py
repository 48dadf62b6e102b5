"""``NamedTensors``: tensors that a hook shows, and their labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from runhooks.graph.default_graph import get_default_graph
from runhooks.graph.tensor import Operation, Tensor
from runhooks.hooks.helpers.fetch_checks import check_no_summary


class NamedTensors:
    """Tensors under labels.

    Args:
        tensors: Tensors or their names: a dict by label, shown in the order of the labels, or one
            or a list, each shown under its own name.

    Raises:
        TypeError: If it is neither.
    """

    def __init__(self, tensors: Mapping[str, Any] | Iterable[Any]) -> None:
        if isinstance(tensors, str | Tensor | Operation):
            tensors = [tensors]
        if not isinstance(tensors, Iterable):
            raise TypeError(f"tensors must be a dict or a list, got {tensors!r}")
        if isinstance(tensors, Mapping):
            self.by_key: dict[Any, Any] = {label: tensors[label] for label in sorted(tensors)}
        else:
            self.by_key = {tensor: tensor for tensor in tensors}

    def __len__(self) -> int:
        return len(self.by_key)

    def fetches(self) -> dict[Any, Any]:
        """Return the tensors of the default graph by key: a label, or an element of the list.

        An operation, or its name, stands for its output.

        Raises:
            KeyError, TypeError, ValueError: For anything that is not a tensor of the graph, is more
                than one, or is a summary.
        """
        graph = get_default_graph()
        elements = {key: graph.as_graph_element(part) for key, part in self.by_key.items()}
        return {key: _only_output(element) for key, element in elements.items()}

    def labelled(self, values: Mapping[Any, Any]) -> list[tuple[str, Any]]:
        """Return labels and ``values``, which were fetched by key, in the order to show them."""
        return [(str(getattr(key, "name", key)), values[key]) for key in self.by_key]


def _only_output(element: Any) -> Any:
    # In every engine an operation has outputs, and a tensor has not.
    check_no_summary("tensors", element)
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
