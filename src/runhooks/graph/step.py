"""``step_graph``: a graph of the user's own step, with a name for everything in it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import numpy as np

from runhooks.arrays import trees
from runhooks.arrays.registry import NO_LIBRARY, NUMPY, library_of
from runhooks.arrays.values import NUMBERS
from runhooks.graph import names, nest
from runhooks.graph.build import (
    STEPS,
    add_inputs,
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
from runhooks.graph.nodes import Tensor, Variable
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

    A default of None leaves it open what one of ``STEPS`` or ``KEYS`` is: it is given too.
    Those that stand behind one that is left out are keyword-only.

    Raises:
        TypeError: If one of ``states`` is not a parameter of ``fn``.
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


def no_states(fn: Callable[..., object]) -> TypeError:
    """Return the error that no state of ``fn`` is named."""
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
    """Return ``fn`` of the parameters ``given``, with ``objects`` bound to those of their names."""
    if not objects:
        return fn

    def called(*args: Any) -> Any:
        rest = iter(args)
        return fn(*[objects[it.name] if it.name in objects else next(rest) for it in given])

    return called


def placeholders(parameters: Sequence[str]) -> dict[str, Tensor]:
    """Return a placeholder for each of ``parameters``."""
    return {parameter: placeholder(parameter) for parameter in parameters}


def drawn(
    graph: Graph,
    parameters: Sequence[str],
    data: Any,
    epochs: int | None,
    *,
    is_of_training: bool = True,
) -> dict[str, Tensor]:
    """Return a tensor for each of ``parameters``, drawn from ``data``, as ``rh.inputs`` takes it.

    For a graph that compiles, tensors of other frameworks become arrays of NumPy. Their forms are
    noted, if ``graph`` knows forms and the first element can be looked at.

    Raises:
        TypeError: If ``data`` cannot be iterated, or has text for a graph that compiles.
        ValueError: If there are no ``parameters``, or the first element does not fit them.
    """
    elements = checked_source("data", data, epochs)
    if not parameters:
        raise ValueError(
            "data must be left out: no parameter of the step is left for it. What takes it needs a "
            "name, as in step(params, batch), and no default: *batch and **batch get nothing"
        )
    compiling = graph.engine if graph.engine.finds_forms else None
    source = Source(elements, epochs, Arrangement(parameters, compiling))
    op = add_inputs(source, len(parameters), "data", is_of_training=is_of_training)
    if graph.engine.finds_forms:
        with suppress(LookupError):
            first = source.peek()
            parts = first if len(parameters) > 1 else (first,)
            for tensor, name, element in zip(op.outputs, parameters, parts, strict=True):
                _check(name, element)
                graph.note_form(tensor, graph.engine.form(lambda element=element: element))
    return dict(zip(parameters, op.outputs, strict=True))


def _check(parameter: str, element: Any) -> None:
    for leaf in nest.leaves(element):
        if isinstance(leaf, str | bytes):
            raise TypeError(
                f"data has the text {leaf!r} for {parameter!r}, which cannot be compiled: leave it "
                "out of the elements"
            )


class Arrangement:
    """Arranges an element of the data for the parameters that it is to fill, in their order.

    Names decide: a dict, a named tuple or a dataclass fills the parameters by name if its fields
    have their names, and may have others besides. Otherwise a tuple or a list fills them in order.
    One parameter gets the whole element, or that of its name from one that has nothing else.

    Args:
        parameters: Their names.
        compiling: An engine that takes only arrays of its own and NumPy's: tensors of a loader of
            another framework are read as arrays of NumPy. None: all are left as they are.
    """

    def __init__(self, parameters: Sequence[str], compiling: Engine | None = None) -> None:
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
        kind, count = type(element), len(self._parameters)
        fields = trees.fields(element)
        if fields and (
            fields.keys() == self._names or (count > 1 and fields.keys() >= self._names)
        ):
            found = tuple([fields[parameter] for parameter in self._parameters])
            return found if count > 1 else found[0]
        if count == 1:
            return element
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
            f"{with_article(kind.__name__)}{size}{hint}"
        )

    def _lacking(self, fields: Mapping[str, Any]) -> ValueError:
        parameter = next(it for it in self._parameters if it not in fields)
        return ValueError(
            f"an element of data must have {parameter!r}, a parameter of the step; it has "
            f"{list(fields)}{suggestion(parameter, fields)}"
        )


def _not_data(parameters: Sequence[str]) -> str:
    """Return how to name what the step does not take from its data."""
    keys = [it for it in parameters if it.endswith(("rng", "key"))]
    if keys:
        return f"; a random key is given as {keys[0]}=rh.random_key"
    return (
        f"; a state is given by its name, such as {parameters[0]}=..., and a parameter of a test "
        "step that takes one has that name"
    )


def state_tensor(graph: Graph, name: str, value: Any) -> Tensor:
    """Return a variable of ``graph``, the default graph, that begins with ``value``.

    If ``value`` is a function that returns a tensor, return that; if it is a random generator, an
    input that gives it in each run, and has its state in checkpoints.

    Raises:
        TypeError: If it is a function that takes arguments, or holds what no variable can hold.
    """
    engine = graph.engine
    if is_generator(value):
        if engine.finds_forms:
            raise TypeError(
                f"{name} is {with_article(type(value).__name__)}, which {engine.title} cannot "
                "compile: a parameter called key or rng gets a fresh key in each run, and one of "
                f"another name with {name}=lambda: rh.random_key(seed=0)"
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


def is_state(tensor: Tensor) -> bool:
    """Return whether ``tensor`` is a variable that the step is to return anew."""
    return isinstance(tensor, Variable) and not tensor.on_host


def made_for(parameters: Iterable[str]) -> dict[str, Tensor]:
    """Return the global step and random keys for those that ask for these by their names."""
    made: dict[str, Tensor] = {}
    for parameter in parameters:
        if parameter in STEPS:
            made[parameter] = get_or_create_global_step()
        elif parameter in KEYS:
            made[parameter] = random_key(name=parameter)
    return made


def positional(fn: Callable[..., Any], given: Sequence[inspect.Parameter]) -> Callable[..., Any]:
    """Return ``fn`` as a function that takes the arguments for all of ``given`` by position."""
    keywords = {it.name: i for i, it in enumerate(given) if it.kind is it.KEYWORD_ONLY}
    if not keywords:
        return fn
    places = [i for i, it in enumerate(given) if it.name not in keywords]

    def called(*args: Any) -> Any:
        named = {name: args[i] for name, i in keywords.items()}
        return fn(*[args[i] for i in places], **named)

    return called


class StepCall:
    """A function from the arguments of ``fn`` to its new states and a dict of its outputs.

    Args:
        fn: The user's step.
        given: The parameters of ``fn`` that are given, in the order of the arguments. Those that
            stand behind one with a default that is left alone are keyword-only.
        states: The names of those that are states.
        rule: Divides what it returns.
        values: Learns what there is in arguments and outputs.
        engine: The engine of the graph.
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
    """A graph of one step: a function that returns new states.

    Whatever has a name can be fetched by it in any run, by any hook, and ``graph[name]`` is its
    tensor; that of a state is the state as it was when the run began.
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
    names.check(name)
    output_names = checked_outputs(outputs)
    made = StepGraph(engine, steps_per_epoch=steps_per_epoch)
    with made.as_default():
        given = given_parameters(fn, states)
        made.engine.check_distinct(states)
        tensors = {state: state_tensor(made, state, value) for state, value in states.items()}
        tensors |= made_for(it.name for it in given if it.name not in tensors)
        wanted = [it.name for it in given if it.name not in tensors]
        tensors |= placeholders(wanted) if data is None else drawn(made, wanted, data, epochs)
        for parameter, tensor in tensors.items():
            made.values.add(parameter, tensor)
        made.values.defaulted |= inspect.signature(fn).parameters.keys() - tensors.keys()
        in_order = [it.name for it in given if it.name in states and is_state(tensors[it.name])]
        if not in_order:
            raise no_states(fn)
        title = names.cleaned(name_of(fn), "step")
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
    """Return ``outputs``, which must be different names, or tuples of names.

    Raises:
        TypeError, ValueError: If they are not.
    """
    if isinstance(outputs, str):
        raise TypeError(f'outputs must be a list of names such as ["loss"], got {outputs!r}')
    checked: list[Names] = [
        names.check(it) if isinstance(it, str) else tuple(checked_outputs(it)) for it in outputs
    ]
    flat = list(nest.leaves(checked))
    if len(set(flat)) < len(flat):
        raise ValueError(f"outputs must be different names, got {checked}")
    return checked
