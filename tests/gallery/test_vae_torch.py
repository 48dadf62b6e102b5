"""vae_torch.py: pictures of reconstructions and of samples in each epoch."""

import pytest
import torch

import runhooks as rh
from tests.gallery.programs import as_bytes, check_resumed, check_shorter, pictures, pixels_of

pytestmark = pytest.mark.slow

NAME = "vae_torch"


@pytest.fixture(scope="module")
def runs(torch_runs):
    kill = "train_step", 37  # of 69 steps, 23 an epoch: between two saves
    return torch_runs(NAME, kill, "--epochs=3", "--save-steps=10")


def test_its_bits_are_those_of_the_plain_loop(runs):
    plain = torch.load(runs.plain / "last.pt")
    assert as_bytes(plain["model"]) == as_bytes(rh.load(runs.hooked, "model"))


def test_killed_in_mid_epoch_it_resumes_exactly(runs):
    assert list(check_resumed(runs)) == [23, 46, 69]


@pytest.mark.parametrize("what", ["reconstructed", "sampled"])
def test_its_pictures_are_those_of_the_plain_loop(what, runs):
    drawn = pictures(rh.events.read(runs.resumed)["test"].images[f"{what}/image/0"])
    assert list(drawn) == [23, 46, 69]
    for epoch, picture in enumerate(drawn.values(), 1):
        assert (picture == pixels_of(runs.plain / f"{what}_{epoch}.png")).all()


def test_it_is_shorter():
    check_shorter(NAME)
