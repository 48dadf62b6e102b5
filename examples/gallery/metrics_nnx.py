"""A classifier in flax nnx with metric objects: loss and accuracy in an ``nnx.MultiMetric``.

    python examples/gallery/metrics_nnx.py --dir runs/metrics_nnx
    python examples/gallery/metrics_nnx.py --dir runs/plain --plain

``plain`` is the loop as one writes it by hand, and ``hooked`` the same training under runhooks.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx, serialization
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import runhooks as rh

# --- The model, the data and the step


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(64, 64, rngs=rngs)
        self.norm = nnx.BatchNorm(64, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.out = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, images: Any) -> Any:
        return self.out(self.dropout(nnx.relu(self.norm(self.hidden(images)))))


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
    """The batches for training, and those for the test: images [N, 64] in 0..1 and labels [N]."""
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels / 16).astype(np.float32)
    images, test_images, labels, test_labels = train_test_split(
        images, labels, test_size=360, stratify=labels, random_state=0
    )
    test = [(test_images[at : at + 90], test_labels[at : at + 90]) for at in range(0, 360, 90)]
    return Batches(images, labels, batch_size), test


def create(learning_rate: float) -> dict[str, Any]:
    """The model, its optimizer and the metrics, by the names of the step's parameters."""
    model = Network(nnx.Rngs(0))
    model.train()
    metrics = nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))
    optimizer = nnx.Optimizer(model, optax.adam(learning_rate), wrt=nnx.Param)
    return {"model": model, "optimizer": optimizer, "metrics": metrics}


@nnx.jit
def train_step(model: Network, optimizer: Any, metrics: Any, images: Any, labels: Any) -> Any:
    def loss_of(model: Network) -> Any:
        scores = model(images)
        return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean(), scores

    (loss, scores), grads = nnx.value_and_grad(loss_of, has_aux=True)(model)
    metrics.update(loss=loss, logits=scores, labels=labels)
    optimizer.update(model, grads)
    return loss


@nnx.jit
def test_step(model: Network, images: Any, labels: Any) -> Any:
    model.eval()
    scores = model(images)
    model.train()
    loss = optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()
    return {"loss": loss, "accuracy": jnp.mean(scores.argmax(-1) == labels)}


def report(epoch: int, metrics: Any) -> None:
    print(f"epoch {epoch}: loss {metrics['loss']:.6f}, accuracy {metrics['accuracy']:.4f}")


# --- The loop by hand, and under runhooks


def arrays_of(objects: Any) -> Any:
    """All arrays but the keys of dropout, which never change, and which msgpack does not take."""
    return nnx.to_pure_dict(nnx.state(objects, nnx.Not(nnx.RngKey)))


def plain(args: argparse.Namespace) -> Any:
    train_data, test_data = load(args.batch_size)
    created = create(args.lr)
    model, optimizer, metrics = created["model"], created["optimizer"], created["metrics"]
    first, best = 1, 0.0
    args.dir.mkdir(parents=True, exist_ok=True)
    last_file, progress = args.dir / "last.msgpack", args.dir / "progress.json"
    if last_file.exists():
        kept = arrays_of((model, optimizer))
        nnx.update((model, optimizer), serialization.from_bytes(kept, last_file.read_bytes()))
        first, best = json.loads(progress.read_text())
    for epoch in range(first, args.epochs + 1):
        for images, labels in train_data:
            train_step(model, optimizer, metrics, images, labels)
        report(epoch, metrics.compute())
        metrics.reset()
        tested = [test_step(model, images, labels) for images, labels in test_data]
        sizes = [len(labels) for _, labels in test_data]
        loss = np.average([it["loss"] for it in tested], weights=sizes)
        accuracy = np.average([it["accuracy"] for it in tested], weights=sizes)
        print(f"test of epoch {epoch}: loss {loss:.6f}, accuracy {accuracy:.4f}")
        if accuracy > best:
            best = float(accuracy)
            (args.dir / "best.msgpack").write_bytes(serialization.to_bytes(arrays_of(model)))
        last_file.write_bytes(serialization.to_bytes(arrays_of((model, optimizer))))
        progress.write_text(json.dumps([epoch + 1, best]))
    return model


def hooked(args: argparse.Namespace) -> None:
    train_data, test_data = load(args.batch_size)
    objects = create(args.lr)
    graph = rh.jax.graph(train_step, ["loss"], data=train_data, epochs=args.epochs, **objects)
    with graph.as_default():
        rh.summary.scalar("loss")
        metrics = ["epoch", rh.epoch_metrics("metrics")]
        test = rh.EvaluationHook(
            test_step, test_data, every_n_epochs=1, output_dir=args.dir / "test"
        )
        rh.train.train(
            "train_op",
            args.dir,
            hooks=[test, rh.CallHook(report, metrics, every_n_epochs=1)],
            saver=rh.Saver(keep=[rh.KeepLast(2), rh.KeepBest(test.metric("accuracy"))]),
            save_checkpoint_steps=args.save_steps,
            save_summaries_steps=10,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Classify digits with flax nnx.")
    parser.add_argument("--plain", action="store_true", help="the loop by hand")
    parser.add_argument("--dir", type=Path, default=Path("runs/metrics_nnx"))
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--save-steps", type=int, default=50, help="save every so many steps")
    args = parser.parse_args()
    plain(args) if args.plain else hooked(args)
