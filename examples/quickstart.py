"""Fit a line: the smallest run with curves, checkpoints and a resume. Needs NumPy alone."""

import numpy as np

import runhooks as rh


def batches(step):  # endless, and the same from a given step on: a resumed run sees the same data
    while True:
        random = np.random.default_rng(step)
        x = random.normal(size=(32, 2))
        yield x, x @ [2.0, -3.0] + random.normal(scale=0.1, size=32)
        step += 1


def train_step(weights, x, y):
    error = x @ weights - y
    return weights - 0.1 * error @ x / len(y), np.mean(error**2)


with rh.Graph().as_default():
    x, y = rh.inputs(batches, num_outputs=2)
    weights = rh.Variable(np.zeros(2), name="weights")
    new_weights, loss = rh.call(train_step, weights, x, y, num_outputs=2)
    step = rh.train.get_or_create_global_step()
    train_op = rh.group(weights.assign(new_weights), step.assign_add(1))
    rh.summary.scalar("loss", loss)

    hooks = [rh.StopAtStepHook(last_step=500), rh.ProgressHook(500, {"loss": loss})]
    with rh.MonitoredTrainingSession(checkpoint_dir="runs/line", hooks=hooks) as session:
        while not session.should_stop():
            session.run(train_op)
