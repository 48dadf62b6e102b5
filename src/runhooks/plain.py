"""``rh.graph``: the loop of NumPy, or of any callable, as a graph with a name for everything."""

from collections.abc import Callable, Iterable
from typing import Any

from runhooks.graph.engine import Engine
from runhooks.graph.step_graph import StepGraph, step_graph

__all__ = ["graph"]


def graph(
    train_step: Callable[..., Any],
    outputs: Iterable[str] = (),
    name: str = "train_op",
    *,
    data: Iterable[Any] | Callable[[int], Iterable[Any]] | None = None,
    epochs: int | None = 1,
    engine: str | Engine = "python",
    **state: Any,
) -> StepGraph:
    """Return a graph whose operation ``"train_op"`` makes a step: your own function, unchanged.

        graph = rh.graph(train_step, weights=np.zeros(2), data=batches)

    Outputs, states, arguments, and all that is in them can be fetched by name, in any run and by
    any hook: ``"loss"``, ``"grads"``, ``"grads/dense/kernel"``, ``"state/params/dense/kernel"``
    (as it was when the run began). ``graph[name]`` is the tensor.

    Args:
        train_step: Takes states and data, and returns the new states and its outputs: ``return
            state, {"loss": loss}``. The states are recognized by structure, shapes and dtypes:
            first or last in a tuple, the whole result, or by their names in a dict. The rest are
            the outputs. Dicts, named tuples and dataclasses give them names.
        outputs: Names of outputs that have none, in their order; where a state cannot be
            recognized, names of all elements of the result, that of the state included. An output
            without a name is ``"output"``, of several ``"output/0"`` and on.
        name: The name of the operation that makes a step, which counts the global step too.
        data: Where the other parameters without a default come from, as ``rh.inputs`` takes it.
            An element is a tuple in the order of the parameters, or a dict by their names; for one
            parameter alone, its value. None: each is a placeholder of its name. A parameter called
            ``step`` or ``global_step`` is the global step, one called ``key`` or ``rng`` a fresh
            random key in each run.
        epochs: As for ``rh.inputs``: how often to go through ``data``.
        engine: The engine of the graph, as for ``rh.Graph``.
        **state: What the step takes and returns anew, by parameter: a pytree of arrays, or a
            function without arguments that makes it. If such a function returns a tensor, as
            ``rng=lambda: rh.random_key(seed=1)``, the parameter gets its value. A random generator,
            as ``rng=np.random.default_rng(0)``, is not returned: it goes on by itself, and
            checkpoints hold its state.

    Raises:
        TypeError: If an argument is of the wrong kind, or names no parameter of ``train_step``.
        ValueError: If the states are not found in what ``train_step`` returns; on an engine that
            cannot tell beforehand, in the first run.
    """
    return step_graph(engine, train_step, outputs, name, data, epochs, state)
