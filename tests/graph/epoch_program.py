"""A training over epochs that writes what it sees in each step; it may be killed at any of them.

``python epoch_program.py CASE.json``: the file has the arguments of ``train``.
"""

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np

import runhooks as rh

#: Batches of 7 examples, two by two: an epoch has four steps, and the last one a single example.
EXAMPLES = (np.arange(7, dtype=np.float32) ** 2) / np.float32(10)
BATCHES = [EXAMPLES[i : i + 2] for i in range(0, 7, 2)]
LENGTH = len(BATCHES)


class WithoutLength:
    """The batches, from an iterable that does not say how many there are."""

    def __iter__(self):
        return iter(BATCHES)


class StatefulWithoutLength(WithoutLength):
    """The same, and it knows its position."""

    def __init__(self):
        self.position = 0

    def __iter__(self):
        while self.position < LENGTH:
            self.position += 1
            yield BATCHES[self.position - 1]
        self.position = 0

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


def torch_loader(workers=0, make=None):
    import torch
    from torch.utils.data import DataLoader

    torch.manual_seed(7)
    return (make or DataLoader)(
        torch.tensor(EXAMPLES),
        batch_size=2,
        shuffle=True,
        num_workers=workers,
        collate_fn=as_array,
    )


def as_array(examples):
    return np.array([float(it) for it in examples], np.float32)


def stateful_loader():
    from torchdata.stateful_dataloader import StatefulDataLoader

    return torch_loader(make=StatefulDataLoader)


def grain_data():
    import grain

    return grain.MapDataset.source(EXAMPLES).shuffle(seed=3).batch(2).to_iter_dataset()


def batches_from(step):
    while True:
        yield BATCHES[step % LENGTH]
        step += 1


#: What is given to the graph, by the name of the kind of source.
SOURCES = {
    "list": lambda: {"data": BATCHES},
    "array": lambda: {"data": EXAMPLES.reshape(7, 1)[:LENGTH]},
    "loader": lambda: {"data": torch_loader()},
    "workers": lambda: {"data": torch_loader(workers=2)},
    "stateful": lambda: {"data": stateful_loader()},
    "grain": lambda: {"data": grain_data()},
    "no length": lambda: {"data": WithoutLength()},
    "stateful without length": lambda: {"data": StatefulWithoutLength()},
    "function": lambda: {"data": batches_from, "steps_per_epoch": LENGTH},
    "fed": lambda: {"steps_per_epoch": LENGTH},
}
#: Those that have no length to be divided.
UNDIVIDED = {"no length", "stateful without length", "grain"}


def train_step(total, batch):
    """Add the sum of the batch; the loss is its mean."""
    return 0.5 * total + batch.sum(), {"loss": batch.mean()}


class Notes:
    """What a training has seen, one line for each step, in a file that outlives a kill."""

    def __init__(self, path):
        self.path, self.called = path, []

    def hook(self, number, trigger, mean):
        def note(**values):
            told = {name: np.asarray(it).item() for name, it in values.items()}
            self.called.append([number, told])

        tensors = {"epoch": "epoch", "loss": "loss", "mean": mean}
        return rh.CallHook(note, tensors, trigger=rh.Trigger(**trigger), hook_name=f"note_{number}")

    def end_step(self, step, epoch, loss):
        line = json.dumps([step, epoch, np.asarray(loss).item(), self.called])
        self.called = []
        with self.path.open("a") as file:
            file.write(line + "\n")


def read(path):
    """What is noted in the file ``path``: a list of [step, epoch, loss, calls of hooks]."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def train(
    source,
    triggers,
    notes,
    *,
    engine="python",
    epochs=3,
    folder=None,
    save=1,
    kill_at=None,
    last=None,
):
    """Train, and note each step; kill the process when ``kill_at`` is made and noted.

    ``source``: the kind of source. ``triggers``: the arguments of one trigger for each hook.
    ``save``: a checkpoint every so many steps. ``last``: a step after which to stop.
    """
    given = SOURCES[source]()
    notes = Notes(Path(notes))
    if "data" in given and not callable(given["data"]):
        given["epochs"] = epochs
    graph = rh.graph(train_step, total=np.float32(0), engine=engine, **given)
    last = min(last or 10**9, epochs * LENGTH)
    with graph.as_default():
        mean = rh.epoch_mean("loss")
        hooks = [notes.hook(i, it, mean) for i, it in enumerate(triggers)]
        hooks.append(rh.StopAtStepHook(last_step=last))
        with rh.MonitoredTrainingSession(
            checkpoint_dir=folder,
            hooks=hooks,
            save_checkpoint_steps=save,
            save_summaries_steps=None,
            log_step_count_steps=None,
        ) as session:
            while not session.should_stop():
                feeds = None
                if "data" not in given:
                    feeds = {graph["batch"]: BATCHES[session.global_step % LENGTH]}
                _, loss = session.run(["train_op", "loss"], feeds)
                notes.end_step(session.global_step, session.epoch, loss)
                if session.global_step == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    train(**json.loads(Path(sys.argv[1]).read_text()))
