"""``rh.graph``: the loop of NumPy, or of any callable, as a graph with a name for everything."""

from collections.abc import Callable, Iterable
from typing import Any

from runhooks.graph.engine import Engine
from runhooks.graph.step import StepGraph, step_graph
from runhooks.graph.step_result import Names

__all__ = ["graph"]


def graph(
    train_step: Callable[..., Any],
    outputs: Iterable[Names] = (),
    name: str = "train_op",
    *,
    data: Iterable[Any] | Callable[..., Iterable[Any]] | None = None,
    epochs: int | None = 1,
    steps_per_epoch: int | None = None,
    engine: str | Engine = "python",
    **state: Any,
) -> StepGraph:
    """Turn your own train step, unchanged, into a graph with the operation ``"train_op"``.

        graph = rh.graph(train_step, weights=np.zeros(2), data=batches)

    Outputs, states, arguments and all their parts can be fetched by name, in any run and by any
    hook: ``"loss"``, ``"grads"``, ``"grads/dense/kernel"``, ``"state/params/dense/kernel"``
    (as before the run). ``graph[name]`` is the tensor.

    Args:
        train_step: Takes states and data, and returns the new states and its outputs. The states
            come first, in the order of the parameters: ``return state, {"loss": loss}``; or they
            are the whole result, if there is one; or a dict, named tuple or dataclass has them by
            name. The rest are the outputs. Dicts, named tuples and dataclasses give them names.
        outputs: Names for unnamed outputs, in order. For any other result, names for all its
            elements, including the states: ``["loss", "state"]``; a tuple of names stands for the
            elements of a tuple. A single unnamed output is called ``"output"``, several are
            ``"output/0"``, ``"output/1"`` and so on.
        name: The name of the operation that makes a step and increases the global step.
        data: The source of the other parameters without a default, as for ``rh.inputs``. An element
            is a tuple in the order of the parameters, or a dict, named tuple or dataclass with
            their names; for a single parameter, its value. None: each is a placeholder with its
            name. A parameter called ``step`` or ``global_step`` receives the global step; one
            called ``key`` or ``rng``, a fresh random key in each run.
        epochs: As for ``rh.inputs``: how often to go through ``data``.
        steps_per_epoch: As for ``rh.inputs``: how many steps count as an epoch, where ``data`` do
            not tell.
        engine: The engine of the graph, as for ``rh.Graph``.
        **state: The states, which the step receives and returns updated, by parameter: a pytree of
            arrays, or a function without arguments that returns one, which is called at each start,
            also if a checkpoint is then restored, and for the form alone when the graph is made. If
            the function returns a tensor, as in ``rng=lambda: rh.random_key(seed=1)`` or
            ``noise=lambda: rh.placeholder_with_default(0.0)``, the parameter receives its value. A
            random generator, such as ``rng=np.random.default_rng(0)``, is not returned: it keeps
            its own state, which checkpoints hold.

    Raises:
        TypeError: If an argument is of the wrong kind, or names no parameter of ``train_step``.
        ValueError: If the states are not where they belong in the result of ``train_step``, with
            the ``outputs`` to write; on an engine that cannot tell in advance, in the first run.
    """
    return step_graph(
        engine, train_step, outputs, name, data, epochs, state, steps_per_epoch=steps_per_epoch
    )
