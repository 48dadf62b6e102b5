"""gpt_torch.py: micro-batches, on one process, and on two ranks with DistributedDataParallel."""

import pytest
import torch

import runhooks as rh
from tests.gallery.programs import as_bytes, check_resumed, check_shorter

pytestmark = pytest.mark.slow

NAME = "gpt_torch"


@pytest.fixture(scope="module", params=[1, 2], ids=["one process", "two ranks"])
def runs(request, torch_runs):
    # In the third micro-batch of step 5, behind 4 in each step before it, and the one of the test.
    kill = "loss_of", 4 * 4 + 1 + 3
    arguments = "--steps=6", "--test-steps=3", "--save-steps=2"
    return torch_runs(NAME, kill, *arguments, ranks=request.param)


def weights_in(file):
    kept = torch.load(file)
    return {name.removeprefix("module."): it for name, it in kept.get("model", kept).items()}


def test_its_bits_are_those_of_the_plain_loop(runs):
    assert as_bytes(weights_in(runs.plain / "last.pt")) == as_bytes(rh.load(runs.hooked, "model"))


def test_killed_in_a_micro_batch_and_started_again_it_ends_with_the_same_bits(runs):
    assert list(check_resumed(runs)) == [3, 6]
    best = rh.load(runs.resumed, "model", best="loss")
    assert as_bytes(weights_in(runs.plain / "best.pt")) == as_bytes(best)


def test_its_samples_are_those_of_the_plain_loop(runs):
    samples = rh.events.read(runs.resumed)["test"].texts["sample"]
    assert samples.steps.tolist() == [3, 6]
    for step, _, text in samples:
        assert text == (runs.plain / f"{step}.txt").read_text()


def test_it_is_shorter():
    check_shorter(NAME)
