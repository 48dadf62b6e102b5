"""word_lm_torch.py: a hidden state carried from batch to batch, a rate that is annealed."""

import pytest
import torch

import runhooks as rh
from tests.gallery.programs import as_bytes, check_resumed, check_shorter

pytestmark = pytest.mark.slow

NAME = "word_lm_torch"


@pytest.fixture(scope="module")
def runs(torch_runs):
    kill = "train_step", 67  # of 87 steps, 29 an epoch: in the third, with the lower rate
    words = "--epochs=3", "--save-steps=10", "--lr=40", "--seed=3"
    return torch_runs(NAME, kill, *words)


def test_its_bits_are_those_of_the_plain_loop(runs):
    plain = torch.load(runs.plain / "last.pt")
    assert as_bytes(plain["model"]) == as_bytes(rh.load(runs.hooked, "model"))
    best = torch.load(runs.plain / "best.pt")
    assert as_bytes(best) == as_bytes(rh.load(runs.hooked, "model", best="loss"))


def test_killed_in_mid_epoch_it_resumes_exactly(runs):
    assert list(check_resumed(runs)) == [29, 58, 87]


def test_the_rate_is_annealed_where_the_validation_gets_no_better(runs):
    reports = [it for it in runs.printed if "perplexity" in it]
    rates = [float(it.rpartition(" ")[2]) for it in reports]
    assert rates == [40.0, 40.0, 10.0]


def test_it_is_shorter():
    check_shorter(NAME)
