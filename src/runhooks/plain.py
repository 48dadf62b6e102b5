"""``rh.graph``: the loop of NumPy, or of any callable, as a graph."""

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

    Whatever has a name can be fetched by it, and ``graph[name]`` is the tensor.
    ``docs/train-step.md`` has all forms of inputs and results.

    Args:
        train_step: Takes states and data, and returns the new states, in the order of the
            parameters, and then its outputs: ``return state, {"loss": loss}``; or all by name.
        outputs: Names for unnamed outputs, in order; or for all elements of the result, including
            the states: ``["loss", "state"]``. Default: ``"output"``, or ``"output/0"`` and on.
        name: The name of the operation that makes a step and increases the global step.
        data: The source of the other parameters without a default, as for ``rh.inputs``. None: each
            is a placeholder. ``step`` or ``global_step`` receives the global step, ``key`` or
            ``rng`` a fresh random key in each run.
        epochs: As for ``rh.inputs``.
        steps_per_epoch: As for ``rh.inputs``.
        engine: As for ``rh.Graph``.
        **state: The states by parameter: a pytree of arrays; a function without arguments that
            returns one at each start, or a tensor, whose value the parameter gets in each run; or a
            random generator, which is not returned.

    Raises:
        TypeError: If an argument is of the wrong kind, or names no parameter of ``train_step``.
        ValueError: If the states are not where they belong in the result, with the ``outputs`` to
            write; on an engine that cannot tell in advance, in the first run.
    """
    return step_graph(
        engine, train_step, outputs, name, data, epochs, state, steps_per_epoch=steps_per_epoch
    )
