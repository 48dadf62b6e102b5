"""Changes that make no step are saved at the end as well."""

import numpy as np
import pytest

import runhooks as rh


@pytest.fixture
def weights(graph):
    rh.train.get_or_create_global_step()
    return rh.Variable(np.float32(0), name="weights")


def resumed(weights, directory):
    with rh.MonitoredTrainingSession(checkpoint_dir=directory) as session:
        return session.run(weights, hooks=False), session.global_step


def test_a_loop_that_forgets_the_step_loses_nothing(weights, tmp_path):
    change = weights.assign_add(np.float32(1))
    with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path) as session:
        for _ in range(50):
            session.run(change)
    assert resumed(weights, tmp_path) == (50, 0)


def test_a_change_after_the_last_save_is_saved_at_the_end(weights, tmp_path):
    step = rh.train.get_global_step().assign_add(1)
    swap = weights.assign(np.float32(7))
    with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, save_checkpoint_steps=1) as session:
        session.run(step)
        session.run(swap, hooks=False)
    assert resumed(weights, tmp_path) == (7, 1)


def test_runs_that_change_nothing_save_nothing_again(weights, tmp_path):
    step = rh.train.get_global_step().assign_add(1)
    with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, save_checkpoint_steps=1) as session:
        session.run(step)
        before = (tmp_path / "model.ckpt-1" / "checkpoint.safetensors").stat().st_mtime_ns
        session.run(weights, hooks=False)
    assert (tmp_path / "model.ckpt-1" / "checkpoint.safetensors").stat().st_mtime_ns == before
