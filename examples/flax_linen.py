"""flax linen: a bare loop, and the same loop with hooks.

    python examples/flax_linen.py --dir runs/flax_linen

``bare`` is the loop one writes first; ``train`` is the same loop with hooks.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training.train_state import TrainState

import runhooks as rh
from digits_data import batches, parser, test_images, test_labels


class Network(nn.Module):
    @nn.compact
    def __call__(self, images: Any) -> Any:
        return nn.Dense(10)(nn.relu(nn.Dense(32)(images)))


def create_state() -> TrainState:
    network = Network()
    params = network.init(jax.random.key(0), jnp.ones((1, 64)))["params"]
    return TrainState.create(apply_fn=network.apply, params=params, tx=optax.adam(3e-3))


@jax.jit
def train_step(state: TrainState, images: Any, labels: Any) -> Any:
    def loss_of(params: Any) -> Any:
        scores = state.apply_fn({"params": params}, images)
        return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()

    loss, grads = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=grads), {"loss": loss, "grads": grads}


@jax.jit
def evaluate(state: TrainState, images: Any, labels: Any) -> Any:
    return (state.apply_fn({"params": state.params}, images).argmax(-1) == labels).mean()


def bare(steps: int) -> TrainState:
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
    args = parser("Train in flax linen.", "runs/flax_linen", steps=2000).parse_args()
    train(args.dir, args.steps)
