"""``training_program.py DIRECTORY LAST_STEP [asynchronous]``: trains, and prints each step done."""

import sys

import numpy as np

import runhooks as rh


def train_step(weights, rng):
    weights = weights + rng.normal(size=3)
    return weights, {"loss": np.mean(weights**2), "weights": weights}


def main(directory, last_step, asynchronous=""):
    graph = rh.graph(train_step, weights=np.zeros(3))
    with graph.as_default():
        rh.summary.scalar("loss")
        rh.summary.histogram("weights")
        session = rh.MonitoredTrainingSession(
            checkpoint_dir=directory,
            hooks=[rh.StopAtStepHook(last_step=int(last_step))],
            scaffold=rh.Scaffold(saver=rh.Saver(asynchronous=bool(asynchronous))),
            save_checkpoint_steps=5,
            save_summaries_steps=1,
            log_step_count_steps=None,
        )
        with session:
            while not session.should_stop():
                session.run("train_op")
                print(session.global_step, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
