"""The program of ``mnist_style_tf1.py``, moved from a TensorFlow graph to the jax engine.

The network and the step are now functions. Placeholders, hooks, summaries, the session and its loop
have not changed. docs/migrating.md compares the two programs line by line.
"""

import argparse
import logging
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import runhooks as rh
from runhooks import train

BATCH = 64
SHAPES = {"conv1": (3, 3, 1, 16), "conv2": (3, 3, 16, 32), "dense": (4 * 4 * 32, 10)}
Params = dict[str, dict[str, jax.Array]]
optimizer = optax.adam(optax.exponential_decay(3e-3, transition_steps=500, decay_rate=0.5))


def init() -> tuple[Params, Any]:
    """The weights, and the moments of the optimizer."""
    keys = jax.random.split(jax.random.key(0), len(SHAPES))
    params = {
        layer: {
            "kernel": 0.1 * jax.random.truncated_normal(key, -2, 2, shape),
            "bias": jnp.full(shape[-1], 0.1),
        }
        for key, (layer, shape) in zip(keys, SHAPES.items(), strict=True)
    }
    return params, optimizer.init(params)


def network(params: Params, images: Any, keep: Any = 1.0) -> Any:
    """Scores [N, 10] of images [N, 64]; ``keep`` is what the last layer's inputs are scaled by."""
    x = images.reshape(-1, 8, 8, 1)
    for layer in (params["conv1"], params["conv2"]):
        order = ("NHWC", "HWIO", "NHWC")
        kernel = layer["kernel"]
        x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=order)
        x = jax.nn.relu(x + layer["bias"])
    x = x.reshape(-1, 4, 2, 4, 2, 32).max((2, 4)).reshape(-1, 4 * 4 * 32) * keep
    return x @ params["dense"]["kernel"] + params["dense"]["bias"]


def train_step(state: Any, images: Any, labels: Any, keep_prob: Any, key: Any) -> Any:
    params, moments = state
    keep = jax.random.bernoulli(key, keep_prob, (len(images), 4 * 4 * 32)) / keep_prob

    def loss_of(params: Params) -> Any:
        scores = network(params, images, keep)
        return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()

    loss, gradients = jax.value_and_grad(loss_of)(params)
    updates, moments = optimizer.update(gradients, moments)
    return (optax.apply_updates(params, updates), moments), loss


def accuracy_of(state: Any, images: Any, labels: Any) -> Any:
    return (network(state[0], images).argmax(-1) == labels).mean()


def load() -> Any:
    """Images [N, 64] in 0..1 for training, for the test, and labels [N] for each."""
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels / 16).astype(np.float32)
    return train_test_split(images, labels, test_size=360, stratify=labels, random_state=0)


def batches(images: Any, labels: Any) -> Iterator[tuple[Any, Any]]:
    while True:
        order = np.random.permutation(len(labels))
        for begin in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[begin : begin + BATCH]
            yield images[chosen], labels[chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on handwritten digits.")
    parser.add_argument("--dir", default="runs/tf1-jax", help="run directory (%(default)s)")
    parser.add_argument("--steps", type=int, default=1000, help="the last step (%(default)s)")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    train_images, test_images, train_labels, test_labels = load()

    with rh.Graph(engine="jax").as_default():
        images = rh.placeholder("images", np.float32, [None, 64])
        labels = rh.placeholder("labels", np.int64, [None])
        keep_prob = rh.placeholder("keep_prob", np.float32, [])
        state = rh.Variable(init, name="state")
        key = rh.random_key()
        new_state, loss = rh.call(train_step, state, images, labels, keep_prob, key, num_outputs=2)
        accuracy = rh.call(accuracy_of, state, images, labels)
        rh.summary.scalar("loss", loss)
        rh.summary.scalar("accuracy", accuracy)
        rh.summary.image("digits", rh.call(lambda x: x.reshape(-1, 8, 8, 1), images), max_outputs=3)
        for layer in ("conv1", "conv2"):
            rh.summary.histogram(f"{layer}/weights", state[0][layer]["kernel"])
        summaries = rh.summary.merge_all()

        global_step = train.get_or_create_global_step()
        train_op = rh.group(state.assign(new_state), global_step.assign_add(1))

        test = {images: test_images, labels: test_labels}
        at_end = train.FinalOpsHook({"accuracy": accuracy, "step": global_step}, test)
        hooks = [
            train.StopAtStepHook(last_step=args.steps),
            train.NanTensorHook(loss),
            train.LoggingTensorHook({"step": global_step, "loss": loss}, every_n_iter=100),
            train.SummarySaverHook(save_steps=50, output_dir=args.dir, summary_op=summaries),
            at_end,
        ]
        with train.MonitoredTrainingSession(
            checkpoint_dir=args.dir,
            hooks=hooks,
            save_checkpoint_steps=200,
            save_summaries_steps=None,
        ) as session:
            digits = batches(train_images, train_labels)
            while not session.should_stop():
                x, y = next(digits)
                session.run(train_op, feed_dict={images: x, labels: y, keep_prob: 0.8})
    reached = at_end.final_ops_values
    print(f"step {reached['step']}: {reached['accuracy']:.1%} of the test digits read")


if __name__ == "__main__":
    main()
