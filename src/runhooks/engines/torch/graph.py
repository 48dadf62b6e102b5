"""``rh.torch.Graph``: a graph around modules and optimizers that its steps change in place."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch.optim import Optimizer

from runhooks.engines.torch.capture import ObjectTensors
from runhooks.engines.torch.carried import CarriedState, CarryingStep, is_carried
from runhooks.engines.torch.device import Device
from runhooks.engines.torch.objects import TorchObjects
from runhooks.engines.torch.step import StepEngine, output_of, step_function
from runhooks.graph import nest
from runhooks.graph.base import get_default_graph
from runhooks.graph.build import get_or_create_global_step, group, placeholder
from runhooks.graph.engine import Engine
from runhooks.graph.generators import called_ahead
from runhooks.graph.named_values import ValueGraph
from runhooks.graph.nodes import Effect, Operation, Tensor, Variable, check_name, cleaned_name
from runhooks.graph.step import (
    checked_outputs,
    drawn,
    given_parameters,
    made_for,
    name_of,
    positional,
    with_objects,
)
from runhooks.graph.step_result import Names, ResultRule
from runhooks.near_names import with_article

_log = logging.getLogger("runhooks")


def warn_of_forgotten(step: str, fn: Callable[..., Any], objects: TorchObjects) -> None:
    """Log which optimizers ``fn`` uses by name that are not among ``objects``."""
    known = {id(it) for it in objects.optimizers().values()}
    for name, value in _used_by(fn):
        if isinstance(value, Optimizer) and id(value) not in known:
            known.add(id(value))
            objects.pending_gradients.know(value)
            _log.warning(
                "the step %r uses %r, an optimizer that is no object of the graph, so that "
                "checkpoints do not hold its state: give it too, such as %s=%s",
                *(step, name, name.rpartition(".")[2], name),
            )


def _used_by(fn: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield what ``fn`` refers to outside itself; of a method, the attributes of its object."""
    whole = inspect.unwrap(fn)
    with suppress(TypeError, ValueError):  # it is not written in Python, or not defined yet
        found = inspect.getclosurevars(whole)
        yield from {**found.globals, **found.nonlocals}.items()
    owner = getattr(whole, "__self__", None)
    yield from ((f"self.{name}", it) for name, it in getattr(owner, "__dict__", {}).items())


class Graph(ValueGraph):
    """A graph of several steps: your own functions, added with ``step``, which change ``objects``.

    Checkpoints hold the states of the objects, the states of the random generators of torch (CPU
    and CUDA), NumPy and Python, and the gradients that no optimizer has applied yet.

    Everything with a name can be fetched in any run, by any hook, and ``graph[name]`` is its
    tensor:

    - ``"loss"``: an output of a step;
    - ``"model/conv1.weight"``: a parameter or a buffer, as before the run, and
      ``"optimizer/learning_rate"``, or ``"learning_rate"`` if there is one optimizer: a number; a
      list of one for each group where these differ; ``"optimizer/learning_rate/1"``: of one group;
      ``"scaler/scale"`` of a ``GradScaler``, which waits for its device;
    - ``"gradients/model/conv1.weight"``: a gradient as the optimizer was about to apply it, after
      clipping, or as the step has left it if it called no optimizer; ``"global_gradient_norm"``;
    - ``"activations/model/conv1"``: what a submodule returned in its last call.

    ``"model"`` and ``"model/conv1"`` are all parameters and buffers of a module in a dict by name,
    and so is ``"gradients/model"``. Fetched values are detached copies on their own device. Runs
    that ask for nothing capture nothing. Runs that ask for activations, or for gradients of a
    compiled step, execute eagerly what ``torch.compile`` compiled; nothing is compiled for them.

    A run makes the steps that its fetches need. A hook never triggers a step: its request waits for
    the next run that makes it. A function of ``rh.call`` leaves random generators and the train or
    eval mode of modules as they were, unless a step or an assignment needs its value: numbers that
    another thread draws meanwhile from ``random``, ``np.random`` or torch may come again, so give
    such a thread a generator of its own.

    Args:
        device: Where the steps compute, such as ``"cuda"``. The modules among the objects are moved
            there now, and each batch that is drawn or fed when it comes, as
            ``batch.to(device, non_blocking=True)``: tensors in dicts, lists, tuples and
            dataclasses, too. None: everything stays where it is.
        steps_per_epoch: As for ``rh.inputs``.
        **objects: What the steps change, by name (letters, digits and ``_``): modules, optimizers,
            schedulers, gradient scalers, loaders; anything with ``state_dict`` and
            ``load_state_dict``, or ``get_state`` and ``set_state``, such as a ``torch.Generator``.

    Raises:
        TypeError: For an object without these methods.
        ValueError: For a name that is not allowed, a device that torch does not know, and
            ``steps_per_epoch`` below 1.
    """

    def __init__(
        self,
        *,
        device: torch.device | str | int | None = None,
        steps_per_epoch: int | None = None,
        **objects: Any,
    ) -> None:
        self._objects = TorchObjects(objects)
        self._device = None if device is None else Device(device)
        super().__init__(StepEngine(self._objects, self._device), steps_per_epoch=steps_per_epoch)
        if self._device is not None:
            self._device.take(self._objects.modules().values())
        self._values = ObjectTensors(self, self._objects)
        self._objects.warn_of_unsaved()

    @property
    def device(self) -> torch.device | None:
        """Where its steps compute; None: wherever their values are."""
        return None if self._device is None else self._device.device

    @property
    def objects(self) -> TorchObjects:
        """The objects that its steps change, by name."""
        return self._objects

    @property
    def values(self) -> ObjectTensors:
        return self._values

    def object_named(self, name: str) -> Any:
        return self._objects.given.get(name)

    def for_evaluation(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any) -> Any:
            for module in self._objects.modules().values():
                module.eval()  # until the call is over, as for all that does not train
            with torch.no_grad():
                return fn(*args)

        return called

    def check_new(self, argument: str, name: str) -> None:
        """Raise ValueError if ``name``, under the scope, is the name of a value of an object."""
        if self.values.has(self.scope + name):
            raise ValueError(
                f"{argument} must not be a name that fetches a value of an object, got {name!r}"
            )


def graph(
    fn: Callable[..., Any],
    outputs: Iterable[Names] = (),
    name: str = "train_op",
    *,
    data: Iterable[Any] | Callable[..., Iterable[Any]] | None = None,
    epochs: int | None = 1,
    steps_per_epoch: int | None = None,
    device: torch.device | str | int | None = None,
    **objects: Any,
) -> Graph:
    """Turn your own train step, unchanged, into a graph with the operation ``"train_op"``.

        graph = rh.torch.graph(train_step, ["loss"], model=model, optimizer=optimizer)

    This is a ``Graph(**objects)`` with one ``step``. Outputs, parameters, gradients, activations
    and learning rates can be fetched by name, in any run and by any hook.

    Values that it carries from run to run, taking and returning them, are given by name as well:
    ``hidden=torch.zeros(1, 4, 8), lr=20.0``.

    Args:
        fn: Your own function, which changes the objects in place and returns its outputs: a dict, a
            named tuple or a dataclass has them by name, anything else in order. Or it returns None.
        outputs: Names of the outputs that others may fetch. Each becomes a tensor of that name.
            With values that the step returns anew, as for ``rh.graph``: names for what else it
            returns, or for all its elements.
        name: The name of the operation that makes a step and increases the global step.
        data: The source of the parameters of ``fn`` without a default, as for ``rh.inputs``, such
            as a loader. An element is a tuple in their order, or has their names: a dict, a named
            tuple or a dataclass. None: each is a placeholder with its name. A parameter called
            ``step`` or ``global_step`` receives the global step; one called ``key`` or ``rng``, a
            fresh ``torch.Generator`` in each run; one with the name of an object, that object.
        epochs: How many times to go through ``data``, if it can be iterated again. None: forever.
        steps_per_epoch: As for ``rh.inputs``: how many steps count as an epoch, where ``data`` do
            not tell.
        device: As for ``Graph``.
        **objects: What the step changes, by the names that hooks and checkpoints use: modules,
            optimizers, and whatever else has a ``state_dict``; a ``torch.Generator`` too. And
            values: tensors, numbers, arrays of NumPy, and dicts, lists, tuples and dataclasses of
            these. The step receives them by its parameters of these names, in the kinds given
            here, and returns them anew: first, in the order of the parameters, or by name in a
            dict. They are stored detached, saved, and fetched by name as they were before the run.
            Or functions that return such values, called at each start and when the graph is made;
            or a tensor, as ``noise=lambda: rh.placeholder_with_default(0.0)``.

    Raises:
        TypeError, ValueError: As ``Graph`` and ``step``; for a value that is no parameter of
            ``fn``; in the first run, if ``fn`` does not return the values where they belong.
    """
    values = {key: it for key, it in objects.items() if is_carried(it) or _is_maker(it)}
    rest = {key: it for key, it in objects.items() if key not in values}
    made = Graph(device=device, steps_per_epoch=steps_per_epoch, **rest)
    with made.as_default():
        tensors = _tensors_made(made, values)
        if values := {key: it for key, it in values.items() if key not in tensors}:
            _add_carrying_step(made, fn, outputs, name, values, tensors, data=data, epochs=epochs)
        else:
            _add_step(made, fn, outputs, name, tensors, data=data, epochs=epochs)
    return made


def _is_maker(it: Any) -> bool:
    """Return whether ``it`` is a function that makes a value, and no object of its own."""
    return callable(it) and not hasattr(it, "state_dict") and not hasattr(it, "get_state")


def _tensors_made(made: Graph, values: Mapping[str, Any]) -> set[str]:
    """Let the parameters whose functions return tensors mean these; return their names."""
    found = {key: _looked_at(key, it) for key, it in values.items() if _is_maker(it)}
    tensors = {key: it for key, it in found.items() if isinstance(it, Tensor)}
    for key, tensor in tensors.items():
        made.values.add(key, tensor)
    return set(tensors)


def _looked_at(key: str, make: Callable[[], Any]) -> Any:
    try:
        inspect.signature(make).bind()
    except TypeError:
        raise TypeError(
            f"{key} must be an object with state_dict, a value, or a function without arguments "
            f"that returns a value or a tensor, got {make!r}"
        ) from None
    found = called_ahead(make)
    if not isinstance(found, Tensor) and not is_carried(found):
        raise TypeError(
            f"{key} is a function that returns {with_article(type(found).__name__)}: it may return "
            "values or a tensor of the graph; all sessions share a module, so give that itself"
        )
    return found


def step(
    fn: Callable[..., Any],
    outputs: Iterable[str] = (),
    name: str = "train_op",
    *,
    args: Iterable[Any] | None = None,
    counts: bool = True,
    data: Iterable[Any] | Callable[[int], Iterable[Any]] | None = None,
    epochs: int | None = 1,
) -> Operation:
    """Add a step to the default graph, a ``Graph`` of ``rh.torch``; return its operation.

    A run that raises cannot be undone, except by restoring a checkpoint.

    Args:
        fn: As for ``rh.torch.graph``.
        outputs: As for ``rh.torch.graph``; an output is named ``"<name>/<output>"`` if an earlier
            step has one of its name.
        name: The name of the operation.
        args: The arguments of ``fn``, as for ``rh.call``. None: as for ``rh.torch.graph``; steps
            share placeholders, and the key of a run.
        counts: Whether a run of this step increases the global step. Use False for micro-steps that
            accumulate gradients: the global step then counts updates.
        data: As for ``rh.torch.graph``: each run of this step draws an element.
        epochs: As for ``rh.torch.graph``.

    Raises:
        TypeError: Outside a ``Graph`` of ``rh.torch``, or if a parameter of ``fn`` cannot be a
            placeholder.
        ValueError: For a name that is not allowed, taken, or the name of an object; for both
            ``args`` and ``data``; in the first run, if ``fn`` does not return all ``outputs``.
        RuntimeError: If the graph is finalized.
    """
    within = get_default_graph()
    if not isinstance(within, Graph):
        raise TypeError(
            f"step needs a graph of rh.torch.Graph(model=model, ...) as the default graph, "
            f"got {within!r}"
        )
    if args is not None and data is not None:
        raise ValueError("args must be left out where data are given: these are what fn is given")
    return _add_step(within, fn, outputs, name, args=args, data=data, epochs=epochs, counts=counts)


def _add_step(
    within: Graph,
    fn: Callable[..., Any],
    outputs: Iterable[Any],
    name: str,
    tensors: Collection[str] = (),
    *,
    args: Iterable[Any] | None = None,
    data: Any = None,
    epochs: int | None = 1,
    counts: bool = True,
) -> Operation:
    wanted = _checked_names(within, name, outputs)
    called, given = fn, () if args is None else _listed(args)
    if args is None:
        called, parameters = _without_objects(within, fn, _parameters(within, fn, tensors))
        given = _tensors(within, parameters, name, data, epochs)
    controls = (
        [get_or_create_global_step().assign_add(1, name=f"{name}/count").op] if counts else []
    )
    op = within.add(
        "Step",
        step_function(called, within.objects, within.scope + name, wanted),
        given,
        name=name,
        control_inputs=controls,
        effect=Effect.STEP,
    )
    within.objects.steps[op.name] = fn
    warn_of_forgotten(op.name, fn, within.objects)
    _add_outputs(within, op, wanted, name)
    return op


def _add_outputs(
    within: Graph,
    op: Operation,
    wanted: Sequence[str],
    name: str,
    controls: Sequence[Operation] = (),
) -> None:
    """Add the outputs ``wanted`` of the step ``op``, called ``name``; ``controls`` go with each."""
    for output in wanted:
        taken = within.has_operation(within.scope + output)
        within.add(
            "StepOutput",
            output_of(name, output, wanted),
            (op.outputs[-1],),
            name=f"{name}/{output}" if taken else output,
            control_inputs=controls,
            effect=Effect.STEP_OUTPUT,
        )


def _add_carrying_step(
    within: Graph,
    fn: Callable[..., Any],
    outputs: Iterable[Any],
    name: str,
    values: Mapping[str, Any],
    tensors: Collection[str],
    *,
    data: Any,
    epochs: int | None,
) -> None:
    """Add a step that takes ``values`` and returns them anew, and what stores these.

    ``tensors``: the names of parameters that are given as tensors, whatever their defaults.
    """
    named = checked_outputs(outputs)
    wanted = _checked_names(within, name, [it for it in nest.leaves(named) if it not in values])
    called, parameters = _without_objects(within, fn, _parameters(within, fn, {*values, *tensors}))
    put = within.engine.put
    states = {
        key: CarriedState(called_ahead(it) if _is_maker(it) else it, put, within.engine)
        for key, it in values.items()
    }
    variables: dict[str, Variable] = {}
    for key, state in states.items():
        begin = state.initial
        if _is_maker(values[key]):
            begin = partial(_begun_with, values[key], put, within.engine)
        variables[key] = Variable(begin, name=key, trainable=False)
        within.values.carry(within.scope + key, variables[key], state.paths)
    in_order = [it.name for it in parameters if it.name in states]
    places = {i: states[it.name] for i, it in enumerate(parameters) if it.name in states}
    title = cleaned_name(name_of(fn), "step")
    rule = ResultRule(title, in_order, named, within.engine)
    carrying = CarryingStep(called, places, rule)
    count = get_or_create_global_step().assign_add(1, name=f"{name}/count").op
    op = within.add(
        "Step",
        step_function(carrying, within.objects, within.scope + name, wanted, carries=True),
        _tensors(within, parameters, name, data, epochs),
        name=f"{name}/{title}",
        num_outputs=len(in_order) + 1,
        control_inputs=[count],
        effect=Effect.STEP,
    )
    within.objects.steps[op.name] = fn
    warn_of_forgotten(name, fn, within.objects)
    stored = [
        variables[key].assign(new, name=f"{name}/{key}").op
        for key, new in zip(in_order, op.outputs, strict=False)  # the last are the outputs
    ]
    group(op, *stored, name=name)
    _add_outputs(within, op, wanted, name, stored)


def _begun_with(make: Callable[[], Any], put: Callable[[Any], Any] | None, engine: Engine) -> Any:
    """Return what a session begins with, made anew, as a variable keeps it."""
    return CarriedState(make(), put, engine).initial


def _checked_names(within: Graph, name: str, outputs: Iterable[str]) -> list[str]:
    """Return ``outputs``, checked like ``name`` against what the graph has."""
    if isinstance(outputs, str) or not isinstance(outputs, Iterable):
        raise TypeError(f'outputs must be a list of names such as ["loss"], got {outputs!r}')
    outputs = [check_name(output) for output in outputs]
    if within.has_operation(within.scope + check_name(name)):
        raise ValueError(f"name must be new, got {name!r}: the graph has one of that name")
    if len(set(outputs)) < len(outputs):
        raise ValueError(f"outputs must be different names, got {outputs}")
    within.check_new("name", name)
    for output in outputs:
        within.check_new("outputs", output)
    return outputs


def _parameters(
    within: Graph, fn: Callable[..., Any], states: Collection[str] = ()
) -> list[inspect.Parameter]:
    """Return the parameters of ``fn`` that are given, ``states`` among them."""
    if not callable(fn):
        raise TypeError(f"fn must be a callable, got {fn!r}")
    given = given_parameters(fn, states)
    for name, parameter in inspect.signature(fn).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(
                f"fn must take its inputs as plain parameters, got {parameter} in {fn!r}: "
                "give args, the tensors to call it with"
            )
        if name not in [it.name for it in given]:
            within.values.defaulted.add(within.scope + name)
    return given


def _without_objects(
    within: Graph, fn: Callable[..., Any], parameters: Sequence[inspect.Parameter]
) -> tuple[Callable[..., Any], list[inspect.Parameter]]:
    """Return ``fn`` with the objects it takes by their names, and the parameters that are left."""
    objects = {it.name: within.object_named(it.name) for it in parameters}
    objects = {name: it for name, it in objects.items() if it is not None}
    called = with_objects(positional(fn, parameters), parameters, objects)
    return called, [it for it in parameters if it.name not in objects]


def _listed(args: Iterable[Any]) -> tuple[Any, ...]:
    if isinstance(args, Tensor):
        raise TypeError(f"args must be a list of what to call fn with, got {args!r}: write [args]")
    return tuple(args)


def _tensors(
    within: Graph,
    parameters: Sequence[inspect.Parameter],
    step_name: str,
    data: Any,
    epochs: int | None,
) -> tuple[Tensor, ...]:
    """Return what a step is called with: drawn from ``data``, or placeholders that steps share."""
    in_order = [it.name for it in parameters]
    for name in in_order:
        within.check_new("a parameter of fn", name)
    given = {it: within.values.given(within.scope + it) for it in in_order}
    tensors = {name: tensor for name, tensor in given.items() if tensor is not None}
    made = made_for(name for name in in_order if name not in tensors)
    rest = [name for name in in_order if name not in tensors and name not in made]
    if data is not None:
        made |= drawn(within, rest, data, epochs)
        rest = []
    for name, tensor in made.items():
        within.values.add(within.scope + name, tensor)
    tensors |= made | {name: _placeholder(within, name, step_name) for name in rest}
    return tuple(tensors[name] for name in in_order)


def _placeholder(within: Graph, name: str, step_name: str) -> Tensor:
    if not within.has_operation(within.scope + name):
        return placeholder(name)
    if within.get_operation_by_name(within.scope + name).type == "Placeholder":
        return within[within.scope + name]
    return placeholder(f"{step_name}/{name}")
