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

    A state is any pytree, or an object of flax nnx, which the step changes in place and need not
    return; static parts are kept apart. ``rh.call(evaluate, graph["model"], ...)`` calls your
    function with the object itself.

    Args:
        train_step: As for ``rh.graph``.
        outputs: As for ``rh.graph``.
        name: As for ``rh.graph``.
        data: As for ``rh.graph``.
        epochs: As for ``rh.graph``.
        steps_per_epoch: As for ``rh.graph``.
        **state: As for ``rh.graph``.

    Raises:
        TypeError, ValueError: As ``rh.graph``.
        Exception: Whatever ``train_step`` raises when it is traced.
    """
    return step_graph(
        "jax", train_step, outputs, name, data, epochs, state, steps_per_epoch=steps_per_epoch
    )
