"""Fit a line: the smallest run with curves, checkpoints and resuming. Needs only NumPy."""

import numpy as np

import runhooks as rh


def batches(step):  # starts at a step, so a resumed run sees the same data
    while True:
        random = np.random.default_rng(step)
        x = random.normal(size=(32, 2))
        yield x, x @ [2.0, -3.0] + random.normal(scale=0.1, size=32)
        step += 1


def train_step(weights, x, y):
    error = x @ weights - y
    return weights - 0.1 * error @ x / len(y), {"loss": np.mean(error**2)}


graph = rh.graph(train_step, weights=np.zeros(2), data=batches)
with graph.as_default():
    rh.summary.scalar("loss")
    hooks = [rh.StopAtStepHook(last_step=500), rh.ProgressHook(500, "loss")]
    with rh.MonitoredTrainingSession(
        checkpoint_dir="runs/line", hooks=hooks, save_summaries_steps=10
    ) as session:
        while not session.should_stop():
            session.run("train_op")
