"""Tensors that a hook shows or evaluates: their labels, and checks of what they fetch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from runhooks.graph.base import BaseGraph, get_default_graph
from runhooks.graph.nodes import Operation, Tensor
from runhooks.summary.ops import is_summary

_AT_END_FIX = (
    "at the end nothing can be fed, drawn or changed: if the last step is known, give "
    "Trigger(on_steps=[last_step]) instead of at_end"
)


def check_for_end(graph: BaseGraph, fetches: Any) -> None:
    """Raise ValueError if ``fetches`` cannot be computed when the loop has ended.

    There is nothing to feed by then. The state must stay as it is: drawing from an input or
    changing a variable would change a run that resumes from here.
    """
    try:
        graph.check_run(fetches)
    except ValueError as error:
        raise ValueError(f"at_end: {error}; {_AT_END_FIX}") from None
    effects = graph.effects_of(fetches)
    changed = [op.assigns.op.name for op in effects.assignments]
    changed += sorted(op.name for op in effects.steps)
    if effects.inputs:
        problem = f"draws from the input {effects.inputs[0].name!r}"
    elif changed:
        problem = f"changes {changed[0]!r}"
    elif effects.captures:
        name = min(op.name for op in effects.captures)
        problem = f"captures {name!r} during a step"
    else:
        return
    raise ValueError(f"at_end: the value to compute at the end {problem}; {_AT_END_FIX}")


def check_no_summary(argument: str, element: Any) -> None:
    """Raise ValueError if ``element`` is a summary, and so has no number to show or to check."""
    if is_summary(element):
        raise ValueError(
            f"{argument} must not be a summary, got {element.name!r}: give the tensor that the "
            "summary is made of"
        )


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
