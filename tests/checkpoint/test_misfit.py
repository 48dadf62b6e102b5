"""A run whose program has changed: the error says how to train on, and nothing saved is lost."""

import numpy as np
import pytest

import runhooks as rh
from runhooks import InitFrom, Saver, Scaffold


def ones(value):
    return {k: ones(it) for k, it in value.items()} if isinstance(value, dict) else value + 1


def train(directory, steps, *, scaffold=None, **initial):
    """Train until ``steps``; return what the variables are then."""
    with rh.Graph().as_default():
        model = [rh.Variable(value, name=name) for name, value in initial.items()]
        add = [it.assign_add(ones(initial[it.op.name])) for it in model]
        train_op = rh.group(rh.train.get_or_create_global_step().assign_add(1), *add)
        hooks = [rh.StopAtStepHook(last_step=steps)]
        with rh.MonitoredTrainingSession(
            checkpoint_dir=directory, hooks=hooks, scaffold=scaffold, save_summaries_steps=None
        ) as session:
            while not session.should_stop():
                session.run(train_op)
            return session.run(dict(zip(initial, model, strict=True)), hooks=False)


@pytest.fixture
def trained(tmp_path):
    """A directory with checkpoints of the steps 0 and 2."""
    train(tmp_path / "old", 2, model=np.zeros(3), opt=np.zeros(2))
    return tmp_path / "old"


def test_another_optimizer_begins_with_the_weights_in_a_new_directory(trained, tmp_path):
    with pytest.raises(ValueError, match="opt") as caught:
        train(trained, 4, model=np.zeros(3), opt=np.zeros(5))
    (note,) = (it for it in caught.value.__notes__ if "while restoring" in it)
    assert f"Scaffold(init_from=InitFrom('{trained}/model.ckpt-2', only=[...]))" in note
    scaffold = Scaffold(init_from=InitFrom(trained / "model.ckpt-2", only=["model"]))
    found = train(tmp_path / "new", 1, scaffold=scaffold, model=np.zeros(3), opt=np.zeros(5))
    assert found["model"].tolist() == [3, 3, 3]
    assert found["opt"].tolist() == [1, 1, 1, 1, 1]


def test_a_session_that_restores_a_part_leaves_the_whole_checkpoint_alone(trained):
    scaffold = Scaffold(saver=Saver(["model", "global_step"]))
    train(trained, 2, scaffold=scaffold, model=np.zeros(3), opt=np.zeros(5))
    assert {*rh.load(trained, step=2)} == {"global_step", "model", "opt"}
    train(trained, 3, scaffold=scaffold, model=np.zeros(3), opt=np.zeros(5))
    assert {*rh.load(trained, step=2)} == {"global_step", "model", "opt"}
    assert rh.load(trained, "model").tolist() == [3, 3, 3]
