"""A loop of iterations: a rollout, and several passes over it; it may be killed in any run.

``python iteration_program.py CASE.json``: the file has the arguments of ``train``.
"""

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np

import runhooks as rh

#: Each iteration plays this long, and then makes this many passes over what it has seen.
PLAYED, PASSES = 3, 4
ITERATIONS = 5


def train_step(weights, rollout, key):
    noise = key.random(rollout.shape, np.float32)
    loss = ((weights - rollout.mean(0)) ** 2).sum()
    return weights + 0.1 * (rollout * noise).mean(0), {"loss": loss}


def train(folder, save, *, kill_at=None, sent=None, is_asked=True):
    """Train for five iterations; return the iterations made, and the weights if it was asked.

    ``save``: a checkpoint every so many steps. ``kill_at``: the run, counted from 1, that ends
    with a kill. ``sent``: one that ends with a SIGTERM. ``is_asked``: the loop asks should_stop().
    """
    runs = made = 0
    weights = None

    def count():
        nonlocal runs
        runs += 1
        if runs == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if runs == sent:
            os.kill(os.getpid(), signal.SIGTERM)

    graph = rh.graph(train_step, weights=np.zeros(2, np.float32), steps_per_epoch=PASSES)
    with graph.as_default():
        act = rh.call(
            lambda weights, key: weights + key.random(2, np.float32),
            graph["weights"],
            rh.random_key(1),
            name="act",
        )
        hooks = [rh.StopAtStepHook(last_step=ITERATIONS * PASSES)]
        with rh.MonitoredTrainingSession(
            checkpoint_dir=folder,
            hooks=hooks,
            save_checkpoint_steps=save,
            save_summaries_steps=None,
            log_step_count_steps=None,
        ) as session:
            while not (is_asked and session.should_stop()):
                with session.iteration():
                    rollout = []
                    for _ in range(PLAYED):
                        rollout.append(session.run(act, hooks=False))
                        count()
                    for _ in range(PASSES):
                        session.run("train_op", {"rollout": np.array(rollout)})
                        count()
                made += 1
            weights = session.run("weights", hooks=False).tolist()
    return made, weights


if __name__ == "__main__":
    print(json.dumps(train(**json.loads(Path(sys.argv[1]).read_text()))))
