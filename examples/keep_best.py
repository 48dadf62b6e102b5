"""Evaluates every 50 steps, keeps the best checkpoint, and stops when it gets no better."""

import numpy as np

import runhooks as rh


def train_step(weights, x, y):
    error = x @ weights - y
    return weights - 0.05 * error @ x / len(y)


def batches(step):
    while True:
        x = np.random.default_rng(step).normal(size=(8, 4))
        yield x, x.sum(axis=1) + np.random.default_rng(-step % 2**32).normal(size=8)
        step += 1


def test_batches(step):
    yield np.eye(4), np.ones(4)


with rh.Graph().as_default():
    weights = rh.Variable(np.zeros(4), name="weights")
    new_weights = rh.call(train_step, weights, *rh.inputs(batches, num_outputs=2))
    train_op = rh.group(weights.assign(new_weights), rh.train.create_global_step().assign_add(1))
    x, y = rh.inputs(test_batches, num_outputs=2, name="test")
    error = rh.call(lambda w, x, y: np.abs(x @ w - y).mean(), weights, x, y)

    evaluation = rh.EvaluationHook({"error": error}, every_n_steps=50, output_dir="runs/best/eval")
    saver = rh.Saver(
        asynchronous=True,  # the loop continues while a checkpoint is written
        keep=[
            rh.KeepLast(2),
            rh.KeepBest(evaluation.metric("error"), mode="min"),
            rh.KeepSteps(100),
        ],
    )
    stop = rh.stop_if_no_decrease_hook(evaluation.metric("error"), max_steps_without_decrease=200)
    with rh.MonitoredTrainingSession(
        checkpoint_dir="runs/best",
        saver=saver,
        hooks=[evaluation, stop],
        save_checkpoint_steps=50,
    ) as session:
        while not session.should_stop():
            session.run(train_op)

print("kept", *(path.rpartition("-")[2] for path in saver.last_checkpoints))
