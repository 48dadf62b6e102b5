"""Train a small convolutional network on scikit-learn's handwritten digits.

``make train`` runs this, and ``make board`` shows it in TensorBoard. Ctrl-C finishes the step,
saves and exits cleanly; ``kill -9`` loses the steps since the last checkpoint. Run it again to
resume. The result is that of an uninterrupted run, bit for bit: all random numbers depend only on
the step.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import runhooks as rh
from digits_data import SEED, batches, parser, test_images, test_labels
from digits_hooks import hooks_until

SHAPES = {"conv1": (3, 3, 1, 16), "conv2": (3, 3, 16, 32), "dense": (4 * 4 * 32, 10)}
learning_rate = optax.exponential_decay(3e-3, transition_steps=500, decay_rate=0.5)
optimizer = optax.scale_by_adam()
cross_entropy: Callable[..., jax.Array] = optax.softmax_cross_entropy_with_integer_labels
Params = dict[str, dict[str, jax.Array]]


class State(NamedTuple):
    """All that a step changes."""

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
    """Scores [N, 10] of images [N, 64]."""
    images = images.reshape(-1, 8, 8, 1)
    x = convolve(params["conv2"], convolve(params["conv1"], images))
    x = x.reshape(-1, 4, 2, 4, 2, 32).max((2, 4)).reshape(-1, 4 * 4 * 32)
    return x @ params["dense"]["kernel"] + params["dense"]["bias"]


def train_step(state: State, images: Any, labels: Any, step: Any) -> tuple[State, Any]:
    shift = jax.random.randint(jax.random.fold_in(jax.random.key(SEED), step), (2,), -1, 2)
    images = jnp.roll(images.reshape(-1, 8, 8), shift, axis=(1, 2))

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
    shown = images.reshape(-1, 8, 8, 1)[worst] * wrong[worst, None, None, None]
    return 1 - wrong.mean(), shown.repeat(8, axis=1).repeat(8, axis=2)


def main() -> None:
    options = parser("Train on handwritten digits.", "runs/digits", steps=2000)
    options.add_argument("--save-steps", type=int, default=200, help="steps between checkpoints")
    args = options.parse_args()

    graph = rh.jax.graph(train_step, state=init, data=batches)
    with graph.as_default():
        evaluation = rh.call(evaluate, graph["state"], test_images, test_labels, num_outputs=2)
        rh.summary.scalar("loss", "loss")
        rh.summary.scalar("learning_rate", "learning_rate")
        rh.summary.scalar("test/accuracy", evaluation[0])
        rh.summary.image("test/misread", evaluation[1], max_outputs=3)
        rh.summary.histogram("gradients", "grads")
        rh.summary.gradient_norms("grads")

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
