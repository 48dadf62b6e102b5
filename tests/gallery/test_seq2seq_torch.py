"""seq2seq_torch.py: buckets of lengths, teacher forcing at random, samples as text."""

import pytest
import torch

import runhooks as rh
from tests.gallery.programs import as_bytes, check_resumed, check_shorter

pytestmark = pytest.mark.slow

NAME = "seq2seq_torch"


@pytest.fixture(scope="module")
def runs(torch_runs):
    kill = "train_step", 47  # between two saves, in the second epoch
    return torch_runs(NAME, kill, "--epochs=3", "--save-steps=10")


def test_its_bits_are_those_of_the_plain_loop(runs):
    plain = torch.load(runs.plain / "last.pt")
    assert as_bytes(plain["model"]) == as_bytes(rh.load(runs.hooked, "model"))


def test_killed_in_mid_epoch_it_resumes_exactly(runs):
    assert list(check_resumed(runs)) == [34, 68, 102]


def test_its_samples_are_those_of_the_plain_loop(runs):
    samples = rh.events.read(runs.resumed)["test"].texts["samples"]
    assert sorted(set(samples.steps)) == [34, 68, 102]
    for epoch, point in enumerate(samples, 1):
        assert point.value == (runs.plain / f"samples_{epoch}.txt").read_text()


def test_it_is_shorter():
    check_shorter(NAME)
