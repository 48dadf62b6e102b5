"""``step_graph``: a graph of the user's own step; ``EvaluatedStep``: a test step."""

from __future__ import annotations

import inspect
import itertools
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
from runhooks.graph.sources import Source
from runhooks.graph.step_result import Names, ResultRule
from runhooks.near_names import suggestion, with_article

#: Parameters that get a random key.
KEYS = ("key", "rng")

_PLAIN = NUMBERS | {np.ndarray}


def name_of(fn: Callable[..., object]) -> str:
    return str(getattr(fn, "__name__", type(fn).__name__)).strip("<>")


def given_parameters(fn: Callable[..., object], states: Collection[str]) -> list[inspect.Parameter]:
    """Return the parameters of ``fn`` that are given: ``states``, and those without a default.

    Of ``STEPS`` and ``KEYS``, also those whose default is None. Those behind one left out are
    keyword-only. TypeError: one of ``states`` is not a parameter.
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


def _shown(fn: Callable[..., object]) -> str:
    parameters = inspect.signature(fn).parameters.values()
    bare = (str(it.replace(default=it.empty, annotation=it.empty)) for it in parameters)
    return f"{name_of(fn)}({', '.join(bare)})"


def positional(
    fn: Callable[..., Any],
    given: Sequence[inspect.Parameter],
    objects: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Return ``fn`` of all of ``given`` by position, but for ``objects``, bound by name."""
    bound = objects or {}
    places = [it.name for it in given if it.kind is not it.KEYWORD_ONLY]
    keywords = [it.name for it in given[len(places) :]]
    if not bound and not keywords:
        return fn

    def called(*args: Any) -> Any:
        rest = iter(args)
        values = [bound[name] if name in bound else next(rest) for name in places]
        if not keywords:
            return fn(*values)
        named = {name: bound[name] if name in bound else next(rest) for name in keywords}
        return fn(*values, **named)

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

    TypeError: ``data`` cannot be iterated, or has text for a graph that compiles; ValueError: there
    are no ``parameters``, or the first element does not fit them.
    """
    elements = checked_source("data", data, epochs)
    if not parameters:
        raise ValueError(
            "data must be left out: no parameter of the step is left for it. One that takes it "
            "needs a name and no default: *batch and **batch get nothing"
        )
    compiling = graph.engine if graph.engine.finds_forms else None
    arrange = _Arrangement(parameters, compiling)
    source = Source(elements, epochs, arrange)
    op = add_inputs(source, len(parameters), "data", is_of_training=is_of_training)
    if compiling is not None:
        for first in map(arrange, source.peek()):
            parts = first if len(parameters) > 1 else (first,)
            for tensor, name, element in zip(op.outputs, parameters, parts, strict=True):
                for leaf in nest.leaves(element):
                    if isinstance(leaf, str | bytes):
                        raise TypeError(
                            f"data has the text {leaf!r} for {name!r}, which cannot be compiled: "
                            "leave it out of the elements"
                        )
                graph.note_form(tensor, compiling.form(lambda element=element: element))
    return dict(zip(parameters, op.outputs, strict=True))


class _Arrangement:
    """Arranges an element of the data for the parameters that it is to fill, in their order.

    Names decide: a dict, a named tuple or a dataclass that has all of them; else a tuple or a list
    has them in order. A single parameter gets the whole element, or what has its name in one that
    has nothing else. For an engine that compiles, foreign tensors become arrays of NumPy.
    """

    def __init__(self, parameters: Sequence[str], compiling: Engine | None) -> None:
        self._parameters = parameters
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
            (name,) = self._parameters
            return fields[name] if fields is not None and list(fields) == [name] else element
        lacking = [] if fields is None else [it for it in self._parameters if it not in fields]
        if fields is not None and not lacking:
            return tuple([fields[parameter] for parameter in self._parameters])
        is_tuple = isinstance(element, tuple | list)
        if fields is not None and not (is_tuple and len(lacking) == count):
            raise ValueError(
                f"an element of data must have {lacking[0]!r}, a parameter of the step; it has "
                f"{list(fields)}{suggestion(lacking[0], fields)}"
            )
        if is_tuple and len(element) == count:
            return tuple(element)
        size = f" of {len(element)}" if is_tuple else ""
        hint = ""
        if is_tuple and len(element) < count:
            keys = [it for it in self._parameters if it.endswith(("rng", "key"))]
            hint = (
                f"; a random key is given as {keys[0]}=rh.random_key"
                if keys
                else f"; a state is given by its name, such as {self._parameters[0]}=..., which a "
                "test step's parameter has, too"
            )
        raise ValueError(
            f"an element of data must be a tuple of {count}, for the parameters "
            f"{list(self._parameters)}, or a dict with these names; got "
            f"{with_article(type(element).__name__)}{size}{hint}"
        )


def _state_tensor(graph: Graph, name: str, value: Any) -> Tensor:
    """Return a variable that begins with ``value``.

    Of a function that returns a tensor, return that; of a random generator, an input of it.
    """
    engine = graph.engine
    if is_generator(value):
        if engine.finds_forms:
            raise TypeError(
                f"{name} is {with_article(type(value).__name__)}, which {engine.title} cannot "
                "compile: call the parameter key or rng, which gets a random key, or give "
                f"{name}=lambda: rh.random_key(seed=0)"
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
    engine.check_initial(name, found)
    variable = Variable(value, name=name)  # not what it returned, which may be large
    if engine.finds_forms:
        graph.note_form(variable, engine.form(lambda: found))
    return variable


def _is_state(tensor: Tensor) -> bool:
    return isinstance(tensor, Variable) and not tensor.on_host


def made_for(parameters: Iterable[str]) -> dict[str, Tensor]:
    made: dict[str, Tensor] = {}
    for parameter in parameters:
        if parameter in STEPS:
            made[parameter] = get_or_create_global_step()
        elif parameter in KEYS:
            made[parameter] = random_key(name=parameter)
    return made


def _step_call(
    fn: Callable[..., Any],
    given: Sequence[inspect.Parameter],
    rule: ResultRule,
    values: StepValues,
    engine: Engine,
) -> Callable[..., Any]:
    """Return the call of a step: of its arguments, the new states and a dict of outputs."""
    called = positional(fn, given)
    names = [it.name for it in given]
    states = [names.index(state) for state in rule.states]
    is_known = False

    def step(*args: Any) -> tuple[Any, ...]:
        nonlocal is_known
        try:
            returned = called(*args)
        except Exception as error:
            others = {it: args[i] for i, it in enumerate(names) if i not in states}
            engine.note_call(error, rule.step, others)
            raise
        old = [args[i] for i in states]
        new, outputs = rule.divide(returned, old)
        if not is_known:
            rule.check(returned, old, new)
            values.learn({**dict(zip(names, args, strict=True)), OUTPUTS: outputs})
            is_known = True
        return *new, outputs

    return step


class StepGraph(ValueGraph):
    """A graph of one step, a function that returns new states.

    Whatever has a name can be fetched by it, and ``graph[name]`` is its tensor; a state is as it
    was before the run.
    """

    def __init__(self, engine: str | Engine, *, steps_per_epoch: int | None = None) -> None:
        super().__init__(engine, steps_per_epoch=steps_per_epoch)
        self.values: StepValues = StepValues(self)


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
    """Return a graph whose operation ``name`` makes a step, ``fn``: ``rh.graph``."""
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
            first = next(iter(inspect.signature(fn).parameters), "state")
            raise TypeError(
                f"name what {_shown(fn)} takes and returns anew by its parameter, such as "
                f"{first}=..."
            )
        title = cleaned_name(name_of(fn), "step")
        rule = ResultRule(title, in_order, output_names, made.engine)
        step = _step_call(fn, given, rule, made.values, made.engine)
        call = made.add(
            "Call",
            made.engine.once(step, title),
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
        made.form_of(rest)  # finds the names of the outputs, if it can
    return made


def checked_outputs(outputs: Iterable[Any]) -> list[Names]:
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
    unnamed. ``result`` is a tensor of a dict, ``examples`` of the batch's size.
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
            called = positional(graph.for_evaluation(fn), given, bound)
            args = [tensors[it.name] for it in given if it.name not in bound]
            by_name = partial(_by_name, title, called, outputs)
            once = graph.engine.once(by_name, title)
            self.result: Tensor = call(once, *args, name="outputs")
            self.examples: Tensor = call(graph.engine.examples, *batch.values(), name="examples")


def _known(graph: Graph, name: str) -> Any:
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
    title: str, fn: Callable[..., Any], outputs: Sequence[str], *args: Any
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
    if (fields := trees.fields(returned)) is not None:
        return fields
    count = len(returned) if isinstance(returned, tuple | list) else 1
    raise ValueError(
        f"{title} must return its metrics by name, as in return {{'accuracy': accuracy}}, or "
        f"have outputs={[f'metric_{i}' for i in range(1, count + 1)]}, a name for each value that "
        "it returns"
    )
