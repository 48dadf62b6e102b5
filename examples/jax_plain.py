"""Plain JAX and optax: a bare loop, and the same loop with hooks.

    python examples/jax_plain.py --dir runs/jax_plain

``bare`` is the loop one writes first. ``train`` adds progress, curves, histograms, evaluation, the
best checkpoint, early stopping, a check for NaN and exact resume.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

import runhooks as rh
from digits_data import batches, parser, test_images, test_labels

optimizer = optax.adam(3e-3)


def create_state() -> Any:
    keys = jax.random.split(jax.random.key(0))
    shapes = {"hidden": (64, 32), "out": (32, 10)}
    params = {
        layer: {"kernel": 0.1 * jax.random.normal(key, shape), "bias": jnp.zeros(shape[1])}
        for key, (layer, shape) in zip(keys, shapes.items(), strict=True)
    }
    return {"params": params, "opt_state": optimizer.init(params)}


def scores_of(params: Any, images: Any) -> Any:
    hidden = jax.nn.relu(images @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    return hidden @ params["out"]["kernel"] + params["out"]["bias"]


@jax.jit
def train_step(state: Any, images: Any, labels: Any) -> Any:
    def loss_of(params: Any) -> Any:
        scores = scores_of(params, images)
        return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()

    loss, grads = jax.value_and_grad(loss_of)(state["params"])
    updates, opt_state = optimizer.update(grads, state["opt_state"])
    params = optax.apply_updates(state["params"], updates)
    return {"params": params, "opt_state": opt_state}, {"loss": loss, "grads": grads}


@jax.jit
def evaluate(state: Any, images: Any, labels: Any) -> Any:
    return (scores_of(state["params"], images).argmax(-1) == labels).mean()


def bare(steps: int) -> Any:
    state = create_state()
    for step, (images, labels) in zip(range(1, steps + 1), batches(0), strict=False):
        state, outputs = train_step(state, images, labels)
        if step % 50 == 0:
            print(step, outputs["loss"], evaluate(state, test_images, test_labels))
    return state


def train(directory: str, steps: int) -> None:
    graph = rh.jax.graph(train_step, state=create_state, data=batches)
    rh.summary.scalar("loss", graph["loss"])
    rh.summary.histogram("gradients", graph["grads"])
    accuracy = rh.call(evaluate, graph["state"], test_images, test_labels)
    evaluation = rh.EvaluationHook(
        {"accuracy": accuracy}, every_n_steps=50, output_dir=f"{directory}/eval"
    )
    saver = rh.Saver(keep=[rh.KeepLast(1), rh.KeepBest(evaluation.metric("accuracy"))])
    hooks = [
        rh.StopAtStepHook(last_step=steps),
        rh.ProgressHook(steps, ["loss"]),
        rh.NanTensorHook("loss", late=True),
        rh.stop_if_no_increase_hook(evaluation.metric("accuracy"), max_steps_without_increase=300),
        evaluation,
    ]
    with (
        graph.as_default(),
        rh.MonitoredTrainingSession(
            checkpoint_dir=directory,
            saver=saver,
            hooks=hooks,
            save_checkpoint_steps=50,
        ) as session,
    ):
        while not session.should_stop():
            session.run("train_op")


if __name__ == "__main__":
    args = parser("Train in plain JAX.", "runs/jax_plain", steps=2000).parse_args()
    train(args.dir, args.steps)
