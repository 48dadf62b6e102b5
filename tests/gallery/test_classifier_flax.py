"""classifier_flax.py: keys split in the loop, epochs over permuted arrays."""

import pytest
from flax import serialization

import runhooks as rh
from tests.gallery.programs import as_bytes, check_resumed, check_shorter

pytestmark = pytest.mark.slow

NAME = "classifier_flax"


@pytest.fixture(scope="module")
def runs(jax_runs):
    kill = "Batches.__iter__", 37  # of 66 steps, 22 an epoch: between two saves
    return jax_runs(NAME, kill, "--epochs=3", "--save-steps=10")


def test_its_bits_are_those_of_the_plain_loop(runs):
    plain = serialization.msgpack_restore((runs.plain / "last.msgpack").read_bytes())
    for part in ("params", "opt_state"):
        assert as_bytes(plain["state"][part]) == as_bytes(rh.load(runs.hooked, f"state/{part}"))
    assert plain["rng"].tobytes() == rh.load(runs.hooked, "rng").tobytes()


def test_killed_in_mid_epoch_it_resumes_exactly(runs):
    tested = check_resumed(runs)
    assert list(tested) == [22, 44, 66]
    assert rh.best_checkpoint(runs.resumed, "accuracy").metrics["accuracy"] > 0.9


def test_it_is_shorter():
    check_shorter(NAME)
