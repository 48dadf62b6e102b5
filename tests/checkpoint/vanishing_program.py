"""Reads checkpoints that a training deletes meanwhile, at each moment at which it may.

``python vanishing_program.py FOLDER`` prints, for each way to read, all that it has found.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np

import runhooks as rh

ACCURACY = {1: 0.5, 2: 0.9, 3: 0.7, 4: 0.95, 5: 0.97}
TOUCHES = {"open", "os.listdir", "os.scandir"}


class Accuracy:
    name = "accuracy"

    def by_step(self):
        return ACCURACY

    def next_due(self):
        raise NotImplementedError


class Training:
    """Keeps the best and the newest of its checkpoints in ``folder``, which has two of them."""

    def __init__(self, folder):
        self.folder = folder
        self._saver = rh.Saver(keep=[rh.KeepLast(1), rh.KeepBest(Accuracy())])
        self._steps = iter(ACCURACY)
        for _ in range(3):
            self.save()

    def save(self):
        step = next(self._steps)
        with rh.Graph().as_default(), rh.Session() as session:
            rh.Variable(np.float32(step), name="w")
            session.run(rh.train.get_or_create_global_step().assign_add(step))
            self._saver.save(session, self.folder / "model.ckpt", step)


def look(event, arguments):
    """Let the training save, and delete, before its folder is touched the next time."""
    global moments, training
    if training is None or event not in TOUCHES or not isinstance(arguments[0], str | os.PathLike):
        return
    if str(training.folder) in os.fspath(arguments[0]):
        moments += 1
        if moments in (moment, moment + between):
            now, training = training, None
            now.save()
            training = now


def everywhere(read, folder):
    """Yield what ``read`` finds if the training saves at a moment, and again a little later."""
    global moments, moment, between, training
    for moment in range(1, 100):
        for between in range(1, 6):
            moments = 0
            training = made = Training(folder / f"{moment}-{between}")
            try:
                found = int(read(made.folder))
            except rh.errors.NotFoundError as error:
                found = str(error).replace(str(made.folder), "")
            training = None
            yield found
            if moments < moment:
                return


if __name__ == "__main__":
    training = None
    moments = moment = between = 0
    sys.addaudithook(look)
    reads = {
        "best": lambda folder: rh.load(folder, "w", best="accuracy"),
        "newest": lambda folder: rh.load(folder, "w"),
        "step": lambda folder: rh.load(folder, "w", step=2),
    }
    for name, read in reads.items():
        found = {*everywhere(read, Path(sys.argv[1], name))}
        print(json.dumps({name: sorted(found, key=str)}))
