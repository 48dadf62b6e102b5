"""Fit a line: the smallest run with curves, evaluation and resuming. Needs only NumPy."""

import numpy as np

import runhooks as rh

random = np.random.default_rng(0)
x = random.normal(size=(60, 32, 2))  # 60 batches
y = x @ [2.0, -3.0] + random.normal(scale=0.1, size=(60, 32))
batches = list(zip(x, y, strict=True))


def train_step(weights, x, y):
    error = x @ weights - y
    return weights - 0.01 * error @ x / len(y), {"loss": np.mean(error**2)}


def test_step(weights, x, y):
    return {"error": np.mean((x @ weights - y) ** 2)}


graph = rh.graph(train_step, weights=np.zeros(2), data=batches[:50], epochs=10)
with graph.as_default():
    rh.summary.scalar("loss")
    test = rh.EvaluationHook(test_step, batches[50:], every_n_epochs=1)
    report = {"epoch": "epoch", "loss": rh.epoch_mean("loss")}
    hooks = [test, rh.LoggingTensorHook(report, trigger=rh.Trigger(every_epochs=1))]
    rh.train.train("train_op", "runs/line", hooks, save_summaries_steps=10)
