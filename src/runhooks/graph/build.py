"""What users build graphs with: placeholders, calls of their functions, inputs and groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from runhooks import arguments
from runhooks.graph import names, nest
from runhooks.graph.graph import Graph, get_default_graph
from runhooks.graph.source import Source
from runhooks.graph.tensor import Operation, Placement, Tensor


def placeholder(
    name: str | None = None,
    dtype: npt.DTypeLike | None = None,
    shape: Sequence[int | None] | None = None,
) -> Tensor:
    """A tensor without a value: every run that needs it must feed it.

    ``dtype`` and ``shape``, if given, are held against each value fed; None in ``shape`` stands
    for any size. Given neither, any pytree of arrays can be fed.
    """
    if name is not None:
        names.check(name)
    arguments.instance(Sequence, shape=shape)
    for size in shape or ():
        arguments.whole(0, shape=size)
    expected = (None if dtype is None else np.dtype(dtype), None if shape is None else tuple(shape))
    op = get_default_graph().add(
        "Placeholder", None, expected, name=name or "Placeholder", placement=Placement.HOST
    )
    return op.outputs[0]


def call(fn: Callable[..., Any], *args: Any, num_outputs: int = 1, name: str | None = None) -> Any:
    """Call ``fn`` with the values of ``args`` in every run that needs its result.

    ``args``: tensors, variables and constants, and lists, tuples and dicts of them; arrays among
    them must not be changed afterwards. Returns a tensor; with ``num_outputs`` above 1 a tuple of
    that many, for as many values that ``fn`` returns; with 0 an operation. On the jax engine ``fn``
    is traced and compiled, and must be pure.

    Raises TypeError if ``fn`` cannot be called, ValueError for a negative ``num_outputs``.
    """
    if not callable(fn):
        raise TypeError(f"fn must be a callable, got {fn!r}")
    arguments.whole(0, num_outputs=num_outputs)
    if name is None:
        name = names.cleaned(getattr(fn, "__name__", type(fn).__name__).strip("<>"), "call")
    graph = _graph_of(args)
    args = tuple(_with_constants(graph, arg) for arg in args)
    op = graph.add("Call", fn, args, name=name, num_outputs=num_outputs)
    return _outputs(op)


def inputs(
    source: Iterable[Any] | Callable[[int], Iterable[Any]],
    num_outputs: int = 1,
    name: str | None = None,
    *,
    epochs: int | None = 1,
) -> Any:
    """Draw one element of ``source`` in every run that needs it.

    ``source``: an iterable, iterated anew by each session, or a function that returns one when it
    is called with the global step (0 without one) at which the session first needs it. With
    ``num_outputs`` above 1 each element is a sequence of that many values, and a tuple of tensors
    is returned. ``epochs``: how often an iterable is gone through, iterated anew each time; None:
    for ever.

    A resumed session goes on with the data where the checkpoint was saved if the function goes by
    the step, or if the source is stateful: if the iterable or its iterator has ``state_dict`` and
    ``load_state_dict``, as torchdata's ``StatefulDataLoader`` has, or ``get_state`` and
    ``set_state``, as grain's iterators have. The state of an iterable is loaded before it is
    iterated; with one of the end of an epoch it is to give nothing more of that epoch. What has
    come to its end stays there. Of a source without a state the epoch begins anew. Without a
    checkpoint a session takes a stateful iterable back to where it was when first opened. An
    element counts as drawn even if its run then raises. Where the function goes by the step, runs
    that make no step must not draw from it: a warning says so.

    At its end a run raises ``OutOfRangeError``, which ends a monitored loop well.

    Raises TypeError for what cannot be iterated, ValueError for ``epochs`` of an iterator or a
    function, which cannot be gone through twice.
    """
    if not callable(source) and not isinstance(source, Iterable):
        raise TypeError(f"source must be an iterable or a function of the step, got {source!r}")
    arguments.whole(num_outputs=num_outputs, epochs=epochs)
    if epochs != 1 and (callable(source) or hasattr(source, "__next__")):
        raise ValueError(
            f"epochs must be left out for an iterator or a function of the step, got {epochs!r}: "
            "only an iterable, such as a list or a loader, can be gone through again"
        )
    op = get_default_graph().add(
        "Inputs",
        None,
        (Source(source, epochs),),
        name=name or "inputs",
        num_outputs=num_outputs,
        placement=Placement.HOST,
    )
    return _outputs(op)


def group(*operations: Tensor | Operation, name: str | None = None) -> Operation:
    """An operation that runs all of ``operations``; as a fetch it gives None.

    Raises TypeError for anything that is neither a tensor nor an operation.
    """
    for part in operations:
        if not isinstance(part, Tensor | Operation):
            raise TypeError(f"group takes tensors and operations, got {part!r}")
    controls = [part.op if isinstance(part, Tensor) else part for part in operations]
    graph = controls[0].graph if controls else get_default_graph()
    return graph.add(
        "NoOp",
        None,
        name=name or "group",
        num_outputs=0,
        placement=Placement.HOST,
        control_inputs=controls,
    )


def _with_constants(graph: Graph, arg: Any) -> Any:
    if not any(isinstance(leaf, np.ndarray) for leaf in nest.leaves(arg)):
        return arg
    return nest.map_leaves(graph.engine.constant, arg)


def _graph_of(args: Any) -> Graph:
    found = nest.tensors(args)
    return found[0].graph if found else get_default_graph()


def _outputs(op: Operation) -> Any:
    if not op.outputs:
        return op
    return op.outputs[0] if len(op.outputs) == 1 else op.outputs
