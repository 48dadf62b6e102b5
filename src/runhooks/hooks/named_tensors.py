"""Tensors that a hook shows or evaluates: their labels, and checks of what they fetch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from runhooks.contract import RawSession, SessionRunArgs, SessionRunContext, SessionRunValues
from runhooks.graph.base import BaseGraph, get_default_graph
from runhooks.graph.nodes import Operation, Tensor
from runhooks.hooks.base import TimedHook, next_step_of, step_of
from runhooks.summary.ops import is_summary
from runhooks.trigger import Due, Timer

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
            #: The keys, in the order of the list, where one may occur twice.
            self.listed: list[Any] = list(self.by_key)
        else:
            self.listed = list(tensors)
            self.by_key = {tensor: tensor for tensor in self.listed}

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


class FetchingHook(TimedHook):
    """Fetches tensors when its timer triggers, and takes their values.

    Args:
        timer: Says when.
        tensors: As for ``NamedTensors``; empty: nothing is fetched.
    """

    def __init__(self, timer: Timer, tensors: Mapping[str, Any] | Iterable[Any]) -> None:
        super().__init__(timer)
        self._tensors = NamedTensors(tensors)
        self._request: SessionRunArgs | None = None

    def begin(self) -> None:
        super().begin()
        self._request = SessionRunArgs(self._tensors.fetches()) if len(self._tensors) else None

    def next_due(self) -> Due | None:
        return self._timer.due()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        is_due = self._timer.should_trigger_for_step(next_step_of(run_context))
        return self._request if is_due else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        session, results = run_context.session, run_values.results
        step = step_of(session)
        has_all = results is not None or self._request is None
        if has_all and self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            self._take(session, step, results)

    @abstractmethod
    def _take(self, session: RawSession, step: int, values: Any) -> None:
        """Act on the values of the tensors, by key, after the run that has led to ``step``."""


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
