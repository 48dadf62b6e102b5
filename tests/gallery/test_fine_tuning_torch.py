"""fine_tuning_torch.py: three trainings, each from the best weights of the one before."""

import pytest
import torch

import runhooks as rh
from tests.gallery.programs import as_bytes, check_same_end, check_shorter

pytestmark = pytest.mark.slow

NAME = "fine_tuning_torch"
TRAININGS = ["pretrained", "head", "tuned"]


@pytest.fixture(scope="module")
def runs(torch_runs):
    kill = "train_step", 3 * 19 + 10  # in the second epoch of the training of the head
    return torch_runs(NAME, kill, "--epochs=3", "--save-steps=5")


def of(runs, training):
    return runs._replace(
        plain=runs.plain / training, hooked=runs.hooked / training, resumed=runs.resumed / training
    )


@pytest.mark.parametrize("training", TRAININGS)
def test_its_bits_are_those_of_the_plain_loop(training, runs):
    plain = torch.load(runs.plain / training / "last.pt")
    assert as_bytes(plain["model"]) == as_bytes(rh.load(runs.hooked / training, "model"))


@pytest.mark.parametrize("training", TRAININGS)
def test_killed_in_mid_epoch_it_resumes_exactly(training, runs):
    check_same_end(of(runs, training))


def test_the_body_is_frozen_while_the_head_learns(runs):
    pretrained = rh.load(runs.resumed / "pretrained", "model/body", best="accuracy")
    assert as_bytes(rh.load(runs.resumed / "head", "model/body")) == as_bytes(pretrained)
    assert as_bytes(rh.load(runs.resumed / "tuned", "model/body")) != as_bytes(pretrained)


def test_it_is_shorter():
    check_shorter(NAME)
