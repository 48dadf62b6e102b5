"""classifier_torch.py: a shuffled loader, a scheduler, log lines and a test in each epoch."""

import pytest
import torch

import runhooks as rh
from tests.gallery.programs import as_bytes, check_resumed, check_shorter

NAME = "classifier_torch"


@pytest.fixture(scope="module")
def runs(torch_runs):
    kill = "train_step", 37  # of 69 steps, 23 an epoch: between two saves
    return torch_runs(NAME, kill, "--epochs=3", "--save-steps=10")


def test_its_bits_are_those_of_the_plain_loop(runs):
    plain = torch.load(runs.plain / "last.pt")
    assert as_bytes(plain["model"]) == as_bytes(rh.load(runs.hooked, "model"))
    rates = rh.events.read(runs.hooked)["."].scalars["learning_rate"]
    assert rates.values[-1] == pytest.approx(plain["optimizer"]["param_groups"][0]["lr"] / 0.7)


def test_killed_in_mid_epoch_it_resumes_exactly(runs):
    assert list(check_resumed(runs)) == [23, 46, 69]
    best = rh.best_checkpoint(runs.resumed, "accuracy")
    assert best.metrics["accuracy"] > 0.9
    weights = torch.load(runs.plain / "best.pt")
    assert as_bytes(weights) == as_bytes(rh.load(runs.resumed, "model", best="accuracy"))


def test_it_is_shorter():
    check_shorter(NAME)
