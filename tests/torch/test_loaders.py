"""Shuffled loaders of PyTorch in a training that draws random numbers too: resumed bit for bit."""

import logging
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

import runhooks as rh

LAST_STEP = 14


def train(directory, stop, *, accumulates=False, has_generator=False):
    """Train to the step ``stop``; return what each run was given, and the weights at the end."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(torch.arange(16.0)[:, None], torch.zeros(16))
    generator = torch.Generator().manual_seed(5) if has_generator else None
    loader = DataLoader(data, batch_size=2, shuffle=True, generator=generator)
    validation = DataLoader(data, batch_size=4, shuffle=True, generator=generator)
    seen = []

    def accumulate(x, y):
        seen.append(x.flatten().tolist())
        model(x).sum().backward()

    def update(x, y):
        accumulate(x, y)
        optimizer.step()
        optimizer.zero_grad()

    graph = rh.torch.Graph(model=model, optimizer=optimizer)
    with graph.as_default():
        batch = rh.inputs(loader, 2, epochs=4)
        if accumulates:
            rh.torch.step(accumulate, name="accumulate", counts=False, args=batch)
        rh.torch.step(update, args=batch)
        x, y = rh.inputs(validation, 2, name="validation")
        mean = rh.call(lambda x, y: model(x).mean(), x, y)
        hooks = [
            rh.StopAtStepHook(last_step=stop),
            rh.EvaluationHook({"mean": mean}, every_n_steps=4),
        ]
        with rh.MonitoredTrainingSession(checkpoint_dir=directory, hooks=hooks) as session:
            while not session.should_stop():
                if accumulates:
                    session.run("accumulate")
                session.run("train_op")
    return seen, model[1].weight.item()


@pytest.mark.parametrize("has_generator", [False, True])
@pytest.mark.parametrize("accumulates", [False, True])
def test_run_stopped_in_a_later_epoch_goes_on_in_its_order(accumulates, has_generator, tmp_path):
    options = {"accumulates": accumulates, "has_generator": has_generator}
    undisturbed, weight = train(tmp_path / "undisturbed", LAST_STEP, **options)
    before, _ = train(tmp_path / "stopped", 10, **options)
    after, resumed_weight = train(tmp_path / "stopped", LAST_STEP, **options)
    assert before + after == undisturbed
    assert resumed_weight == weight


def test_input_that_evaluations_begin_anew_is_not_said_to_be_at_its_end(tmp_path, caplog):
    train(tmp_path, 5)
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="runhooks"):
        train(tmp_path, 9)
    assert caplog.messages == []


@pytest.mark.slow
def test_signal_to_the_whole_group_loses_no_step(torch_launcher, tmp_path):
    def train(folder, moment):
        log, program = tmp_path / "log", Path(__file__).with_name("group_program.py")
        process = torch_launcher.start(log, program, tmp_path / folder, moment)
        assert torch_launcher.wait(process) == 0, log.read_text()
        return log.read_text().splitlines()[-1].split("; ")

    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(32, 2)), 4, shuffle=True)
    for _ in range(2):
        for (batch,) in loader:
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
    assert train("killed", "step")[:2] == ["4", "SIGTERM"]
    assert train("killed", "start")[:2] == ["8", "SIGTERM"]
    assert train("killed", "none")[2] == str(model.weight.tolist())


VITAL = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")


def stateful_loader():
    data = TensorDataset(torch.arange(20.0))
    return StatefulDataLoader(data, 4, shuffle=True, generator=torch.Generator().manual_seed(0))


def drawn_beside_others(last, directory):
    """What is drawn from a loader through which a hook goes, too, every two steps."""
    loader, seen = stateful_loader(), []
    step = lambda batch: seen.append(batch[0].tolist())  # noqa: E731
    with rh.torch.graph(step, data=loader, epochs=3, model=nn.Linear(1, 1)).as_default():
        through = rh.CallHook(lambda: list(loader), every_n_steps=2)
        rh.train.train("train_op", directory, [rh.StopAtStepHook(last_step=last), through])
    return seen


@VITAL
@pytest.mark.parametrize("last", [3, 7])
def test_a_stateful_loader_that_others_go_through_is_resumed_where_the_training_was(last, tmp_path):
    undisturbed = drawn_beside_others(15, tmp_path / "undisturbed")
    before = drawn_beside_others(last, tmp_path / "stopped")
    assert before + drawn_beside_others(15, tmp_path / "stopped") == undisturbed


@VITAL
def test_a_stateful_loader_of_the_training_is_none_for_an_evaluation():
    loader = stateful_loader()
    graph = rh.torch.graph(lambda batch: None, data=loader, model=nn.Linear(1, 1))
    with graph.as_default():
        test = rh.EvaluationHook(lambda batch: {"mean": batch[0].mean()}, loader, every_n_steps=2)
        with pytest.raises(ValueError, match="data must be a loader of its own"):
            rh.train.train("train_op", hooks=[test])


@pytest.mark.parametrize(("batch_size", "warns"), [(4, False), (8, True)])
def test_another_batch_size_is_noticed_on_resume(batch_size, warns, caplog, tmp_path):
    def draw(batch_size, runs):
        data = DataLoader(torch.arange(40.0), batch_size)
        graph = rh.torch.graph(lambda x: None, data=data, model=nn.Linear(1, 1))
        session = rh.Session(graph)
        if path := rh.train.latest_checkpoint(tmp_path):
            rh.Saver().restore(session, path)
        for _ in range(runs):
            session.run("train_op")
        rh.Saver().save(session, tmp_path / "model.ckpt")

    draw(4, 5)
    draw(batch_size, 0)
    draw(batch_size, 0)  # the position of an input from which nothing was drawn is kept
    message = "'data' skips or repeats elements: it had 10 in an epoch until step 5, and has 5 now"
    assert (message in caplog.text) == warns


def test_another_batch_size_after_a_whole_epoch_is_no_matter(caplog, tmp_path):
    def session(batch_size):
        data = DataLoader(torch.arange(8.0), batch_size)
        return rh.Session(rh.torch.graph(lambda x: None, data=data, epochs=2, model=nn.Identity()))

    first, again = session(4), session(2)
    for _ in range(2):
        first.run("train_op")
    rh.Saver().restore(again, rh.Saver().save(first, tmp_path / "model.ckpt"))
    for _ in range(4):
        again.run("train_op")
    with pytest.raises(rh.errors.OutOfRangeError):
        again.run("train_op")
    assert "skips or repeats" not in caplog.text
