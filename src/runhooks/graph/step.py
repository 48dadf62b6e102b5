"""``step_graph``: a graph of the user's own step; ``EvaluatedStep``: a test step beside it."""

from __future__ import annotations

import inspect
import itertools
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

import numpy as np

from runhooks.arrays import trees
from runhooks.arrays.registry import NO_LIBRARY, NUMPY, library_of
from runhooks.arrays.values import NUMBERS
from runhooks.graph import nest
from runhooks.graph.build import (
    STEPS,
    add_inputs,
    call,
    checked_source,
    get_or_create_global_step,
    group,
    inputs,
    placeholder,
)
from runhooks.graph.engine import Engine
from runhooks.graph.generators import GeneratorState, called_ahead, is_generator
from runhooks.graph.graph import Graph, random_key
from runhooks.graph.named_values import OUTPUTS, StepValues, ValueGraph
from runhooks.graph.nodes import Tensor, Variable, check_name, cleaned_name
from runhooks.graph.source import Source
from runhooks.graph.step_result import Names, ResultRule
from runhooks.near_names import suggestion, with_article

#: Parameters that get a random key.
KEYS = ("key", "rng")

_PLAIN = NUMBERS | {np.ndarray}


def name_of(fn: Callable[..., object]) -> str:
    """Return the name of ``fn``, for messages."""
    return str(getattr(fn, "__name__", type(fn).__name__)).strip("<>")


def given_parameters(fn: Callable[..., object], states: Collection[str]) -> list[inspect.Parameter]:
    """Return the parameters of ``fn`` that are given: ``states``, and those without a default.

    One of ``STEPS`` or ``KEYS`` is given, too, if its default is None. Those behind one that is
    left out are keyword-only. Raises TypeError if one of ``states`` is not a parameter.
    """
    parameters = inspect.signature(fn).parameters
    plain = [it for it in parameters.values() if it.kind not in (it.VAR_POSITIONAL, it.VAR_KEYWORD)]
    names = [it.name for it in plain]
    for state in states:
        if state not in names:
            raise TypeError(
                f"{state!r} is not a parameter of {_shown(fn)}: name what the step takes and "
                f"returns anew by its parameter{suggestion(state, names)}"
            )
    found: list[inspect.Parameter] = []
    in_place = True
    for it in plain:
        is_open = it.default is None and it.name in (*STEPS, *KEYS)
        if it.name in states or it.default is it.empty or is_open:
            found.append(it if in_place else it.replace(kind=it.KEYWORD_ONLY))
        else:
            in_place = False
    return found


def _no_states(fn: Callable[..., object]) -> TypeError:
    first = next(iter(inspect.signature(fn).parameters), "state")
    return TypeError(
        f"name what {_shown(fn)} takes and returns anew by its parameter, such as {first}=..."
    )


def _shown(fn: Callable[..., object]) -> str:
    stars: dict[object, str]
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    parameters = inspect.signature(fn).parameters.values()
    return f"{name_of(fn)}({', '.join(stars.get(it.kind, '') + it.name for it in parameters)})"


def with_objects(
    fn: Callable[..., Any], given: Sequence[inspect.Parameter], objects: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return ``fn`` of the parameters ``given``, with ``objects`` bound by their names."""
    if not objects:
        return fn

    def called(*args: Any) -> Any:
        rest = iter(args)
        return fn(*[objects[it.name] if it.name in objects else next(rest) for it in given])

    return called


def drawn(
    graph: Graph,
    parameters: Sequence[str],
    data: Any,
    epochs: int | None,
    *,
    is_of_training: bool = True,
) -> dict[str, Tensor]:
    """Return a tensor for each of ``parameters``, drawn from ``data``, as ``rh.inputs`` takes it.

    Their forms are noted, if ``graph`` knows forms and the first element can be looked at.

    Raises TypeError if ``data`` cannot be iterated, or has text for a graph that compiles, and
    ValueError if there are no ``parameters``, or the first element does not fit them.
    """
    elements = checked_source("data", data, epochs)
    if not parameters:
        raise ValueError(
            "data must be left out: no parameter of the step is left for it. One that takes it "
            "needs a name, as in step(params, batch), and no default: *batch and **batch get "
            "nothing"
        )
    compiling = graph.engine if graph.engine.finds_forms else None
    source = Source(elements, epochs, _Arrangement(parameters, compiling))
    op = add_inputs(source, len(parameters), "data", is_of_training=is_of_training)
    if compiling is not None:
        with suppress(LookupError):
            first = source.peek()
            parts = first if len(parameters) > 1 else (first,)
            for tensor, name, element in zip(op.outputs, parameters, parts, strict=True):
                _check(name, element)
                graph.note_form(tensor, compiling.form(lambda element=element: element))
    return dict(zip(parameters, op.outputs, strict=True))


def _check(parameter: str, element: Any) -> None:
    for leaf in nest.leaves(element):
        if isinstance(leaf, str | bytes):
            raise TypeError(
                f"data has the text {leaf!r} for {parameter!r}, which cannot be compiled: leave it "
                "out of the elements"
            )


class _Arrangement:
    """Arranges an element of the data for the parameters that it is to fill, in their order.

    Names decide: a dict, a named tuple or a dataclass fills the parameters by name if it has all
    of these, else a tuple or a list in order. A single parameter gets the whole element, or what
    has its name in one that has nothing else.

    For an engine that is ``compiling``, tensors of another framework become arrays of NumPy.
    """

    def __init__(self, parameters: Sequence[str], compiling: Engine | None) -> None:
        self._parameters = parameters
        self._names = frozenset(parameters)
        self._taken = None if compiling is None else (NUMPY, NO_LIBRARY, compiling.arrays)

    def __call__(self, element: Any) -> Any:
        arranged = self._arranged(element)
        if self._taken is None or (
            type(arranged) is tuple and _PLAIN.issuperset(map(type, arranged))
        ):
            return arranged
        if all(library_of(leaf) in self._taken for leaf in nest.leaves(arranged)):
            return arranged
        return nest.map_leaves(self._read, arranged)

    def _read(self, leaf: Any) -> Any:
        library = library_of(leaf)
        return leaf if library in (self._taken or ()) else library.to_numpy(leaf)

    def _arranged(self, element: Any) -> Any:
        count = len(self._parameters)
        fields = trees.fields(element)
        if count == 1:
            if fields is not None and fields.keys() == self._names:
                return fields[self._parameters[0]]
            return element
        if fields is not None and fields.keys() >= self._names:
            return tuple([fields[parameter] for parameter in self._parameters])
        is_tuple = isinstance(element, tuple | list)
        if fields is not None and not (is_tuple and self._names.isdisjoint(fields)):
            raise self._lacking(fields)
        if is_tuple and len(element) == count:
            return tuple(element)
        size = f" of {len(element)}" if is_tuple else ""
        hint = _not_data(self._parameters) if is_tuple and len(element) < count else ""
        raise ValueError(
            f"an element of data must be a tuple of {count}, for the parameters "
            f"{list(self._parameters)} of the step, or a dict with these names; got "
            f"{with_article(type(element).__name__)}{size}{hint}"
        )

    def _lacking(self, fields: Mapping[str, Any]) -> ValueError:
        parameter = next(it for it in self._parameters if it not in fields)
        return ValueError(
            f"an element of data must have {parameter!r}, a parameter of the step; it has "
            f"{list(fields)}{suggestion(parameter, fields)}"
        )


def _not_data(parameters: Sequence[str]) -> str:
    keys = [it for it in parameters if it.endswith(("rng", "key"))]
    if keys:
        return f"; a random key is given as {keys[0]}=rh.random_key"
    return (
        f"; a state is given by its name, such as {parameters[0]}=..., and a parameter of a test "
        "step that takes one has that name"
    )


def _state_tensor(graph: Graph, name: str, value: Any) -> Tensor:
    """Return a variable of ``graph``, the default graph, that begins with ``value``.

    Of a function that returns a tensor, return that; of a random generator, an input that gives it
    in each run. TypeError: the function takes arguments, or no variable holds the value.
    """
    engine = graph.engine
    if is_generator(value):
        if engine.finds_forms:
            raise TypeError(
                f"{name} is {with_article(type(value).__name__)}, which {engine.title} cannot "
                "compile: call the parameter key or rng, which gets a fresh key in each run, or "
                f"give {name}=lambda: rh.random_key(seed=0)"
            )
        return cast(Tensor, inputs(GeneratorState(value), name=name))
    if not (callable(value) and engine.is_leaf(value)):
        return Variable(value, name=name)
    try:
        inspect.signature(value).bind()
    except TypeError:
        raise TypeError(
            f"{name} must be a pytree of arrays, or a function without arguments that returns one, "
            f"got {value!r}"
        ) from None
    found = called_ahead(value)
    if isinstance(found, Tensor):
        return found
    graph.check_initial(name, found)
    variable = Variable(value, name=name)  # each session calls it: what it returns now may be large
    if engine.finds_forms:
        graph.note_form(variable, engine.form(lambda: found))
    return variable


def _is_state(tensor: Tensor) -> bool:
    return isinstance(tensor, Variable) and not tensor.on_host


def made_for(parameters: Iterable[str]) -> dict[str, Tensor]:
    """Return the global step and random keys for those that have their names."""
    made: dict[str, Tensor] = {}
    for parameter in parameters:
        if parameter in STEPS:
            made[parameter] = get_or_create_global_step()
        elif parameter in KEYS:
            made[parameter] = random_key(name=parameter)
    return made


def positional(fn: Callable[..., Any], given: Sequence[inspect.Parameter]) -> Callable[..., Any]:
    """Return ``fn`` as a function that takes all of ``given`` by position."""
    keywords = {it.name: i for i, it in enumerate(given) if it.kind is it.KEYWORD_ONLY}
    if not keywords:
        return fn
    places = [i for i, it in enumerate(given) if it.name not in keywords]

    def called(*args: Any) -> Any:
        named = {name: args[i] for name, i in keywords.items()}
        return fn(*[args[i] for i in places], **named)

    return called


class StepCall:
    """A function from the arguments of a step to its new states and a dict of its outputs.

    ``given`` are the parameters of ``fn`` that are given, ``states`` the names of those that are
    states; ``rule`` divides what it returns, and ``values`` learn what is in all these.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        given: Sequence[inspect.Parameter],
        states: Sequence[str],
        rule: ResultRule,
        values: StepValues,
        engine: Engine,
    ) -> None:
        self._fn = positional(fn, given)
        self._names = [it.name for it in given]
        self._states = [self._names.index(state) for state in states]
        self._rule = rule
        self._values = values
        self._engine = engine
        self._is_known = False  # what it returns

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        try:
            returned = self._fn(*args)
        except Exception as error:
            others = {it: args[i] for i, it in enumerate(self._names) if i not in self._states}
            self._engine.note_call(error, self._rule.step, others)
            raise
        old = [args[i] for i in self._states]
        states, outputs = self._rule.divide(returned, old)
        if not self._is_known:
            self._rule.check(returned, old, states)
            by_name = dict(zip(self._names, args, strict=True))
            self._values.learn({**by_name, OUTPUTS: outputs})
            self._is_known = True
        return *states, outputs


class StepGraph(ValueGraph):
    """A graph of one step, a function that returns new states.

    Whatever has a name can be fetched by it, and ``graph[name]`` is its tensor; that of a state is
    the state as it was when the run began.
    """

    def __init__(self, engine: str | Engine, *, steps_per_epoch: int | None = None) -> None:
        super().__init__(engine, steps_per_epoch=steps_per_epoch)
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
    *,
    steps_per_epoch: int | None = None,
) -> StepGraph:
    """Return a graph whose operation ``name`` makes a step, ``fn``; see ``runhooks.graph``."""
    if not callable(fn):
        raise TypeError(f"train_step must be a callable, got {fn!r}")
    check_name(name)
    output_names = checked_outputs(outputs)
    made = StepGraph(engine, steps_per_epoch=steps_per_epoch)
    with made.as_default():
        given = given_parameters(fn, states)
        made.engine.check_distinct(states)
        tensors = {state: _state_tensor(made, state, value) for state, value in states.items()}
        tensors |= made_for(it.name for it in given if it.name not in tensors)
        wanted = [it.name for it in given if it.name not in tensors]
        if data is None:
            tensors |= {parameter: placeholder(parameter) for parameter in wanted}
        else:
            tensors |= drawn(made, wanted, data, epochs)
        for parameter, tensor in tensors.items():
            made.values.add(parameter, tensor)
        made.values.defaulted |= inspect.signature(fn).parameters.keys() - tensors.keys()
        in_order = [it.name for it in given if it.name in states and _is_state(tensors[it.name])]
        if not in_order:
            raise _no_states(fn)
        title = cleaned_name(name_of(fn), "step")
        rule = ResultRule(title, in_order, output_names, made.engine)
        step_call = StepCall(fn, given, in_order, rule, made.values, made.engine)
        call = made.add(
            "Call",
            made.engine.once(step_call, title),
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


def checked_outputs(outputs: Iterable[Any]) -> list[Names]:
    """Return ``outputs``, which must be different names, or tuples of names."""
    if isinstance(outputs, str) or not isinstance(outputs, Iterable):
        raise TypeError(f'outputs must be a list of names such as ["loss"], got {outputs!r}')
    checked: list[Names] = [
        check_name(it) if isinstance(it, str) else tuple(checked_outputs(it)) for it in outputs
    ]
    flat = list(nest.leaves(checked))
    if len(set(flat)) < len(flat):
        raise ValueError(f"outputs must be different names, got {checked}")
    return checked


class EvaluatedStep:
    """A test step in the graph of a training: in each run, a call with an element of its own data.

    Parameters are bound by the names of the training's states and objects; ``key`` and ``rng`` get
    a random key for each element, the same in every evaluation. ``outputs`` name what it returns
    without names. ``result`` is a tensor of a dict by name, ``examples`` one of the batch's size.
    """

    def __init__(
        self,
        graph: Graph,
        fn: Callable[..., Any],
        data: Iterable[Any] | Callable[..., Iterable[Any]],
        outputs: Sequence[str],
    ) -> None:
        given = given_parameters(fn, ())
        title = cleaned_name(name_of(fn), "test_step")
        with graph.name_scope(title):
            known = {it.name: _known(graph, it.name) for it in given}
            tensors = {name: found for name, found in known.items() if found is not None}
            rest = [it.name for it in given if it.name not in tensors]
            if not rest:
                raise ValueError(f"data must be left out: no parameter of {title} is left for it")
            batch = drawn(graph, rest, data, 1, is_of_training=False)
            tensors |= batch
            bound = {name: it for name, it in tensors.items() if not isinstance(it, Tensor)}
            called = with_objects(graph.for_evaluation(positional(fn, given)), given, bound)
            args = [tensors[it.name] for it in given if it.name not in bound]
            by_name = partial(_by_name, title, called, tuple(outputs))
            once = graph.engine.once(by_name, title)
            self.result: Tensor = call(once, *args, name="outputs")
            self.examples: Tensor = call(graph.engine.examples, *batch.values(), name="examples")


def _known(graph: Graph, name: str) -> Any:
    """Return the tensor or object of the training that a parameter means, or None."""
    if (found := graph.object_named(name)) is not None:
        return found
    if graph.has_operation(name):
        outputs = graph.get_operation_by_name(name).outputs
        if outputs and isinstance(outputs[0], Variable):
            return outputs[0]
    if name in STEPS:
        return get_or_create_global_step(graph)
    return _key(graph, name) if name in KEYS else None


def _key(graph: Graph, name: str) -> Tensor:
    count = add_inputs(Source(lambda step: itertools.count()), 1, "batch", is_of_training=False)
    stream = zlib.crc32(f"{graph.scope}{name}".encode())
    fn = partial(graph.engine.random_key, 0, stream)
    return graph.add("RandomKey", fn, (count.outputs[0],), name=name).outputs[0]


def _by_name(
    title: str, fn: Callable[..., Any], outputs: tuple[str, ...], *args: Any
) -> dict[str, Any]:
    returned = fn(*args)
    if outputs:
        elements = returned if type(returned) in (tuple, list) else [returned]
        if len(elements) != len(outputs):
            raise ValueError(
                f"outputs must name what {title} returns: it returned {len(elements)} values, for "
                f"{list(outputs)}"
            )
        return dict(zip(outputs, elements, strict=True))
    if isinstance(returned, Mapping):
        return dict(returned)
    if (fields := trees.fields(returned)) is not None:
        return fields
    count = len(returned) if isinstance(returned, tuple | list) else 1
    shown = ", ".join(repr(f"metric_{i}") for i in range(1, count + 1))
    raise ValueError(
        f"{title} must return its metrics by name, as in return {{'accuracy': accuracy}}, or have "
        f"outputs=[{shown}], a name for each value that it returns"
    )
