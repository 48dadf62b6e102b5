"""ppo_torch.py: rollouts and several passes over each, in iterations; killed in both."""

import pytest
import torch

import runhooks as rh
from tests.gallery.programs import Forked, Runs, as_bytes, check_same_end, check_shorter

NAME = "ppo_torch"
ITERATIONS, STEPS, LENGTH = 6, 20, 32
ARGUMENTS = f"--iterations={ITERATIONS}", "--save-steps=25"  # at the ends of 2, 4 and 6


@pytest.fixture(scope="module")
def runs(launcher_with, tmp_path_factory):
    modules = "torch._dynamo", "runhooks.training", "runhooks.engines.torch.graph"
    launcher = launcher_with(*modules, "runhooks.hooks.others", OMP_NUM_THREADS="1")
    folder = tmp_path_factory.mktemp(NAME)
    programs = Forked(launcher, folder)
    plain, hooked, resumed = (folder / it for it in ("plain", "hooked", "resumed"))
    undisturbed = programs.start(NAME, hooked, *ARGUMENTS)
    by_hand = programs.start(NAME, plain, "--plain", *ARGUMENTS)
    again = []
    for kill in (
        ("CartPoles.push", 3 * LENGTH + 30),  # in the rollout of the fourth iteration
        ("train_step", 3 * STEPS + 10),  # in the passes over that of the sixth
    ):
        ((status, text),) = programs.ends(programs.start(NAME, resumed, *ARGUMENTS, kill=kill))
        assert status == -9, text
        again += text.splitlines()
    again += programs.printed(programs.start(NAME, resumed, *ARGUMENTS))
    programs.printed(by_hand)
    printed = programs.printed(undisturbed)
    return Runs(plain, hooked, resumed, of_iterations(printed), of_iterations(again))


def of_iterations(lines):
    return [line for line in lines if line.startswith("iteration ")]


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
