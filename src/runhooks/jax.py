"""``rh.jax``: training loops of JAX, flax (linen and nnx), equinox and optax.

graph = rh.jax.graph(train_step, state=create_state, data=batches)
with graph.as_default(), rh.MonitoredTrainingSession(checkpoint_dir="runs/a") as session:
    while not session.should_stop():
        session.run("train_op")
"""

from collections.abc import Callable, Iterable
from typing import Any

from runhooks.engines import load_engine

load_engine("jax")  # says what to install, if it is not

from runhooks.graph.step import StepGraph, step_graph  # noqa: E402
from runhooks.graph.step_result import Names  # noqa: E402

__all__ = ["graph"]


def graph(
    train_step: Callable[..., Any],
    outputs: Iterable[Names] = (),
    name: str = "train_op",
    *,
    data: Iterable[Any] | Callable[..., Iterable[Any]] | None = None,
    epochs: int | None = 1,
    steps_per_epoch: int | None = None,
    **state: Any,
) -> StepGraph:
    """Turn your own train step, which may be jitted, into a graph compiled by JAX.

    The arguments and errors are those of ``rh.graph``; what ``train_step`` raises when it is traced
    comes through. A state is any pytree, or an object of flax nnx, which the step changes in place
    and need not return. ``rh.call(evaluate, graph["model"], ...)`` calls your function with the
    object itself.
    """
    return step_graph(
        "jax", train_step, outputs, name, data, epochs, state, steps_per_epoch=steps_per_epoch
    )
