"""The handwritten digits of ``examples/`` on a GPU, by hand and under hooks: 1,000 steps.

The curves are a loss, a rate, an accuracy, three pictures, and histograms and norms of the
gradients; checkpoints are saved asynchronously. A millisecond of 1,000 steps is a microsecond of a
step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import runhooks as rh
from bench.gpu import (
    SAVES,
    Program,
    Training,
    beside_plain,
    jax_device,
    jax_wait,
    sized,
    torch_device,
    torch_wait,
)
from bench.measure import Effort, alternate
from bench.table import Table, tabulated

STEPS = 1000  # in a round; each has as many checkpoints


def of_jax() -> Program:
    import jax

    import digits_data
    import digits_jax

    def plain() -> Training:
        step_of = jax.jit(digits_jax.train_step, donate_argnums=0)
        batches, state = enumerate(digits_data.batches(0)), digits_jax.init()

        def step() -> None:
            nonlocal state
            number, batch = next(batches)
            state, _ = step_of(state, *batch, number)

        return Training(step, lambda: jax_wait(state))

    def graph() -> Any:
        made = rh.jax.graph(digits_jax.train_step, state=digits_jax.init, data=digits_data.batches)
        with made.as_default():
            tested = digits_data.test_images, digits_data.test_labels
            evaluation = rh.call(digits_jax.evaluate, made["state"], *tested, num_outputs=2)
            summarize(evaluation, "grads")
        return made

    return Program("JAX", jax_device(), plain, graph)


def of_torch() -> Program:
    import digits_torch

    device = torch_device()
    train_images, test_images, train_labels, test_labels = digits_torch.load()

    def plain() -> Training:
        training = digits_torch.Training()
        training.model.to(device)
        batches = digits_torch.batches(train_images, train_labels, 0)

        def step() -> None:
            images, labels = next(batches)
            training.step(
                images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            )

        return Training(step, torch_wait)

    def graph() -> Any:
        it = digits_torch.Training()
        made = rh.torch.Graph(
            device=device, model=it.model, optimizer=it.optimizer, scheduler=it.scheduler
        )
        with made.as_default():
            batch = rh.inputs(lambda at: digits_torch.batches(train_images, train_labels, at), 2)
            rh.torch.step(it.step, outputs=["loss"], args=batch)
            tested = test_images.to(device), test_labels.to(device)
            evaluation = rh.call(it.evaluate, *tested, num_outputs=2)
            summarize(evaluation, "gradients/model")
        return made

    return Program("PyTorch", device, plain, graph)


def summarize(evaluation: Sequence[Any], gradients: str) -> None:
    """Draw the curves of both examples."""
    rh.summary.scalar("loss", "loss")
    rh.summary.scalar("learning_rate", "learning_rate")
    rh.summary.scalar("test/accuracy", evaluation[0])
    rh.summary.image("test/misread", evaluation[1], max_outputs=3)
    rh.summary.histogram("gradients", gradients)
    rh.summary.gradient_norms(gradients)


def tables(effort: Effort) -> Iterator[Table]:
    for of in (of_jax, of_torch):
        program = of()
        steps = effort.times(sized(program.device, STEPS, SAVES))
        contenders = beside_plain({name: begin().secs for name, begin in program.kinds().items()})
        alternate(contenders, 1, steps)  # compiles, and takes the first triggers
        rounds = alternate(contenders, effort.turns(7), steps)
        of_a_thousand = {
            name: [secs / steps * 1e6 for secs in each] for name, each in rounds.items()
        }
        title = f"1,000 steps of the digits, {program.where}"
        yield tabulated(title, "ms", contenders, of_a_thousand)
