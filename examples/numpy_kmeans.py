"""NumPy without a network: k-means in small batches finds the digits without their labels.

    python examples/numpy_kmeans.py --dir runs/numpy_kmeans

``bare`` is the loop one writes first; ``train`` is the same loop with hooks. They work with any
loop that improves something step by step.
"""

from typing import Any

import numpy as np

import runhooks as rh
from digits_data import batches, parser, test_images, test_labels, train_images

CLUSTERS = 30


def create_state() -> Any:
    chosen = np.random.default_rng(0).choice(len(train_images), CLUSTERS, replace=False)
    return {"centers": train_images[chosen], "counts": np.ones(CLUSTERS, np.float32)}


def nearest(centers: Any, images: Any) -> tuple[Any, Any]:
    """The nearest center of each image, and its squared distance."""
    distances = np.square(images[:, None] - centers).sum(-1)
    return distances.argmin(1), distances.min(1)


def train_step(state: Any, images: Any, labels: Any) -> Any:
    """One step of Sculley's mini-batch k-means; it does not look at the labels."""
    clusters, distances = nearest(state["centers"], images)
    centers, counts = state["centers"].copy(), state["counts"].copy()
    for image, cluster in zip(images, clusters, strict=True):
        counts[cluster] += 1
        centers[cluster] += (image - centers[cluster]) / counts[cluster]
    moved = np.linalg.norm(centers - state["centers"], axis=1)
    return {"centers": centers, "counts": counts}, {"loss": distances.mean(), "moved": moved}


def evaluate(state: Any, images: Any, labels: Any) -> Any:
    """The part of the images that are the digit which is most frequent in their cluster."""
    clusters, _ = nearest(state["centers"], images)
    counts = np.zeros((CLUSTERS, 10))
    np.add.at(counts, (clusters, labels), 1)
    return counts.max(1).sum() / len(labels)


def bare(steps: int) -> Any:
    state = create_state()
    for step, (images, labels) in zip(range(1, steps + 1), batches(0), strict=False):
        state, outputs = train_step(state, images, labels)
        if step % 50 == 0:
            print(step, outputs["loss"], evaluate(state, test_images, test_labels))
    return state


def train(directory: str, steps: int) -> None:
    graph = rh.graph(train_step, state=create_state, data=batches)
    rh.summary.scalar("loss", graph["loss"])
    rh.summary.histogram("moved", graph["moved"])
    purity = rh.call(evaluate, graph["state"], test_images, test_labels)
    evaluation = rh.EvaluationHook(
        {"purity": purity}, every_n_steps=50, output_dir=f"{directory}/eval"
    )
    saver = rh.Saver(keep=[rh.KeepLast(1), rh.KeepBest(evaluation.metric("purity"))])
    hooks = [
        rh.StopAtStepHook(last_step=steps),
        rh.ProgressHook(steps, ["loss"]),
        rh.NanTensorHook("loss", late=True),
        rh.stop_if_no_increase_hook(evaluation.metric("purity"), max_steps_without_increase=300),
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
    args = parser("Cluster digits with k-means.", "runs/numpy_kmeans", steps=500).parse_args()
    train(args.dir, args.steps)
