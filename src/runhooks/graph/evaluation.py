"""``EvaluatedStep``: a test step over data of its own, as tensors of the training's graph."""

from __future__ import annotations

import inspect
import itertools
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from runhooks.arrays import trees
from runhooks.graph import names
from runhooks.graph.build import STEPS, add_inputs, call, get_or_create_global_step
from runhooks.graph.graph import Graph
from runhooks.graph.nodes import Placement, Tensor, Variable
from runhooks.graph.source import Source
from runhooks.graph.step import (
    KEYS,
    drawn,
    given_parameters,
    name_of,
    positional,
    with_objects,
)


class EvaluatedStep:
    """A test step, added to a graph: in each run, a call with the next element of its data.

    Its parameters are bound by the names of the training's states and objects; ``step`` and
    ``global_step`` get the global step, ``key`` and ``rng`` a random key for each element, the same
    in every evaluation. The rest, those without a default, come from the data.

    Args:
        graph: The graph of the training, the default graph.
        fn: The test step.
        data: As for ``rh.graph``; gone through once in each evaluation.
        outputs: The names of its outputs, where it returns them without any.

    Raises:
        TypeError, ValueError: If ``fn`` or ``data`` is wrong.

    Attributes:
        result: A tensor: what the test step has returned, a dict by name.
        examples: A tensor: how many examples the batch has.
    """

    def __init__(
        self,
        graph: Graph,
        fn: Callable[..., Any],
        data: Iterable[Any] | Callable[..., Iterable[Any]],
        outputs: Sequence[str],
    ) -> None:
        given = given_parameters(fn, ())
        title = names.cleaned(name_of(fn), "test_step")
        with graph.name_scope(title):
            tensors: dict[str, Any] = {}
            for it in given:
                found = _known(graph, it)
                if found is not None:
                    tensors[it.name] = found
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


def _known(graph: Graph, parameter: inspect.Parameter) -> Any:
    """Return the tensor or object of the training that ``parameter`` means, or None."""
    name = parameter.name
    found = graph.object_named(name)
    if found is not None:
        return found
    if graph.has_operation(name):
        outputs = graph.get_operation_by_name(name).outputs
        if outputs and isinstance(outputs[0], Variable):
            return outputs[0]
    if name in STEPS:
        return get_or_create_global_step(graph)
    if name in KEYS:
        return _key(graph, name)
    return None


def _key(graph: Graph, name: str) -> Tensor:
    count = add_inputs(Source(lambda step: itertools.count()), 1, "batch", is_of_training=False)
    stream = zlib.crc32(f"{graph.scope}{name}".encode())
    op = graph.add(
        "RandomKey",
        partial(graph.engine.random_key, 0, stream),
        (count.outputs[0],),
        name=name,
        placement=Placement.ENGINE,
    )
    return op.outputs[0]


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
        return dict(fields)
    count = len(returned) if isinstance(returned, tuple | list) else 1
    shown = ", ".join(repr(f"metric_{i}") for i in range(1, count + 1))
    raise ValueError(
        f"{title} must return its metrics by name, as in return {{'accuracy': accuracy}}, or have "
        f"outputs=[{shown}], a name for each value that it returns"
    )
