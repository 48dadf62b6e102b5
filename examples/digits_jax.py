"""Train a small convolutional network on scikit-learn's handwritten digits, and watch it.

``make train`` runs this, ``make board`` shows it in TensorBoard. Ctrl-C finishes the step, saves
and ends well; ``kill -9`` loses the steps since the last checkpoint. Run again, it goes on, and
ends bit for bit where an undisturbed run ends: what is random depends on the global step alone.
"""

import argparse
import itertools
import logging
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import runhooks as rh
from digits_hooks import hooks_until

SEED = 0
BATCH = 64
SHAPES = {"conv1": (3, 3, 1, 16), "conv2": (3, 3, 16, 32), "dense": (4 * 4 * 32, 10)}
learning_rate = optax.exponential_decay(3e-3, transition_steps=500, decay_rate=0.5)
optimizer = optax.scale_by_adam()
cross_entropy: Callable[..., jax.Array] = optax.softmax_cross_entropy_with_integer_labels
Params = dict[str, dict[str, jax.Array]]


class State(NamedTuple):
    """All that a step changes: a pytree, kept by one variable."""

    params: Params
    moments: optax.OptState


def init() -> State:
    he_normal = jax.nn.initializers.he_normal()
    keys = jax.random.split(jax.random.key(SEED), len(SHAPES))
    params = {
        layer: {"kernel": he_normal(key, shape), "bias": jnp.zeros(shape[-1])}
        for key, (layer, shape) in zip(keys, SHAPES.items(), strict=True)
    }
    return State(params, optimizer.init(params))


def convolve(layer: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    order = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(x, layer["kernel"], (1, 1), "SAME", dimension_numbers=order)
    return jax.nn.relu(y + layer["bias"])


def network(params: Params, images: jax.Array) -> jax.Array:
    """Scores [N, 10] of images [N, 8, 8, 1]."""
    x = convolve(params["conv2"], convolve(params["conv1"], images))
    x = x.reshape(-1, 4, 2, 4, 2, 32).max((2, 4)).reshape(-1, 4 * 4 * 32)
    return x @ params["dense"]["kernel"] + params["dense"]["bias"]


def train_step(state: State, images: Any, labels: Any, step: Any) -> tuple[State, Any]:
    shift = jax.random.randint(jax.random.fold_in(jax.random.key(SEED), step), (2,), -1, 2)
    images = jnp.roll(images, shift, axis=(1, 2))

    def loss_of(params: Params) -> jax.Array:
        return cross_entropy(network(params, images), labels).mean()

    loss, grads = jax.value_and_grad(loss_of)(state.params)
    direction, moments = optimizer.update(grads, state.moments)
    rate = learning_rate(step)
    params = jax.tree.map(lambda p, d: p - rate * d, state.params, direction)
    return State(params, moments), {"loss": loss, "learning_rate": rate, "grads": grads}


def evaluate(state: State, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The accuracy, and three misread digits, the worst first; black where there are fewer."""
    scores = network(state.params, images)
    wrong = scores.argmax(-1) != labels
    worst = jnp.argsort(-cross_entropy(scores, labels) * wrong)[:3]
    shown = jnp.take(images, worst, axis=0) * wrong[worst, None, None, None]
    return 1 - wrong.mean(), shown.repeat(8, axis=1).repeat(8, axis=2)


def load() -> Any:
    """Images [N, 8, 8, 1] in 0..1 for training, for the test, and labels [N] for each."""
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels.reshape(-1, 8, 8, 1) / 16).astype(np.float32)
    return train_test_split(images, labels, test_size=360, stratify=labels, random_state=SEED)


def batches(images: Any, labels: Any, step: int) -> Iterator[tuple[Any, Any]]:
    """The batches from ``step`` on: all digits in a new order in each epoch."""
    for now in itertools.count(step):
        epoch, batch = divmod(now, len(labels) // BATCH)
        order = np.random.default_rng([SEED, epoch]).permutation(len(labels))
        chosen = order[batch * BATCH :][:BATCH]
        yield images[chosen], labels[chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on handwritten digits.")
    parser.add_argument("--dir", default="runs/digits", help="run directory (%(default)s)")
    parser.add_argument("--steps", type=int, default=2000, help="the last step (%(default)s)")
    parser.add_argument("--save-steps", type=int, default=200, help="steps between checkpoints")
    args = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("runhooks").setLevel(logging.INFO)
    train_images, test_images, train_labels, test_labels = load()

    with rh.Graph(engine="jax").as_default():
        step = rh.train.get_or_create_global_step()
        state = rh.Variable(init, name="state")
        images, labels = rh.inputs(lambda at: batches(train_images, train_labels, at), 2)
        new_state, metrics = rh.call(train_step, state, images, labels, step, num_outputs=2)
        rh.group(state.assign(new_state), step.assign_add(1), name="train_op")
        loss = rh.call(itemgetter("loss"), metrics, name="loss")
        accuracy, misread = rh.call(evaluate, state, test_images, test_labels, num_outputs=2)

        rh.summary.scalar("loss", loss)
        rh.summary.scalar("learning_rate", metrics["learning_rate"])
        rh.summary.scalar("test/accuracy", accuracy)
        rh.summary.image("test/misread", misread, max_outputs=3)
        for layer in SHAPES:
            rh.summary.histogram(f"gradients/{layer}", metrics["grads"][layer]["kernel"])

        hooks = hooks_until(args.steps)
        with rh.MonitoredTrainingSession(
            checkpoint_dir=args.dir,
            hooks=hooks,
            save_checkpoint_steps=args.save_steps,
            save_summaries_steps=50,
        ) as session:
            while not session.should_stop():
                session.run("train_op")
    print(hooks[-1].report)
    print(f"look at it: make board, or tensorboard --logdir {args.dir}")


if __name__ == "__main__":
    main()
