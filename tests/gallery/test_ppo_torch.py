"""ppo_torch.py: rollouts and several passes over each, in iterations; killed in both."""

import pytest
import torch

import runhooks as rh
from tests.gallery.programs import as_bytes, check_same_end, check_shorter

pytestmark = pytest.mark.slow

NAME = "ppo_torch"
ITERATIONS, STEPS, LENGTH = 6, 20, 32


@pytest.fixture(scope="module")
def runs(torch_runs):
    rollout = "CartPoles.push", 3 * LENGTH + 10  # in that of the fourth iteration
    passes = "train_step", 3 * STEPS + 10  # in those over that of the sixth: it began at the third
    save = "--save-steps=25"  # when the second, the fourth and the sixth end
    return torch_runs(NAME, (*rollout, *passes), f"--iterations={ITERATIONS}", save)


def test_its_bits_are_those_of_the_plain_loop(runs):
    plain = torch.load(runs.plain / "last.pt", weights_only=False)
    assert as_bytes(plain["agent"]) == as_bytes(rh.load(runs.hooked, "agent"))


def test_killed_in_a_rollout_and_in_the_passes_over_one_it_resumes_exactly(runs):
    check_same_end(runs)
    assert len(runs.printed) == ITERATIONS
    assert len(runs.printed_again) == ITERATIONS + 2  # the third and the fifth twice


def test_the_mean_return_of_each_iteration_is_written(runs):
    returns = rh.events.read(runs.resumed)["."].scalars["mean_return"]
    assert returns.steps.tolist() == [1 + STEPS * it for it in range(ITERATIONS)]
    undisturbed = rh.events.read(runs.hooked)["."].scalars["mean_return"]
    assert returns.values.tolist() == undisturbed.values.tolist()
    assert returns.values[-1] > returns.values[0]


def test_it_is_shorter():
    check_shorter(NAME)
