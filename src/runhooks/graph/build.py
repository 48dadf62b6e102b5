"""Functions that build a graph: placeholders, calls, inputs, groups, the global step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from runhooks import arguments
from runhooks.graph import nest
from runhooks.graph.base import BaseGraph, GraphKeys, get_default_graph
from runhooks.graph.nodes import (
    UPDATE,
    Operation,
    Placement,
    Tensor,
    Variable,
    check_name,
    cleaned_name,
)
from runhooks.graph.sources import FunctionIterable, Source

#: Parameters of steps that get the global step.
STEPS = ("global_step", "step")


def create_global_step(graph: BaseGraph | None = None) -> Variable:
    """Create the global step, which starts at 0, in ``graph`` (None: the default graph).

    Raises:
        ValueError: If it has one.
    """
    graph = graph or get_default_graph()
    if get_global_step(graph) is not None:
        raise ValueError('the graph has a "global_step" already: use get_or_create_global_step()')
    with graph.as_default():
        keys = [GraphKeys.GLOBAL_VARIABLES, GraphKeys.GLOBAL_STEP]
        return Variable(0, name="global_step", collections=keys, on_host=True)


def get_global_step(graph: BaseGraph | None = None) -> Variable | None:
    """Return the global step of ``graph`` (None: the default graph), or None if it has none."""
    found = (graph or get_default_graph()).get_collection(GraphKeys.GLOBAL_STEP)
    return found[0] if found else None


def get_or_create_global_step(graph: BaseGraph | None = None) -> Variable:
    """Return the global step of ``graph`` (None: the default graph), created if it has none."""
    graph = graph or get_default_graph()
    found = get_global_step(graph)
    return create_global_step(graph) if found is None else found


def global_step(sess: Any, global_step_tensor: Variable | None = None) -> int:
    """Return the global step of ``sess``, read on the host without a run.

    Args:
        sess: A session.
        global_step_tensor: As in ``tf.compat.v1``; any other tensor is fetched.

    Raises:
        RuntimeError: If there is none.
    """
    if global_step_tensor is not None and global_step_tensor is not get_global_step(sess.graph):
        return int(sess.run(global_step_tensor))
    step = sess.global_step
    if step is None:
        raise RuntimeError("the graph has no global step: call train.create_global_step() first")
    return int(step)


def placeholder(
    name: str | None = None,
    dtype: npt.DTypeLike | None = None,
    shape: Sequence[int | None] | None = None,
) -> Tensor:
    """Return a tensor that every run that needs it must feed.

    Args:
        name: The name of its operation; the tensor has ``":0"`` added.
        dtype: That of the values; arrays of the same kind are converted, such as float64 to
            float32. None: any.
        shape: That of the values, with None for any size. None: any; if ``dtype`` is None too, any
            pytree of arrays.
    """
    kind = "Placeholder"
    name = kind if name is None else check_name(name)
    arguments.instance(Sequence, shape=shape)
    for size in shape or ():
        arguments.whole(0, shape=size)
    expected = (None if dtype is None else np.dtype(dtype), None if shape is None else tuple(shape))
    graph = get_default_graph()
    op: Operation = graph.add(kind, None, expected, name=name, placement=Placement.HOST)
    return op.outputs[0]


def placeholder_with_default(
    default: Any, shape: Sequence[int | None] | None = None, name: str | None = None
) -> Tensor:
    """Return a tensor that a run may feed, and that is ``default`` in the others.

    On JAX, the step is compiled for each of the two.

    Args:
        default: An array, a number or a pytree of these. Do not change it afterwards.
        shape: As for ``rh.placeholder``.
        name: As for ``rh.placeholder``.
    """
    kind = "PlaceholderWithDefault"
    name = kind if name is None else check_name(name)
    arguments.instance(Sequence, shape=shape)
    for size in shape or ():
        arguments.whole(0, shape=size)
    graph = get_default_graph()
    value = _with_constants(graph, default)
    expected = (None, None if shape is None else tuple(shape))
    op: Operation = graph.add(kind, lambda dtype, shape: value, expected, name=name)
    return op.outputs[0]


def call(
    fn: Callable[..., Any],
    *args: Any,
    num_outputs: int = 1,
    name: str | None = None,
    **kwargs: Any,
) -> Any:
    """Return a tensor that calls ``fn`` with the values of ``args`` in every run that needs it.

    On the jax engine ``fn`` is traced and compiled, and must be pure. On the others it may change
    in place the variables that it gets, which are copies, and nothing else.

    Args:
        fn: Any callable.
        *args: Tensors and constants, and lists, tuples and dicts of them. Do not change arrays
            among them afterwards.
        num_outputs: How many values ``fn`` returns, several as a tuple or list.
        name: The name of the operation; None: that of ``fn``.
        **kwargs: As ``args``; bind parameters called ``num_outputs`` or ``name`` with
            ``functools.partial``.

    Returns:
        A tensor; a tuple of tensors if ``num_outputs`` is above 1; the operation if it is 0.

    Raises:
        TypeError: If ``fn`` cannot be called; or, in a graph of a step, if one of ``args`` is the
            name of a value: pass ``graph[name]``.
        ValueError: If ``num_outputs`` is negative.
    """
    if not callable(fn):
        raise TypeError(f"fn must be a callable, got {fn!r}")
    arguments.whole(0, num_outputs=num_outputs)
    if name is None:
        name = cleaned_name(getattr(fn, "__name__", type(fn).__name__).strip("<>"), "call")
    tensors = nest.tensors((args, kwargs))
    graph = tensors[0].graph if tensors else get_default_graph()
    for arg in args:
        if isinstance(arg, str):
            graph.check_text(arg)
    if kwargs:
        fn, args = _with_keywords(fn), (*args, kwargs)
    args = tuple(_with_constants(graph, arg) for arg in args)
    op = graph.add("Call", fn, args, name=name, num_outputs=num_outputs)
    return _outputs(op)


def update(variable: Variable, fn: Callable[..., Any], *args: Any, name: str) -> Tensor:
    """Return a tensor that, when run, sets ``variable`` to ``fn(variable, *args)``."""
    op: Operation = variable.graph.add(UPDATE, fn, args, name=name, assigns=variable)
    return op.outputs[0]


def inputs(
    source: Iterable[Any] | Callable[..., Iterable[Any]],
    num_outputs: int = 1,
    name: str | None = None,
    *,
    epochs: int | None = 1,
    steps_per_epoch: int | None = None,
) -> Any:
    """Return tensors that draw one element of ``source`` in every run that needs it.

    At its end, a run raises ``OutOfRangeError``, which ends a monitored loop normally. An element
    counts as drawn even if its run then raises.

    A resumed session goes on as ``docs/resume.md`` says. A *stateful* source, with ``state_dict``
    and ``load_state_dict``, or ``get_state`` and ``set_state``, is given its state before it is
    iterated: one from the end of an epoch must give no more elements of that epoch. Without a
    checkpoint, it goes back to where it was at first, like random generators that are attributes of
    any source.

    Args:
        source: An iterable, which each session iterates again; a function without arguments that
            returns one, called in each epoch; or a function of the step that returns one, called
            with the global step (0 if there is none) at which the session first needs it: one that
            needs an argument, or whose first parameter is called ``step`` or ``global_step``. Runs
            that make no step should not draw from it, and cause a warning.
        num_outputs: How many values each element has.
        name: The name of its operation, under which checkpoints store its position.
        epochs: How many times to go through an iterable; None: forever.
        steps_per_epoch: How many steps are an epoch. None: it ends with the
            last element of the first input of the graph.

    Returns:
        A tensor, or a tuple of tensors if ``num_outputs`` is above 1.

    Raises:
        TypeError: If ``source`` cannot be iterated.
        ValueError: If the graph has another ``steps_per_epoch``, or ``epochs`` is given for an
            iterator or a function of the step.
    """
    arguments.whole(num_outputs=num_outputs)
    source = checked_source("source", source, epochs)
    set_steps_per_epoch(get_default_graph(), steps_per_epoch)
    op = add_inputs(Source(source, epochs), num_outputs, name or "inputs")
    return _outputs(op)


def add_inputs(
    source: Source, num_outputs: int, name: str, *, is_of_training: bool = True
) -> Operation:
    """Add an operation that draws from ``source``; the first of a training has its epochs."""
    graph = get_default_graph()
    if not is_of_training:
        _check_own_place(graph, source)
    op: Operation = graph.add(
        "Inputs", None, (source,), name=name, num_outputs=num_outputs, placement=Placement.HOST
    )
    if not is_of_training:
        graph.add_to_collection(GraphKeys.EVALUATION_INPUTS, op)
    elif not graph.get_collection(GraphKeys.EPOCH_INPUT) and not source.is_generator:
        graph.add_to_collection(GraphKeys.EPOCH_INPUT, op)
    return op


def _check_own_place(graph: BaseGraph, source: Source) -> None:
    theirs = graph.get_collection(GraphKeys.EVALUATION_INPUTS)
    for op in graph.get_operations():
        if op.type == "Inputs" and op not in theirs and source.shares_place(op.args[0]):
            raise ValueError(
                f"data must be a loader of its own: {op.name!r} of the training draws from this "
                "one, and its state_dict has one place only"
            )


def set_steps_per_epoch(graph: BaseGraph, steps: int | None) -> None:
    """ValueError: the graph has others."""
    if steps is None:
        return
    arguments.whole(steps_per_epoch=steps)
    known = graph.get_collection(GraphKeys.STEPS_PER_EPOCH)
    if known and known[0] != steps:
        raise ValueError(f"steps_per_epoch is {known[0]} in this graph already, got {steps}")
    if not known:
        graph.add_to_collection(GraphKeys.STEPS_PER_EPOCH, steps)


def checked_source(
    argument: str, source: Any, epochs: int | None
) -> Iterable[Any] | Callable[[int], Iterable[Any]]:
    """Return ``source`` for ``Source``: a function without arguments becomes an iterable.

    TypeError or ValueError: it is none, or ``epochs`` does not go with it.
    """
    arguments.whole(epochs=epochs)
    if not callable(source) and not isinstance(source, Iterable):
        raise TypeError(
            f"{argument} must be an iterable or a function that returns one, got {source!r}"
        )
    by_step = callable(source) and (isinstance(source, Iterable) or _takes_step(source))
    if not by_step and callable(source):
        if not _takes(source):
            raise TypeError(
                f"{argument} must be an iterable, a function of the step or one without arguments, "
                f"got {source!r}"
            )
        return FunctionIterable(source)
    if epochs != 1 and (by_step or hasattr(source, "__next__")):
        raise ValueError(
            f"epochs must be left out for an iterator or a function of the step, got {epochs!r}: "
            "give an iterable, or a function without arguments that returns one"
        )
    return cast("Iterable[Any] | Callable[[int], Iterable[Any]]", source)


def _takes_step(fn: Callable[..., Any]) -> bool:
    try:
        first = next(iter(inspect.signature(fn).parameters), None)
    except ValueError:  # some functions in C have no signature
        return True
    return _takes(fn, 0) and (first in STEPS or not _takes(fn))


def _takes(fn: Callable[..., Any], *args: int) -> bool:
    try:
        inspect.signature(fn).bind(*args)
    except TypeError:
        return False
    return True


def group(*operations: Tensor | Operation, name: str | None = None) -> Operation:
    """Return an operation that runs all of ``operations``; fetching it gives None.

    Raises:
        TypeError: For anything else than tensors and operations.
    """
    for part in operations:
        if not isinstance(part, Tensor | Operation):
            raise TypeError(f"group takes tensors and operations, got {part!r}")
    controls = [part.op if isinstance(part, Tensor) else part for part in operations]
    graph = controls[0].graph if controls else get_default_graph()
    op: Operation = graph.add(
        "NoOp",
        None,
        name=name or "group",
        num_outputs=0,
        placement=Placement.HOST,
        control_inputs=controls,
    )
    return op


def _with_keywords(fn: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any) -> Any:
        return fn(*args[:-1], **args[-1])

    return called


def _with_constants(graph: BaseGraph, arg: Any) -> Any:
    if not any(isinstance(leaf, np.ndarray) for leaf in nest.leaves(arg)):
        return arg
    return nest.map_leaves(graph.engine.constant, arg)


def _outputs(op: Operation) -> Any:
    if not op.outputs:
        return op
    return op.outputs[0] if len(op.outputs) == 1 else op.outputs
