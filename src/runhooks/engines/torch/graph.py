"""``rh.torch.Graph``: a graph of steps that change modules and optimizers in place."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch.optim import Optimizer

from runhooks.engines.torch.capture import ObjectTensors
from runhooks.engines.torch.objects import TorchObjects, warn_of_optimizer
from runhooks.engines.torch.states import is_carried, kept
from runhooks.engines.torch.step import StepEngine, carrying_step, output_of, step_function
from runhooks.graph import nest
from runhooks.graph.base import get_default_graph
from runhooks.graph.build import get_or_create_global_step, group, placeholder
from runhooks.graph.generators import called_ahead
from runhooks.graph.named_values import ValueGraph
from runhooks.graph.nodes import (
    Effect,
    Operation,
    Tensor,
    Variable,
    check_name,
    cleaned_name,
    paths_below,
)
from runhooks.graph.step import (
    checked_outputs,
    drawn,
    given_parameters,
    made_for,
    name_of,
    positional,
)
from runhooks.graph.step_result import Names, ResultRule
from runhooks.near_names import with_article


def warn_of_forgotten(step: str, fn: Callable[..., Any], objects: TorchObjects) -> None:
    """Log which optimizers of ``fn`` are not among ``objects``."""
    known = {id(it) for it in objects.optimizers().values()}
    for name, value in _used_by(fn):
        if isinstance(value, Optimizer) and id(value) not in known:
            known.add(id(value))
            objects.pending_gradients.know(value)
            warn_of_optimizer(step, name, name)


def _used_by(fn: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield what ``fn`` refers to outside itself, and attributes of its object."""
    whole = inspect.unwrap(fn)
    with suppress(TypeError, ValueError):  # not written in Python, or not defined yet
        found = inspect.getclosurevars(whole)
        yield from {**found.globals, **found.nonlocals}.items()
    owner = getattr(whole, "__self__", None)
    yield from ((f"self.{name}", it) for name, it in getattr(owner, "__dict__", {}).items())


class Graph(ValueGraph):
    """A graph of several steps: your own functions, added with ``step``, which change ``objects``.

    ``graph[name]`` is the tensor of a name that can be fetched: ``docs/pytorch.md`` lists these.

    A function of ``rh.call`` leaves random generators and the modes of modules as they were, unless
    a step or an assignment needs its value.

    Args:
        device: Where modules are moved now, and each batch when it is drawn or fed. None: nothing
            is moved.
        steps_per_epoch: As for ``rh.inputs``.
        **objects: What the steps change, by name (letters, digits and ``_``): anything with
            ``state_dict`` and ``load_state_dict``, or ``get_state`` and ``set_state``.

    Raises:
        TypeError: For an object without these methods.
        ValueError: For a name or a device that is not allowed, and ``steps_per_epoch`` below 1.
    """

    def __init__(
        self,
        *,
        device: torch.device | str | int | None = None,
        steps_per_epoch: int | None = None,
        **objects: Any,
    ) -> None:
        self._objects = TorchObjects(objects)
        self._device = None if device is None else _checked_device(device)
        super().__init__(StepEngine(self._objects, self._device), steps_per_epoch=steps_per_epoch)
        if self._device is not None:
            for module in self._objects.modules().values():
                module.to(self._device)
        self.values: ObjectTensors = ObjectTensors(self, self._objects)
        self._objects.warn_of_unsaved()

    @property
    def device(self) -> torch.device | None:
        """The ``device`` given, or None."""
        return self._device

    @property
    def objects(self) -> TorchObjects:
        """The objects that its steps change, by name."""
        return self._objects

    def object_named(self, name: str) -> Any:
        return self._objects.given.get(name)

    def for_evaluation(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            for module in self._objects.modules().values():
                module.eval()  # until the call is over
            with torch.no_grad():
                return fn(*args, **kwargs)

        return called

    def check_new(self, argument: str, name: str) -> None:
        """Raise ValueError if ``name``, under the scope, is that of a value of an object."""
        if self.values.has(self.scope + name):
            raise ValueError(
                f"{argument} must not be a name that fetches a value of an object, got {name!r}"
            )


def _checked_device(device: torch.device | str | int) -> torch.device:
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"device must be a device of torch, such as 'cuda', got {device!r}: "
            f"{str(error).splitlines()[0]}"
        ) from None


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
    """Turn your own train step, unchanged, into a graph: a ``Graph(**objects)`` with one ``step``.

    Args:
        fn: Changes the objects in place and returns its outputs, by name (a dict, a named tuple or
            a dataclass) or in order, or None.
        outputs: Names of the outputs that others may fetch; with values that the step returns anew,
            as for ``rh.graph``.
        name: The name of the operation that makes a step and increases the global step.
        data: The source of the parameters of ``fn`` without a default, as for ``rh.inputs``. An
            element is a tuple in their order, or has their names. None: each is a placeholder
            with its name. For ``step``, ``key`` and objects among them see ``docs/pytorch.md``.
        epochs: As for ``rh.inputs``.
        steps_per_epoch: As for ``rh.inputs``.
        device: As for ``Graph``.
        **objects: As for ``Graph``. And values that the step carries from run to run, by parameter;
            functions that return such values, called at each start and when the graph is made, or
            that return a tensor of the graph.

    Raises:
        TypeError, ValueError: As ``Graph`` and ``step``; for a value that is no parameter of
            ``fn``, or, in the first run, is not returned where it belongs.
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
    return callable(it) and not hasattr(it, "state_dict") and not hasattr(it, "get_state")


def _tensors_made(made: Graph, values: Mapping[str, Any]) -> set[str]:
    """Let parameters mean the tensors that their functions return; return their names."""
    tensors = set()
    for key, it in values.items():
        if _is_maker(it) and isinstance(found := _looked_at(key, it), Tensor):
            made.values.add(key, found)
            tensors.add(key)
    return tensors


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
            f"{key} is a function that returns {with_article(type(found).__name__)}, not values or "
            "a tensor: give a module itself, which all sessions share"
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
        outputs: As for ``rh.torch.graph``; one that an earlier step has, too, is named
            ``"<name>/<output>"``.
        name: The name of the operation.
        args: The arguments of ``fn``, as for ``rh.call``. None: as for ``rh.torch.graph``; steps
            share placeholders, and the key of a run.
        counts: Whether the step increases the global step.
        data: As for ``rh.torch.graph``.
        epochs: As for ``rh.inputs``.

    Raises:
        TypeError: Outside a ``Graph`` of ``rh.torch``, or if a parameter of ``fn`` cannot be a
            placeholder.
        ValueError: For a name that is not allowed or taken; for both ``args`` and ``data``; in the
            first run, if ``fn`` does not return all ``outputs``.
        RuntimeError: If the graph is finalized.
    """
    within = get_default_graph()
    if not isinstance(within, Graph):
        raise TypeError(
            f"the default graph must be an rh.torch.Graph(model=model, ...), got {within!r}"
        )
    if args is not None and data is not None:
        raise ValueError("args must be left out where data are given")
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
    wanted = _checked_names(within, fn, name, checked_outputs(outputs))
    if isinstance(args, Tensor):
        raise TypeError(f"args must be a list of what to call fn with, got {args!r}: write [args]")
    if args is not None:
        called, given = fn, tuple(args)
    else:
        called, parameters = _called(within, fn, tensors)
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
    _add_outputs(within, fn, op, wanted, name)
    return op


def _add_outputs(
    within: Graph,
    fn: Callable[..., Any],
    op: Operation,
    wanted: Sequence[str],
    name: str,
    controls: Sequence[Operation] = (),
) -> None:
    within.objects.steps[op.name] = fn
    warn_of_forgotten(within.scope + name, fn, within.objects)
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
    named = checked_outputs(outputs)
    wanted = _checked_names(within, fn, name, [it for it in nest.leaves(named) if it not in values])
    called, parameters = _called(within, fn, {*values, *tensors})
    put = within.engine.put
    first = {key: called_ahead(it) if _is_maker(it) else it for key, it in values.items()}
    variables: dict[str, Variable] = {}
    for key, it in values.items():
        initial = kept(first[key], put)
        begin = partial(lambda make: kept(make(), put), it) if _is_maker(it) else initial
        variables[key] = Variable(begin, name=key, trainable=False)
        paths = frozenset(paths_below(initial, within.engine.children))
        within.values.carry(within.scope + key, variables[key], paths)
    in_order = [it.name for it in parameters if it.name in values]
    states = {i: first[it.name] for i, it in enumerate(parameters) if it.name in values}
    title = cleaned_name(name_of(fn), "step")
    carrying = carrying_step(called, states, ResultRule(title, in_order, named, within.engine))
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
    stored = [
        variables[key].assign(new, name=f"{name}/{key}").op
        for key, new in zip(in_order, op.outputs, strict=False)  # the last are the outputs
    ]
    group(op, *stored, name=name)
    _add_outputs(within, fn, op, wanted, name, stored)


def _checked_names(
    within: Graph, fn: Callable[..., Any], name: str, outputs: list[Any]
) -> list[str]:
    if not callable(fn):
        raise TypeError(f"fn must be a callable, got {fn!r}")
    if within.has_operation(within.scope + check_name(name)):
        raise ValueError(f"name must be new, got {name!r}: the graph has one of that name")
    within.check_new("name", name)
    for output in outputs:
        within.check_new("outputs", check_name(output))
    return outputs


def _called(
    within: Graph, fn: Callable[..., Any], states: Collection[str]
) -> tuple[Callable[..., Any], list[inspect.Parameter]]:
    """Return ``fn`` with its objects bound, and the parameters left, all ``states`` among them."""
    parameters = given_parameters(fn, states)
    for name, parameter in inspect.signature(fn).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(
                f"fn must take plain parameters, got {parameter} in {fn!r}: give args, the tensors "
                "to call it with"
            )
        if name not in [it.name for it in parameters]:
            within.values.defaulted.add(within.scope + name)
    named = {it.name: within.object_named(it.name) for it in parameters}
    objects = {name: it for name, it in named.items() if it is not None}
    called = positional(fn, parameters, objects)
    return called, [it for it in parameters if it.name not in objects]


def _tensors(
    within: Graph,
    parameters: Sequence[inspect.Parameter],
    step_name: str,
    data: Any,
    epochs: int | None,
) -> tuple[Tensor, ...]:
    """Return the arguments of a step, drawn from ``data``, or placeholders."""
    in_order = [it.name for it in parameters]
    for name in in_order:
        within.check_new("a parameter of fn", name)
    given = {it: within.values.given(within.scope + it) for it in in_order}
    tensors = {name: tensor for name, tensor in given.items() if tensor is not None}
    tensors |= made_for(name for name in in_order if name not in tensors)
    rest = [name for name in in_order if name not in tensors]
    if data is not None:
        tensors |= drawn(within, rest, data, epochs)
        rest = []
    for name, tensor in tensors.items():
        within.values.add(within.scope + name, tensor)
    tensors |= {name: _placeholder(within, name, step_name) for name in rest}
    return tuple(tensors[name] for name in in_order)


def _placeholder(within: Graph, name: str, step_name: str) -> Tensor:
    if not within.has_operation(within.scope + name):
        return placeholder(name)
    if within.get_operation_by_name(within.scope + name).type == "Placeholder":
        return within[within.scope + name]
    return placeholder(f"{step_name}/{name}")
