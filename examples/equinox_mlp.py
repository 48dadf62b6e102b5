"""equinox: a bare loop, and the same loop with hooks.

    python examples/equinox_mlp.py --dir runs/equinox_mlp

``bare`` is the loop one writes first; ``train`` is the same loop with hooks.
"""

from typing import Any

import equinox as eqx
import jax
import optax

import runhooks as rh
from digits_data import batches, parser, test_images, test_labels

optimizer = optax.adam(3e-3)


def create() -> Any:
    model = eqx.nn.MLP(64, 10, width_size=32, depth=1, key=jax.random.key(0))
    return model, optimizer.init(eqx.filter(model, eqx.is_inexact_array))


@eqx.filter_jit
def train_step(model: Any, opt_state: Any, images: Any, labels: Any) -> Any:
    def loss_of(model: Any) -> Any:
        scores = jax.vmap(model)(images)
        return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()

    loss, grads = eqx.filter_value_and_grad(loss_of)(model)
    updates, opt_state = optimizer.update(grads, opt_state)
    return eqx.apply_updates(model, updates), opt_state, {"loss": loss, "grads": grads}


@eqx.filter_jit
def evaluate(model: Any, images: Any, labels: Any) -> Any:
    return (jax.vmap(model)(images).argmax(-1) == labels).mean()


def bare(steps: int) -> Any:
    model, opt_state = create()
    for step, (images, labels) in zip(range(1, steps + 1), batches(0), strict=False):
        model, opt_state, outputs = train_step(model, opt_state, images, labels)
        if step % 50 == 0:
            print(step, outputs["loss"], evaluate(model, test_images, test_labels))
    return model


def train(directory: str, steps: int) -> None:
    model, opt_state = create()
    graph = rh.jax.graph(train_step, model=model, opt_state=opt_state, data=batches)
    rh.summary.scalar("loss", graph["loss"])
    rh.summary.histogram("gradients", graph["grads"])
    accuracy = rh.call(evaluate, graph["model"], test_images, test_labels)
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
    args = parser("Train in equinox.", "runs/equinox_mlp", steps=2000).parse_args()
    train(args.dir, args.steps)
