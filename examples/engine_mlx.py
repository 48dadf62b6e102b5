"""An engine in one file: runhooks graphs that compute with MLX, which runhooks does not include.

    pip install runhooks "mlx[cpu]"
    python examples/engine_mlx.py --dir runs/mlx

``MlxArrays`` says how to read and store MLX arrays, ``MlxEngine`` how MLX computes. Once they are
registered, every hook, summary and checkpoint works. The rest is a program: a small network learns
to tell the arms of a spiral apart. Run it again with more ``--steps``, and it resumes.
"""

import argparse
import itertools
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

import runhooks as rh
from runhooks.arrays import ArrayLibrary, register
from runhooks.engines import EagerEngine, register_engine

Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
Weights = dict[str, mx.array]


class MlxArrays(ArrayLibrary):
    name = "mlx"

    def owns(self, kind: type) -> bool:
        return issubclass(kind, mx.array)

    def host_form(self, array: mx.array) -> tuple[tuple[int, ...], Any]:
        return array.shape, self.to_numpy(mx.zeros((), array.dtype)).dtype

    def to_numpy(self, array: mx.array) -> np.ndarray[Any, Any]:
        if array.dtype == mx.bfloat16:
            import ml_dtypes  # NumPy itself has no bfloat16

            return np.array(array.view(mx.uint16)).view(ml_dtypes.bfloat16)
        return np.array(array)

    def from_numpy(self, array: np.ndarray[Any, Any], like: mx.array | None = None) -> mx.array:
        return mx.array(array, mx.bool_ if array.dtype == bool else getattr(mx, array.dtype.name))

    def snapshot(self, array: mx.array) -> mx.array:
        copy = mx.array(array)  # arrays can be changed in place
        mx.async_eval(copy)  # type: ignore[no-untyped-call]  # lazy: or the next run did the work
        return copy


class MlxEngine(EagerEngine):
    name = "mlx"
    title = "MLX"
    arrays = MlxArrays()

    def random_key(self, seed: int, stream: int, runs: Any) -> mx.array:
        mixed = np.random.SeedSequence([seed, stream, int(runs)]).generate_state(1, np.uint64)
        return mx.random.key(int(mixed[0]))

    def own_key(self, key: mx.array) -> mx.array:
        return key  # drawing with a key does not change it

    def wait(self, values: Sequence[Any]) -> None:
        mx.synchronize()


register(MlxEngine.arrays)
register_engine("mlx", MlxEngine)


def spiral(count: int = 3000) -> Arrays:
    """Points [N, 3], x, y and 1, on three arms of a spiral, and the arms [N] they are on."""
    generator = np.random.default_rng(0)
    arms = np.arange(count) % 3
    radius = generator.uniform(0.1, 1, count)
    angle = 4 * radius + arms * 2 * np.pi / 3 + generator.normal(0, 0.15, count)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle), np.ones(count)], axis=1)
    return points.astype(np.float32), arms.astype(np.int32)


def batches(step: int) -> Iterator[Arrays]:
    """The batches from ``step`` on, each drawn by its number."""
    points, arms = spiral()
    for number in itertools.count(step):
        chosen = np.random.default_rng(number).integers(0, len(points), 64)
        yield points[chosen], arms[chosen]


def initial_weights() -> dict[str, np.ndarray[Any, Any]]:
    draw = np.random.default_rng(0).normal
    found = {"in": draw(0, 1, (3, 64)), "middle": draw(0, 0.15, (64, 64)), "out": np.zeros((64, 3))}
    return {name: weight.astype(np.float32) for name, weight in found.items()}


def scores(weights: Weights, points: mx.array, key: mx.array | None) -> mx.array:
    """Scores [N, 3] of points [N, 3]; with a random key, some hidden units are left out."""
    x = mx.maximum(points @ weights["in"], 0)
    x = mx.maximum(x @ weights["middle"], 0)
    if key is not None:
        x = x * mx.random.bernoulli(0.9, x.shape, key=key) / 0.9
    return x @ weights["out"]


def train_step(weights: Weights, points: mx.array, arms: mx.array, key: mx.array) -> Any:
    def loss_of(weights: Weights) -> mx.array:
        found = scores(weights, points, key)
        return (mx.logsumexp(found, axis=1) - found[mx.arange(len(arms)), arms]).mean()

    loss, gradients = mx.value_and_grad(loss_of)(weights)
    return {name: weights[name] - 0.3 * it for name, it in gradients.items()}, loss


def accuracy_of(weights: Weights) -> mx.array:
    points, arms = spiral()
    return (scores(weights, mx.array(points), None).argmax(1) == mx.array(arms)).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on a spiral.")
    parser.add_argument("--dir", default="runs/mlx", help="run directory (%(default)s)")
    parser.add_argument("--steps", type=int, default=1000, help="the last step (%(default)s)")
    args = parser.parse_args()
    logging.basicConfig(format="%(message)s", level=logging.INFO)

    with rh.Graph(engine="mlx").as_default():
        weights = rh.Variable(initial_weights(), name="weights")
        batch = rh.inputs(batches, num_outputs=2)
        new_weights, loss = rh.call(train_step, weights, *batch, rh.random_key(), num_outputs=2)
        counted = rh.train.get_or_create_global_step().assign_add(1)
        train_op = rh.group(weights.assign(new_weights), counted)
        accuracy = rh.call(accuracy_of, weights, name="accuracy")
        rh.summary.scalar("loss", loss)
        rh.summary.scalar("accuracy", accuracy)
        rh.summary.histogram("weights/middle", weights["middle"])
        hooks = [
            rh.StopAtStepHook(last_step=args.steps),
            rh.NanTensorHook(loss),
            rh.LoggingTensorHook({"loss": loss, "accuracy": accuracy}, every_n_iter=200),
        ]
        with rh.MonitoredTrainingSession(
            checkpoint_dir=args.dir, hooks=hooks, save_checkpoint_steps=200, save_summaries_steps=50
        ) as session:
            while not session.should_stop():
                session.run(train_op)


if __name__ == "__main__":
    main()
