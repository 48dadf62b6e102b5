"""No checkpoint is deleted before its time or kept longer, however the directory is spelled."""

from pathlib import Path

import pytest
import tensorflow

from runhooks.tensorflow import train

tf = tensorflow.compat.v1

SPELLINGS = [("./ck", "ck"), ("ck", "./ck"), ("x/../ck", "ck/"), ("ck", "{here}/ck")]


def run_until(last_step, library, directory):
    with tensorflow.Graph().as_default():
        train_op = tf.train.get_or_create_global_step().assign_add(1)
        session = library.MonitoredTrainingSession(
            checkpoint_dir=directory,
            scaffold=library.Scaffold(saver=tf.train.Saver(max_to_keep=2)),
            hooks=[library.StopAtStepHook(last_step=last_step)],
            save_checkpoint_secs=None,
            save_checkpoint_steps=1,
            save_summaries_steps=None,
            log_step_count_steps=None,
        )
        with session:
            while not session.should_stop():
                session.run(train_op)


def kept(directory):
    return sorted(path.stem for path in Path(directory).glob("*.index"))


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "x").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("one", "other"), SPELLINGS)
@pytest.mark.parametrize("libraries", [(train, train), (tf.train, train), (train, tf.train)])
def test_resumed_under_another_spelling(libraries, one, other, here):
    first, second = libraries
    other = one if second is tf.train else other  # which spells no path anew
    run_until(3, first, one.format(here=here))
    assert kept("ck") == ["model.ckpt-2", "model.ckpt-3"]
    run_until(4, second, other.format(here=here))
    assert kept("ck") == ["model.ckpt-3", "model.ckpt-4"]


def run_with_own_saver(num_steps, folder, max_to_keep=3, basename="model.ckpt", restore=None):
    """Save every 3 steps with a saver that is the hook's alone; return the first step."""
    with tensorflow.Graph().as_default():
        step = tf.train.get_or_create_global_step()
        train_op = tf.assign_add(step, 1)
        saver = tf.train.Saver(max_to_keep=max_to_keep)
        hooks = [
            train.CheckpointSaverHook(
                folder, save_steps=3, saver=saver, checkpoint_basename=basename
            ),
            train.StopAtStepHook(num_steps=num_steps),
        ]
        restored = folder if restore is None else restore
        with train.SingularMonitoredSession(hooks=hooks, checkpoint_dir=restored) as session:
            begun = session.global_step
            while not session.should_stop():
                session.run(train_op)
    return begun


def listed(folder):
    return [Path(p).name for p in tf.train.get_checkpoint_state(folder).all_model_checkpoint_paths]


@pytest.mark.parametrize("max_to_keep", [1, 5])
def test_restarts_leave_as_many_checkpoints_as_the_saver_of_a_hook_keeps(max_to_keep, here):
    for start in range(4):
        assert run_with_own_saver(7, "ck", max_to_keep) == 7 * start
    assert len(kept("ck")) == max_to_keep
    assert sorted(listed("ck")) == kept("ck")


def test_a_restart_lists_what_a_damaged_checkpoint_falls_back_to(here):
    run_with_own_saver(7, "ck")
    run_with_own_saver(2, "ck")
    assert listed("ck") == ["model.ckpt-6", "model.ckpt-7", "model.ckpt-9"]
    for path in Path("ck").glob("model.ckpt-9.data*"):
        path.write_bytes(b"cut")
    assert run_with_own_saver(1, "ck") == 7


def test_checkpoints_that_a_session_does_not_go_on_from_are_left_alone(here):
    run_with_own_saver(7, "other")
    run_with_own_saver(4, "ck", max_to_keep=1, restore="empty")
    run_with_own_saver(1, "other", max_to_keep=1, restore="ck")
    assert {"model.ckpt-3", "model.ckpt-6", "model.ckpt-7"} < set(kept("other"))


def test_checkpoints_of_another_name_are_left_alone(here):
    run_with_own_saver(7, "ck")
    run_with_own_saver(4, "ck", max_to_keep=1, basename="later")
    assert kept("ck") == ["later-11", "model.ckpt-3", "model.ckpt-6", "model.ckpt-7"]
