"""The mean of an epoch that was interrupted: that of ignite, and ours.

Six batches have the values 0 to 5; a training stops after three, and another one goes on from its
checkpoint. The mean of the epoch is 2.5.
"""

import logging
import warnings

import pytest
import torch
from torch.utils.data import DataLoader

import runhooks as rh

pytestmark = pytest.mark.filterwarnings("ignore")

VALUES = [float(it) for it in range(6)]
MEAN = 2.5


def ours(folder, stop):
    """The means that a hook has found at the ends of epochs."""
    found = []
    model = torch.nn.Linear(1, 1)
    graph = rh.torch.graph(
        lambda batch: {"loss": batch.mean()}, ["loss"], data=DataLoader(VALUES), model=model
    )
    with graph.as_default():
        hooks = [
            rh.CallHook(found.append, [rh.epoch_mean("loss")], every_n_epochs=1),
            rh.StopAtStepHook(last_step=stop),
        ]
        with rh.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks) as session:
            while not session.should_stop():
                session.run("train_op")
    return [float(it) for it in found]


def of_ignite(folder, stop):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ignite.engine import Engine, Events
        from ignite.metrics import Average
    found, path = [], folder / "ignite.pt"
    engine = Engine(lambda engine, batch: float(batch))
    engine.logger.setLevel(logging.CRITICAL)
    Average().attach(engine, "mean")
    engine.add_event_handler(
        Events.EPOCH_COMPLETED, lambda it: found.append(float(it.state.metrics["mean"]))
    )

    def save(engine):
        torch.save(engine.state_dict(), path)
        engine.terminate()

    if path.exists():
        engine.load_state_dict(torch.load(path))
    if stop < len(VALUES):
        engine.add_event_handler(Events.ITERATION_COMPLETED(once=stop), save)
        engine.run(DataLoader(VALUES), max_epochs=1)
        return []  # it was terminated
    engine.run(DataLoader(VALUES), max_epochs=1)
    return found


def test_ours_is_the_mean_of_the_epoch(tmp_path):
    assert ours(tmp_path, 3) == []
    assert ours(tmp_path, 100) == [MEAN]


def test_that_of_ignite_counts_the_elements_since_the_resume(tmp_path):
    """It keeps no sums. Should it do so one day, this test fails."""
    pytest.importorskip("ignite")
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    assert of_ignite(undisturbed, 100) == [MEAN]
    assert of_ignite(tmp_path, 3) == []
    assert of_ignite(tmp_path, 100) == [1.0]
