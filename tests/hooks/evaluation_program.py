"""A training whose hooks act on evaluations; it may be killed, or sent a signal, in any of these.

``python evaluation_program.py CASE.json``: the file has the arguments of ``train``.
"""

import json
import math
import os
import signal
import sys
from pathlib import Path

import numpy as np

import runhooks as rh

LENGTH, TESTED = 4, 3  # steps of an epoch, batches of an evaluation
#: What the evaluations find, epoch by epoch: after the sixth, patience is at its end.
SCORES = [math.nan, 3.0, 2.0, math.nan, 2.5, 4.0, 1.0]


def train_step(total, rate, element):
    return total + rate * element, rate, {"loss": total}


def train(folder, *, save, ended_at=None, number=signal.SIGKILL):
    """Train with an evaluation in each epoch; return all that came of it.

    ``save``: a checkpoint every so many steps. ``ended_at``: the batch of evaluations, counted from
    1, in which the process is sent the signal ``number``.
    """
    tested = 0

    def test_step(total, step, batch):
        nonlocal tested
        tested += 1
        if tested == ended_at:
            os.kill(os.getpid(), number)
        return {"score": SCORES[int(step) // LENGTH - 1], "size": batch.sum() + total}

    numbers = [np.float64(i) for i in range(LENGTH)]
    graph = rh.graph(
        train_step, total=np.float64(0), rate=np.float64(1), data=numbers, epochs=len(SCORES)
    )
    with graph.as_default():
        test = rh.EvaluationHook(test_step, [np.ones(2)] * TESTED, every_n_epochs=1)
        score = test.metric("score")
        hooks = [
            rh.stop_if_no_decrease_hook(score, patience=2),
            rh.ReduceOnPlateauHook(score, "rate", factor=0.5, patience=1),
            test,
        ]
        best = rh.Saver(keep=[rh.KeepLast(2), rh.KeepBest(score, mode="min")])
        with rh.MonitoredTrainingSession(
            checkpoint_dir=folder, hooks=hooks, saver=best, save_checkpoint_steps=save
        ) as session:
            while not session.should_stop():
                session.run("train_op")
            total = float(session.run("total", hooks=False))
    found = {step: [it["score"], it["size"]] for step, it in test.metrics_by_step().items()}
    steps = sorted(int(path.name.rpartition("-")[2]) for path in Path(folder).glob("model.ckpt-*"))
    best = rh.best_checkpoint(folder, "score") if steps and len(found) > 1 else None
    return {
        "step": session.global_step,
        "why": session.stop_reason,
        "found": found,
        "total": total,
        "rate": float(rh.load(folder, "rate")),
        "steps": steps,
        "best": best and [best.step, best.metrics["score"]],
    }


if __name__ == "__main__":
    print(json.dumps(train(**json.loads(Path(sys.argv[1]).read_text()))))
