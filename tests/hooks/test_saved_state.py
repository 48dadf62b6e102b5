"""``SavedStateHook``: what is no part of the graph comes back from the checkpoints too."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import runhooks as rh


class Random:
    """A generator of the user's own, as a state."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.random.getstate()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.random.setstate(state["state"])


class Batches:
    """A loader of the user's own: it hands out the very dict that it goes on with."""

    def __init__(self) -> None:
        self.position = {"index": 0}

    def __next__(self) -> int:
        self.position["index"] += 1
        return self.position["index"]

    def state_dict(self) -> dict[str, int]:
        return self.position

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state


def train(folder: Path, steps: int) -> list[Any]:
    """What ``steps`` steps see of both, in a program that is resumed from ``folder``."""
    noise, batches = Random(3), Batches()
    hook = rh.SavedStateHook(noise=noise, batches=batches)
    with rh.Graph().as_default():
        batch = rh.placeholder("batch")
        train_op = rh.group(batch + 0, rh.train.create_global_step().assign_add(1))
        with rh.MonitoredTrainingSession(checkpoint_dir=str(folder), hooks=[hook]) as sess:
            seen = []
            for _ in range(steps):
                seen.append((next(batches), noise.random.random()))
                sess.run(train_op, {batch: seen[-1][0]})
            return seen


def test_resumed_program_goes_on_with_the_states_of_its_checkpoint(tmp_path: Path) -> None:
    undisturbed = train(tmp_path / "undisturbed", 6)
    assert train(tmp_path / "resumed", 2) + train(tmp_path / "resumed", 4) == undisturbed


def run(*hooks: rh.SessionRunHook, **kwargs: Any) -> rh.MonitoredSession:
    return rh.MonitoredSession(hooks=hooks, **kwargs)


def raw(sess: rh.MonitoredSession) -> rh.Session:
    return sess.run_step_fn(lambda step_context: step_context.session)


def test_hooks_of_the_same_part_are_refused(graph: rh.Graph) -> None:
    hooks = [rh.SavedStateHook(batches=Batches()), rh.SavedStateHook(batches=Batches())]
    with pytest.raises(ValueError, match="'batches'"):
        run(*hooks)


def checkpoint_of(folder: Path, *hooks: rh.SessionRunHook) -> Path:
    """Make a step under ``hooks`` in a program of its own."""
    with rh.Graph().as_default():
        train_op = rh.train.get_or_create_global_step().assign_add(1)
        with rh.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks) as sess:
            sess.run(train_op)
    return folder


def test_parts_are_known_by_name_whatever_the_order_of_the_hooks(tmp_path: Path) -> None:
    one, two = Batches(), Batches()
    next(one), next(two), next(two)
    checkpoint_of(tmp_path, rh.SavedStateHook(one=one), rh.SavedStateHook(two=two))
    one, two, new = Batches(), Batches(), Batches()
    hooks = [rh.SavedStateHook(new=new), rh.SavedStateHook(two=two), rh.SavedStateHook(one=one)]
    checkpoint_of(tmp_path, *hooks)
    assert [next(one), next(two), next(new)] == [2, 3, 1]


@pytest.mark.parametrize(
    "part", [object(), None, {}, iter([1])], ids=["object", "None", "dict", "iterator"]
)
def test_part_without_a_state_is_refused_by_its_name(part: Any) -> None:
    with pytest.raises(TypeError, match=r"loader.*state_dict"):
        rh.SavedStateHook(noise=Random(0), loader=part)


def test_part_that_the_checkpoint_does_not_know_stays_as_it_is_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    batches, others = Batches(), Batches()
    checkpoint_of(tmp_path, rh.SavedStateHook(batches=batches))
    next(batches), next(others)
    with caplog.at_level(logging.WARNING, "runhooks"):
        checkpoint_of(tmp_path, rh.SavedStateHook(batches=batches, others=others))
    assert (next(batches), next(others)) == (1, 2)
    assert "for others" in caplog.text


GENERATORS = {
    "PCG64": (lambda: np.random.default_rng(3), lambda it: it.normal()),
    "MT19937": (lambda: np.random.Generator(np.random.MT19937(3)), lambda it: it.normal()),
    "RandomState": (lambda: np.random.RandomState(3), lambda it: it.normal()),
    "Random": (lambda: random.Random(3), lambda it: it.gauss(0, 1)),
    "numpy.random": (lambda: np.random, lambda it: it.normal()),
    "random": (lambda: random, lambda it: it.gauss(0, 1)),
}


@pytest.mark.parametrize("kind", GENERATORS)
def test_random_generator_goes_on_where_its_checkpoint_was_saved(kind: str, tmp_path: Path) -> None:
    make, draw = GENERATORS[kind]
    generator = make()
    checkpoint_of(tmp_path, rh.SavedStateHook(noise=generator))
    expected = [draw(generator) for _ in range(3)]
    again = make()
    with rh.Graph().as_default():
        rh.train.get_or_create_global_step()
        hooks = [rh.SavedStateHook(noise=again)]
        with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=hooks):
            assert [draw(again) for _ in range(3)] == expected
