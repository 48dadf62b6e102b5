"""A classifier in flax linen: epochs over shuffled arrays, dropout keys split in the loop, a test.

    python examples/gallery/classifier_flax.py --dir runs/classifier_flax
    python examples/gallery/classifier_flax.py --dir runs/plain --plain

``plain`` is the loop as one writes it by hand, and ``hooked`` the same training under runhooks.
"""

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax import serialization
from flax.training.train_state import TrainState
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import runhooks as rh

# --- The model, the data and the step


class Network(nn.Module):
    @nn.compact
    def __call__(self, images: Any, train: bool) -> Any:
        x = nn.relu(nn.Conv(16, (3, 3))(images))
        x = nn.max_pool(x, (2, 2), strides=(2, 2)).reshape(len(x), -1)
        x = nn.relu(nn.Dense(64)(x))
        x = nn.Dropout(0.3, deterministic=not train)(x)
        return nn.Dense(10)(x)


class Batches:
    """The arrays in batches, in a new order in each epoch."""

    def __init__(self, images: Any, labels: Any, size: int) -> None:
        self.images, self.labels, self.size = images, labels, size
        self.random = np.random.default_rng(0)

    def __len__(self) -> int:
        return len(self.labels) // self.size

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        order = self.random.permutation(len(self.labels))
        for chosen in order[: len(self) * self.size].reshape(len(self), self.size):
            yield self.images[chosen], self.labels[chosen]


def load(batch_size: int) -> Any:
    """The batches for training, and those for the test: images [N, 8, 8, 1] in 0..1 and labels."""
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    images, test_images, labels, test_labels = train_test_split(
        images, labels, test_size=360, stratify=labels, random_state=0
    )
    test = [(test_images[at : at + 90], test_labels[at : at + 90]) for at in range(0, 360, 90)]
    return Batches(images, labels, batch_size), test


def create_state(learning_rate: float) -> TrainState:
    network = Network()
    params = network.init(jax.random.key(0), jnp.ones((1, 8, 8, 1)), train=False)["params"]
    return TrainState.create(apply_fn=network.apply, params=params, tx=optax.adam(learning_rate))


def cross_entropy(scores: Any, labels: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()


@jax.jit
def train_step(state: TrainState, key: Any, images: Any, labels: Any) -> Any:
    def loss_of(params: Any) -> Any:
        scores = state.apply_fn({"params": params}, images, train=True, rngs={"dropout": key})
        return cross_entropy(scores, labels), scores

    (loss, scores), grads = jax.value_and_grad(loss_of, has_aux=True)(state.params)
    accuracy = (scores.argmax(-1) == labels).mean()
    return state.apply_gradients(grads=grads), {"loss": loss, "accuracy": accuracy}


@jax.jit
def test_step(state: TrainState, images: Any, labels: Any) -> Any:
    scores = state.apply_fn({"params": state.params}, images, train=False)
    accuracy = (scores.argmax(-1) == labels).mean()
    return {"loss": cross_entropy(scores, labels), "accuracy": accuracy}


def report(epoch: int, loss: Any, accuracy: Any) -> None:
    print(f"epoch {epoch}: loss {loss:.6f}, accuracy {accuracy:.4f}")


# --- The loop by hand, and under runhooks


def plain(args: argparse.Namespace) -> TrainState:
    train_data, test_data = load(args.batch_size)
    state, rng = create_state(args.lr), jax.random.key(1)
    first, best = 1, 0.0
    args.dir.mkdir(parents=True, exist_ok=True)
    last_file = args.dir / "last.msgpack"
    if last_file.exists():
        like = {"state": state, "rng": jax.random.key_data(rng), "epoch": 0, "best": 0.0}
        saved = serialization.from_bytes(like, last_file.read_bytes())
        state, rng = saved["state"], jax.random.wrap_key_data(saved["rng"])
        first, best = saved["epoch"] + 1, saved["best"]
    for epoch in range(first, args.epochs + 1):
        losses, accuracies = [], []
        for images, labels in train_data:
            rng, key = jax.random.split(rng)
            state, outputs = train_step(state, key, images, labels)
            losses.append(outputs["loss"])
            accuracies.append(outputs["accuracy"])
        report(epoch, np.mean(losses), np.mean(accuracies))
        tested = [test_step(state, images, labels) for images, labels in test_data]
        sizes = [len(labels) for _, labels in test_data]
        loss = np.average([it["loss"] for it in tested], weights=sizes)
        accuracy = np.average([it["accuracy"] for it in tested], weights=sizes)
        print(f"test of epoch {epoch}: loss {loss:.6f}, accuracy {accuracy:.4f}")
        if accuracy > best:
            best = float(accuracy)
            (args.dir / "best.msgpack").write_bytes(serialization.to_bytes(state))
        kept = {"state": state, "rng": jax.random.key_data(rng), "epoch": epoch, "best": best}
        last_file.write_bytes(serialization.to_bytes(kept))
    return state


def split_step(state: TrainState, rng: Any, images: Any, labels: Any) -> Any:
    """The body of the loop: the key is split here, and carried to the next step."""
    rng, key = jax.random.split(rng)
    state, outputs = train_step(state, key, images, labels)
    return state, rng, outputs


def hooked(args: argparse.Namespace) -> None:
    train_data, test_data = load(args.batch_size)
    state, rng = partial(create_state, args.lr), jax.random.key(1)
    graph = rh.jax.graph(split_step, state=state, rng=rng, data=train_data, epochs=args.epochs)
    with graph.as_default():
        rh.summary.scalar("loss")
        rh.summary.scalar("accuracy")
        means = ["epoch", rh.epoch_mean("loss"), rh.epoch_mean("accuracy")]
        test = rh.EvaluationHook(
            test_step, test_data, every_n_epochs=1, output_dir=args.dir / "test"
        )
        rh.train.train(
            "train_op",
            args.dir,
            hooks=[test, rh.CallHook(report, means, every_n_epochs=1)],
            saver=rh.Saver(keep=[rh.KeepLast(2), rh.KeepBest(test.metric("accuracy"))]),
            save_checkpoint_steps=args.save_steps,
            save_summaries_steps=10,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Classify digits with flax linen.")
    parser.add_argument("--plain", action="store_true", help="the loop by hand")
    parser.add_argument("--dir", type=Path, default=Path("runs/classifier_flax"))
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--save-steps", type=int, default=50, help="save every so many steps")
    args = parser.parse_args()
    plain(args) if args.plain else hooked(args)
