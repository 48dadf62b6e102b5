"""flax nnx: a bare loop, and the same loop with hooks.

    python examples/flax_nnx.py --dir runs/flax_nnx

The step changes the model and its optimizer in place, and need not return them. ``bare`` is the
loop one writes first; ``train`` is the same loop with hooks.
"""

from typing import Any

import optax
from flax import nnx

import runhooks as rh
from digits_data import batches, parser, test_images, test_labels


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(64, 32, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(32, rngs=rngs)
        self.out = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, images: Any) -> Any:
        return self.out(nnx.relu(self.norm(self.hidden(images))))


def create() -> Any:
    model = Network(nnx.Rngs(0))
    model.train()
    return model, nnx.Optimizer(model, optax.adam(3e-3), wrt=nnx.Param)


@nnx.jit
def train_step(model: Network, optimizer: Any, images: Any, labels: Any) -> Any:
    def loss_of(model: Network) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(model(images), labels).mean()

    loss, grads = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, grads)
    return {"loss": loss, "grads": grads}


@nnx.jit
def evaluate(model: Network, images: Any, labels: Any) -> Any:
    model.eval()
    accuracy = (model(images).argmax(-1) == labels).mean()
    model.train()
    return accuracy


def bare(steps: int) -> Network:
    model, optimizer = create()
    for step, (images, labels) in zip(range(1, steps + 1), batches(0), strict=False):
        outputs = train_step(model, optimizer, images, labels)
        if step % 50 == 0:
            print(step, outputs["loss"], evaluate(model, test_images, test_labels))
    return model


def train(directory: str, steps: int) -> None:
    model, optimizer = create()
    graph = rh.jax.graph(train_step, model=model, optimizer=optimizer, data=batches)
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
    args = parser("Train in flax nnx.", "runs/flax_nnx", steps=2000).parse_args()
    train(args.dir, args.steps)
