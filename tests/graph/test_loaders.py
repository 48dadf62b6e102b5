"""The loaders that people have, torchdata's and grain's, as inputs: resumed inside an epoch."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import runhooks as rh

# Torchdata calls what torch no longer wants to be called.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")

SIZE, BATCH = 24, 3

# Run by itself: worker processes are forked, which a process with JAX in it should not be.
WITH_WORKERS = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import test_loaders
test_loaders.check_resumed(lambda: test_loaders.torch_loader(num_workers=2), Path(sys.argv[2]))
"""


def torch_loader(**kwargs):
    import torch
    from torchdata.stateful_dataloader import StatefulDataLoader

    torch.manual_seed(0)
    data = torch.arange(SIZE)
    return StatefulDataLoader(data, batch_size=BATCH, shuffle=True, **kwargs)


def torch_loader_with_generator():
    import torch

    generator = torch.Generator()
    generator.manual_seed(7)
    return torch_loader(generator=generator)


def grain_loader():
    import grain.python as grain

    sampler = grain.IndexSampler(SIZE, seed=3, shuffle=True, num_epochs=2)
    batched = [grain.Batch(BATCH)]
    return grain.DataLoader(data_source=range(SIZE), sampler=sampler, operations=batched)


def grain_dataset():
    import grain.python as grain

    return grain.MapDataset.range(SIZE).shuffle(seed=3).repeat(2).batch(BATCH)


def grain_iterator():
    return iter(grain_dataset().to_iter_dataset())


class Repeated:
    """Epoch after epoch of a loader, in an order of its own each."""

    def __init__(self, loader):
        self.loader = loader
        self.state_dict, self.load_state_dict = loader.state_dict, loader.load_state_dict

    def __iter__(self):
        while True:
            yield from self.loader


def program(make_loader):
    graph = rh.Graph()
    with graph.as_default():
        batch = rh.call(lambda batch: np.asarray(batch).tolist(), rh.inputs(make_loader()))
        return rh.Session(graph), batch


def check_resumed(make_loader, folder):
    """Runs, resumed from a file and undisturbed, draw the same batches to the end of the epoch."""
    sess, batch = program(make_loader)
    first = [sess.run(batch) for _ in range(3)]
    path = rh.Saver().save(sess, folder / "model.ckpt")
    expected = [sess.run(batch) for _ in range(5)]
    drawn = [number for numbers in first + expected for number in numbers]
    assert sorted(drawn) == list(range(SIZE)) != drawn, "an epoch, shuffled"
    with rh.Session(sess.graph) as replacing:
        assert [replacing.run(batch) for _ in range(3)] == first
    kept = []  # worker processes forked while old ones are garbage may take long to end
    for saved_before_the_first_run in (False, True):
        resumed, batch = program(make_loader)
        kept.append(resumed)
        rh.Saver().restore(resumed, path)
        if saved_before_the_first_run:
            rh.Saver().restore(resumed, rh.Saver().save(resumed, folder / "again.ckpt"))
        assert [resumed.run(batch) for _ in range(5)] == expected


LOADERS = [
    torch_loader,
    torch_loader_with_generator,
    lambda: Repeated(torch_loader()),
    grain_loader,
    grain_dataset,
    grain_iterator,
]


@pytest.mark.parametrize("make_loader", LOADERS)
def test_resumed_inside_an_epoch(make_loader, tmp_path):
    check_resumed(make_loader, tmp_path)


def test_resumed_inside_an_epoch_that_worker_processes_load(tmp_path):
    command = [sys.executable, "-c", WITH_WORKERS, str(Path(__file__).parent), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_resumed_run_shuffles_the_later_epochs_as_an_undisturbed_one():
    sess, batch = program(lambda: Repeated(torch_loader()))
    drawn = [sess.run(batch) for _ in range(11)]
    snapshot = sess.snapshot()
    expected = [sess.run(batch) for _ in range(13)]
    assert drawn[:8] != expected[-8:]
    resumed, batch = program(lambda: Repeated(torch_loader()))
    resumed.load(snapshot)
    assert [resumed.run(batch) for _ in range(13)] == expected


class TorchRandom:
    """The global generator of torch, as a state."""

    def state_dict(self):
        import torch

        return {"state": torch.get_rng_state()}

    def load_state_dict(self, state):
        import torch

        torch.set_rng_state(state["state"])


def train_with_dropout(steps, checkpoint_dir=None, lost_at=None):
    """What dropout by the global generator leaves of the batches of ``steps`` steps."""
    import torch

    lost = [] if lost_at is None else [lost_at]
    seen = []

    def dropout(batch, step):
        if int(step) in lost:
            lost.clear()
            raise rh.errors.AbortedError(None, None, "lost")
        return (batch * torch.bernoulli(torch.full(batch.shape, 0.5)).long()).tolist()

    with rh.Graph().as_default():
        step = rh.train.create_global_step()
        count = step.assign_add(1)
        kept = rh.call(dropout, rh.inputs(torch_loader()), step)
        hooks = [rh.SavedStateHook(torch=TorchRandom()), rh.StopAtStepHook(num_steps=steps)]
        with rh.MonitoredTrainingSession(checkpoint_dir=checkpoint_dir, hooks=hooks) as sess:
            while not sess.should_stop():
                result, _ = sess.run([kept, count])
                del seen[sess.global_step - 1 :]
                seen.append(result)
    return seen


def test_global_generator_that_loader_and_dropout_share_is_resumed_exactly(tmp_path):
    undisturbed = train_with_dropout(8)
    for steps in (3, 7):
        path = str(tmp_path / str(steps))
        resumed = train_with_dropout(steps, path) + train_with_dropout(8 - steps, path)
        assert resumed == undisturbed


@pytest.mark.parametrize("saving", [True, False])
def test_global_generator_that_loader_and_dropout_share_is_recovered_exactly(saving, tmp_path):
    checkpoint_dir = str(tmp_path) if saving else None
    assert train_with_dropout(8, checkpoint_dir, lost_at=5) == train_with_dropout(8)
