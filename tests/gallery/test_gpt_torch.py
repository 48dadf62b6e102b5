"""gpt_torch.py: micro-batches, on two ranks with DistributedDataParallel and on one process."""

import pytest
import torch

import runhooks as rh
from tests.gallery.programs import Forked, as_bytes, check_shorter

NAME = "gpt_torch"
STEPS, MICRO_BATCHES = 6, 4
ARGUMENTS = f"--steps={STEPS}", "--log-interval=2", "--test-steps=3", "--save-steps=2"


@pytest.fixture(scope="module")
def folder(launcher_with, tmp_path_factory):
    """The directories of all runs."""
    modules = "torch.distributed", "torch._dynamo", "torch.nn.parallel", "pydoc_data.topics"
    more = "runhooks.training", "runhooks.engines.torch.graph", "runhooks.hooks.evaluation"
    launcher = launcher_with(*modules, *more, OMP_NUM_THREADS="1")
    folder = tmp_path_factory.mktemp(NAME)
    programs = Forked(launcher, folder)
    # In the third micro-batch of step 5, behind those before it and the one of the test.
    kill = "loss_of", 4 * MICRO_BATCHES + 1 + 3
    killed = programs.start(NAME, folder / "resumed", *ARGUMENTS, ranks=2, kill=kill)
    others = [
        programs.start(NAME, folder / f"{loop}-{ranks}", *words, *ARGUMENTS, ranks=ranks)
        for ranks in (1, 2)
        for loop, words in (("plain", ["--plain"]), ("hooked", []))
    ]
    (first, text), (second, _) = programs.ends(killed)
    assert first != 0, text
    assert second == -9
    text = programs.printed(programs.start(NAME, folder / "resumed", *ARGUMENTS, ranks=2))
    assert any("resumed from step 4" in line for line in text)
    for it in others:
        programs.printed(it)
    return folder


def without_wrapper(weights):
    return {name.removeprefix("module."): it for name, it in weights.items()}


@pytest.mark.parametrize("ranks", [1, 2])
def test_its_bits_are_those_of_the_plain_loop(ranks, folder):
    plain = without_wrapper(torch.load(folder / f"plain-{ranks}" / "last.pt")["model"])
    assert as_bytes(plain) == as_bytes(rh.load(folder / f"hooked-{ranks}", "model"))


def test_its_ranks_add_up_their_gradients(folder):
    alone, both = (rh.load(folder / f"hooked-{ranks}", "model") for ranks in (1, 2))
    assert as_bytes(alone) != as_bytes(both)


def test_killed_in_a_micro_batch_and_started_again_it_ends_with_the_same_bits(folder):
    resumed, undisturbed = folder / "resumed", folder / "hooked-2"
    assert as_bytes(rh.load(resumed)) == as_bytes(rh.load(undisturbed))
    tested = rh.read_eval_metrics(undisturbed / "test")
    assert list(tested) == [3, 6]
    assert rh.read_eval_metrics(resumed / "test") == tested
    best = rh.load(resumed, "model", best="loss")
    weights = without_wrapper(torch.load(folder / "plain-2" / "best.pt"))
    assert as_bytes(best) == as_bytes(weights)


def test_its_samples_are_those_of_the_plain_loop(folder):
    samples = rh.events.read(folder / "resumed")["test"].texts["sample"]
    assert samples.steps.tolist() == [3, 6]
    for step, _, text in samples:
        assert text == (folder / "plain-2" / f"{step}.txt").read_text()


def test_it_is_shorter():
    check_shorter(NAME)
