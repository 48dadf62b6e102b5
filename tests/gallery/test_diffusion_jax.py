"""diffusion_jax.py: averaged weights, and samples as pictures."""

import pickle

import numpy as np
import pytest
from PIL import Image

import runhooks as rh
from tests.gallery.programs import as_bytes, check_resumed, check_shorter

pytestmark = pytest.mark.slow

NAME = "diffusion_jax"


@pytest.fixture(scope="module")
def runs(jax_runs):
    kill = "Batches.__iter__", 37  # of 66 steps, 22 an epoch: between two saves
    return jax_runs(NAME, kill, "--epochs=3", "--save-steps=10")


def test_its_bits_are_those_of_the_plain_loop(runs):
    plain = pickle.loads((runs.plain / "last.pickle").read_bytes())
    assert as_bytes(plain["params"]) == as_bytes(rh.load(runs.hooked, "params"))
    assert as_bytes(plain["averages"]) == as_bytes(rh.load(runs.hooked, "ema/params"))


def test_killed_in_mid_epoch_it_resumes_exactly(runs):
    assert list(check_resumed(runs)) == [22, 44, 66]


def test_a_picture_of_samples_is_drawn_after_each_epoch(runs):
    pictures = rh.events.read(runs.resumed)["test"].images["samples/image"]
    assert sorted(set(pictures.steps)) == [22, 44, 66]
    drawn = np.asarray(Image.open(runs.plain / "3.png"))
    assert drawn.shape == (32, 32)


def test_it_is_shorter():
    check_shorter(NAME)
