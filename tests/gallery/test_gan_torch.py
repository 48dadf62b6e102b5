"""gan_torch.py: two models trained in turn, in iterations of several runs."""

import pytest
import torch

import runhooks as rh
from tests.gallery.programs import as_bytes, check_resumed, check_shorter, pictures, pixels_of

pytestmark = pytest.mark.slow

NAME = "gan_torch"


@pytest.fixture(scope="module")
def runs(torch_runs):
    kill = "discriminator_step", 46  # of 84, 2 in each iteration, 28 in each epoch: in the second
    return torch_runs(NAME, kill, "--epochs=3", "--save-steps=5")


def test_its_bits_are_those_of_the_plain_loop(runs):
    plain = torch.load(runs.plain / "last.pt")
    for model in ("generator", "discriminator"):
        assert as_bytes(plain[model]) == as_bytes(rh.load(runs.hooked, model))


def test_killed_in_mid_iteration_it_resumes_exactly(runs):
    assert list(check_resumed(runs)) == [14, 28, 42]
    assert [line.partition(":")[0] for line in runs.printed] == ["epoch 1", "epoch 2", "epoch 3"]


def test_both_losses_are_written(runs):
    scalars = rh.events.read(runs.resumed)["."].scalars
    for loss in ("d_loss", "g_loss"):
        assert scalars[loss].steps.tolist() == [1, 11, 21, 31, 41]


def test_its_pictures_are_those_of_the_plain_loop(runs):
    drawn = pictures(rh.events.read(runs.resumed)["test"].images["made/image/0"])
    assert list(drawn) == [14, 28, 42]
    for epoch, picture in enumerate(drawn.values(), 1):
        assert (picture == pixels_of(runs.plain / f"{epoch}.png")).all()


def test_it_is_shorter():
    check_shorter(NAME)
