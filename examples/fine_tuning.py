"""Fine-tuning: a network trained on one task gets a new head and learns another task.

    python examples/fine_tuning.py --dir runs/fine_tuning

First, a network learns to tell odd digits from even ones. A second run then starts from its body,
which ``rh.InitFrom`` takes from the best checkpoint, and learns with a new head to name the digit.
The second run is evaluated with moving averages of its parameters. Both runs can be resumed.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

import runhooks as rh
from digits_data import batches, parser, test_images, test_labels

optimizer = optax.adam(3e-3)


def create_state(classes: int) -> Any:
    body, head = jax.random.split(jax.random.key(0))
    params = {
        "body": {"kernel": 0.1 * jax.random.normal(body, (64, 32)), "bias": jnp.zeros(32)},
        "head": {
            "kernel": 0.1 * jax.random.normal(head, (32, classes)),
            "bias": jnp.zeros(classes),
        },
    }
    return {"params": params, "opt_state": optimizer.init(params)}


def scores_of(params: Any, images: Any) -> Any:
    hidden = jax.nn.relu(images @ params["body"]["kernel"] + params["body"]["bias"])
    return hidden @ params["head"]["kernel"] + params["head"]["bias"]


def train_step(state: Any, images: Any, labels: Any) -> Any:
    def loss_of(params: Any) -> Any:
        scores = scores_of(params, images)
        return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()

    loss, grads = jax.value_and_grad(loss_of)(state["params"])
    updates, opt_state = optimizer.update(grads, state["opt_state"])
    params = optax.apply_updates(state["params"], updates)
    return {"params": params, "opt_state": opt_state}, {"loss": loss}


def evaluate(state: Any, images: Any, labels: Any) -> Any:
    return (scores_of(state["params"], images).argmax(-1) == labels).mean()


def train(
    directory: str, classes: int, steps: int, init_from: rh.InitFrom | None = None
) -> Mapping[str, float]:
    """Learn the digits modulo ``classes``; return the metrics that were reached."""

    def data(step: int) -> Any:
        return ((images, labels % classes) for images, labels in batches(step))

    graph = rh.jax.graph(train_step, state=partial(create_state, classes), data=data)
    rh.summary.scalar("loss", graph["loss"])
    accuracy = rh.call(evaluate, graph["state"], test_images, test_labels % classes)
    ema = rh.EmaHook("state/params", decay=0.95)
    evaluation = rh.EvaluationHook(
        {"accuracy": accuracy}, every_n_steps=50, averages=ema, output_dir=f"{directory}/eval"
    )
    saver = rh.Saver(keep=[rh.KeepLast(1), rh.KeepBest(evaluation.metric("accuracy"))])
    with (
        graph.as_default(),
        rh.MonitoredTrainingSession(
            checkpoint_dir=directory,
            scaffold=rh.Scaffold(saver=saver, init_from=init_from),
            hooks=[rh.StopAtStepHook(last_step=steps), ema, evaluation],
            save_checkpoint_steps=50,
        ) as session,
    ):
        while not session.should_stop():
            session.run("train_op")
    return rh.best_checkpoint(directory, "accuracy").metrics


def main(directory: str, steps: int) -> None:
    train(f"{directory}/parity", 2, steps)
    averaged = {"ema/state/params/body": "state/params/body"}
    body = rh.InitFrom(
        f"{directory}/parity", only="ema/state/params/body", rename=averaged, best="accuracy"
    )
    reached = train(f"{directory}/digits", 10, steps // 2, body)
    print(f"with the body of the other task: {reached['accuracy']:.1%} of the digits read right")


if __name__ == "__main__":
    args = parser("Fine-tune a network.", "runs/fine_tuning", steps=600).parse_args()
    main(args.dir, args.steps)
