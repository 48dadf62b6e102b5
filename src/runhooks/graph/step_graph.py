"""``step_graph``: a graph of the user's own step, with a name for everything in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runhooks.graph import names, nest
from runhooks.graph.build import group
from runhooks.graph.engine import Engine
from runhooks.graph.global_step import get_or_create_global_step
from runhooks.graph.named_values import ValueGraph
from runhooks.graph.step_call import StepCall
from runhooks.graph.step_data import drawn, placeholders
from runhooks.graph.step_parameters import given_parameters, name_of, no_states
from runhooks.graph.step_result import Names, ResultRule
from runhooks.graph.step_states import is_state, made_for, state_tensor
from runhooks.graph.step_values import StepValues


class StepGraph(ValueGraph):
    """A graph of one step: a function that returns new states.

    Whatever has a name can be fetched by it in any run, by any hook, and ``graph[name]`` is its
    tensor; that of a state is the state as it was when the run began.
    """

    def __init__(self, engine: str | Engine) -> None:
        super().__init__(engine)
        self._values = StepValues(self)

    @property
    def values(self) -> StepValues:
        return self._values


def step_graph(
    engine: str | Engine,
    fn: Callable[..., Any],
    outputs: Iterable[Names],
    name: str,
    data: Any,
    epochs: int | None,
    states: Mapping[str, Any],
) -> StepGraph:
    """Return a graph whose operation ``name`` makes a step, ``fn``; see ``runhooks.graph``."""
    if not callable(fn):
        raise TypeError(f"train_step must be a callable, got {fn!r}")
    names.check(name)
    output_names = _checked_outputs(outputs)
    made = StepGraph(engine)
    with made.as_default():
        given = given_parameters(fn, states)
        made.engine.check_distinct(states)
        tensors = {state: state_tensor(made, state, value) for state, value in states.items()}
        tensors |= made_for(it.name for it in given if it.name not in tensors)
        wanted = [it.name for it in given if it.name not in tensors]
        tensors |= placeholders(wanted) if data is None else drawn(made, wanted, data, epochs)
        for parameter, tensor in tensors.items():
            made.values.add(parameter, tensor)
        in_order = [it.name for it in given if it.name in states and is_state(tensors[it.name])]
        if not in_order:
            raise no_states(fn)
        title = names.cleaned(name_of(fn), "step")
        rule = ResultRule(title, in_order, output_names, made.engine)
        call = made.add(
            "Call",
            StepCall(fn, given, in_order, rule, made.values, made.engine),
            tuple(tensors[it.name] for it in given),
            name=f"{name}/{title}",
            num_outputs=len(in_order) + 1,
        )
        *new, rest = call.outputs
        made.values.add_outputs(name, rest)
        count = get_or_create_global_step().assign_add(1, name=f"{name}/count")
        assigned = [
            tensors[state].assign(value, name=f"{name}/{state}")
            for state, value in zip(in_order, new, strict=True)
        ]
        group(*assigned, count, name=name)
        made.form_of(rest)  # finds the names of the outputs, where they can be found now
    return made


def _checked_outputs(outputs: Iterable[Any]) -> list[Names]:
    if isinstance(outputs, str):
        raise TypeError(f'outputs must be a list of names such as ["loss"], got {outputs!r}')
    checked: list[Names] = [
        names.check(it) if isinstance(it, str) else tuple(_checked_outputs(it)) for it in outputs
    ]
    flat = list(nest.leaves(checked))
    if len(set(flat)) < len(flat):
        raise ValueError(f"outputs must be different names, got {checked}")
    return checked
