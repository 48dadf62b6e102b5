"""metrics_nnx.py: metric objects of nnx, which are reset at each epoch."""

import pytest
from flax import serialization

import runhooks as rh
from tests.gallery.programs import as_bytes, check_resumed, check_shorter

pytestmark = pytest.mark.slow

NAME = "metrics_nnx"


@pytest.fixture(scope="module")
def runs(jax_runs):
    kill = "Batches.__iter__", 37  # of 66 steps, 22 an epoch: between two saves
    return jax_runs(NAME, kill, "--epochs=3", "--save-steps=10")


def test_its_bits_are_those_of_the_plain_loop(runs):
    plain = serialization.msgpack_restore((runs.plain / "last.msgpack").read_bytes())
    model = rh.load(runs.hooked, "model")
    del model["dropout"]["rngs"]["key"]  # which the plain loop does not save
    assert as_bytes(plain["0"]) == as_bytes(model)
    assert as_bytes(plain["1"]) == as_bytes(rh.load(runs.hooked, "optimizer"))


def test_killed_in_mid_epoch_it_resumes_exactly(runs):
    assert list(check_resumed(runs)) == [22, 44, 66]


def test_it_is_shorter():
    check_shorter(NAME)
