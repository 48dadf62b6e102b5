"""A training that catches the errors of elements that cannot be read; it may be killed.

``python unreadable_program.py FOLDER KILL_AT``, with workers; KILL_AT 0: at no run.
"""

import json
import sys

import numpy as np

import runhooks as rh


class Readings:
    """Six numbers, some of which cannot be read; it can be gone on with after these."""

    def __init__(self, unreadable=(2,)):
        self.unreadable, self.reads = set(unreadable), 0

    def __iter__(self):
        return _Reading(self)


class ReadingsWithLength(Readings):
    def __len__(self):
        return 6


class _Reading:
    def __init__(self, readings):
        self.readings, self.position = readings, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.position == 6:
            raise StopIteration
        self.position += 1
        self.readings.reads += 1
        return np.array([read(self.position - 1, self.readings.unreadable)])


class _StatefulReading(_Reading):
    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


class StatefulReadings(Readings):
    def __iter__(self):
        return _StatefulReading(self)


class ReadingSet:
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return read(index, {2})


def read(index, unreadable):
    if index in unreadable:
        raise OSError(f"cannot read {index}")
    return float(index)


def loader(kind=None, **arguments):
    import torch
    from torch.utils.data import DataLoader

    torch.manual_seed(2)
    return (kind or DataLoader)(ReadingSet(), 1, shuffle=True, collate_fn=np.array, **arguments)


def stateful_loader():
    from torchdata.stateful_dataloader import StatefulDataLoader

    return loader(StatefulDataLoader)


def take(total, element):
    return total + 1, {"value": element.sum()}


class KilledError(Exception):
    pass


def train(data, folder=None, kill_at=None, engine="python", caught=OSError, save=1):
    """Return what each run of two epochs has drawn, or the error, and when an epoch has ended."""
    seen = []
    graph = rh.graph(take, ["value"], engine=engine, total=0, data=data, epochs=2)
    with graph.as_default():
        hooks = [rh.CallHook(lambda: seen.append("end"), every_n_epochs=1)]
        options = {"save_summaries_steps": None, "log_step_count_steps": None}
        try:
            with rh.MonitoredTrainingSession(
                checkpoint_dir=folder, hooks=hooks, save_checkpoint_steps=save, **options
            ) as session:
                while not session.should_stop():
                    try:
                        seen.append(float(session.run(["train_op", "value"])[1]))
                    except caught as error:
                        seen.append(type(error).__name__)
                    assert len(seen) < 30, "the loop does not end"
                    if len([it for it in seen if it != "end"]) == kill_at:
                        raise KilledError
        except KilledError:
            pass
    return seen


SOURCES = {
    "iterable": Readings,
    "with a length": ReadingsWithLength,
    "stateful iterator": StatefulReadings,
    "loader": loader,
    "stateful loader": stateful_loader,
}

if __name__ == "__main__":
    print(json.dumps(train(loader(num_workers=2), sys.argv[1], int(sys.argv[2]) or None)))
