"""``step_graph``: a graph of the user's own step, with a name for everything in it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from runhooks.graph import names
from runhooks.graph.base import UNKNOWN
from runhooks.graph.build import add_inputs, check_source, group, placeholder
from runhooks.graph.engine import Engine
from runhooks.graph.global_step import get_or_create_global_step
from runhooks.graph.named_values import ValueGraph
from runhooks.graph.random_key import random_key
from runhooks.graph.source import Source
from runhooks.graph.step_call import StepCall
from runhooks.graph.step_data import Arrangement
from runhooks.graph.step_result import ResultRule
from runhooks.graph.step_values import StepValues
from runhooks.graph.tensor import Tensor, Variable
from runhooks.near_names import suggestion

_STEPS = ("global_step", "step")
_KEYS = ("key", "rng")


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
    outputs: Iterable[str],
    name: str,
    data: Any,
    states: Mapping[str, Any],
) -> StepGraph:
    """Return a graph whose operation ``name`` makes a step, ``fn``; see ``runhooks.graph``."""
    if not callable(fn):
        raise TypeError(f"train_step must be a callable, got {fn!r}")
    names.check(name)
    wanted = _checked_outputs(outputs)
    made = StepGraph(engine)
    with made.as_default():
        given = _given(fn, states, data)
        tensors = _state_variables(made, states)
        tensors |= _made_here(given, tensors)
        tensors |= _data(made, [it for it in given if it.name not in tensors], data)
        for parameter, tensor in tensors.items():
            made.values.add(parameter, tensor)
        in_order = [it.name for it in given if it.name in states]
        title = names.cleaned(_name_of(fn), "step")
        rule = ResultRule(title, in_order, wanted, made.engine)
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


def _name_of(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__name__", type(fn).__name__).strip("<>")


def _checked_outputs(outputs: Iterable[str]) -> list[str]:
    if isinstance(outputs, str):
        raise TypeError(f'outputs must be a list of names such as ["loss"], got {outputs!r}')
    checked = [names.check(output) for output in outputs]
    if len(set(checked)) < len(checked):
        raise ValueError(f"outputs must be different names, got {checked}")
    return checked


def _given(fn: Callable[..., Any], states: Mapping[str, Any], data: Any) -> list[inspect.Parameter]:
    """Return the parameters of ``fn`` that are given: the states, and those without a default."""
    title = _name_of(fn)
    parameters = inspect.signature(fn).parameters
    shown = f"{title}({', '.join(parameters)})"
    for state in states:
        if state not in parameters:
            raise TypeError(
                f"{state!r} is not a parameter of {shown}: name what the step takes and returns "
                f"anew by its parameter{suggestion(state, parameters)}"
            )
    if not states:
        first = next(iter(parameters), "state")
        raise TypeError(
            f"name what {shown} takes and returns anew by its parameter, such as {first}=..."
        )
    found: list[inspect.Parameter] = []
    in_place = True
    for it in parameters.values():
        if it.kind in (it.VAR_POSITIONAL, it.VAR_KEYWORD):
            continue
        if it.name in states or it.default is it.empty:
            found.append(it if in_place else it.replace(kind=it.KEYWORD_ONLY))
        else:
            in_place = False
    return found


def _state_variables(made: StepGraph, states: Mapping[str, Any]) -> dict[str, Tensor]:
    return {state: _state(made, state, value) for state, value in states.items()}


def _state(made: StepGraph, name: str, value: Any) -> Tensor:
    engine = made.engine
    if not (callable(value) and engine.is_leaf(value)):
        return Variable(value, name=name)
    try:
        inspect.signature(value).bind()
    except TypeError:
        raise TypeError(
            f"{name} must be a pytree of arrays, or a function without arguments that returns one, "
            f"got {value!r}"
        ) from None
    form, value = _form_of_made(engine, value)
    if isinstance(form, Tensor):
        return form
    variable = Variable(value, name=name)
    if form is not UNKNOWN:
        made.note_form(variable, form)
    return variable


def _form_of_made(engine: Engine, make: Callable[[], Any]) -> tuple[Any, Any]:
    """Return the form of what ``make`` returns, or UNKNOWN, and the initial value; or a tensor."""
    tensors: list[Tensor] = []

    def value() -> Any:
        found = make()
        if not isinstance(found, Tensor):
            return found
        tensors.append(found)
        return None

    form: Any = UNKNOWN
    if engine.finds_forms:
        # Some need the numbers themselves, which they have when they really run.
        with suppress(Exception):
            form = engine.form(value)
    if form is UNKNOWN:
        made = value()
        return (tensors[0], None) if tensors else (UNKNOWN, made)
    return (tensors[0], None) if tensors else (form, make)


def _made_here(
    given: Sequence[inspect.Parameter], known: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the global step and the random key for parameters that ask for these by name."""
    made: dict[str, Tensor] = {}
    for parameter in given:
        if parameter.name in known:
            continue
        if parameter.name in _STEPS:
            made[parameter.name] = get_or_create_global_step()
        elif parameter.name in _KEYS:
            made[parameter.name] = random_key(name=parameter.name)
    return made


def _data(made: StepGraph, wanted: Sequence[inspect.Parameter], data: Any) -> dict[str, Tensor]:
    parameters = [it.name for it in wanted]
    if data is None:
        return {parameter: placeholder(parameter) for parameter in parameters}
    check_source("data", data)
    if not parameters:
        raise ValueError("data must be left out: no parameter of the step is left for it")
    source = Source(data, arrange=Arrangement(parameters))
    op = add_inputs(source, len(parameters), "data")
    tensors = dict(zip(parameters, op.outputs, strict=True))
    if made.engine.finds_forms:
        try:
            first = source.peek()
        except LookupError:
            return tensors
        elements = first if len(parameters) > 1 else (first,)
        for tensor, element in zip(op.outputs, elements, strict=True):
            made.note_form(tensor, made.engine.form(lambda element=element: element))
    return tensors
