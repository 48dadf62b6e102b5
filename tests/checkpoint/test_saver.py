import errno
import logging
import os
from pathlib import Path

import numpy as np
import pytest

from runhooks.checkpoint import Saver, checkpoints, latest_checkpoint, restore_latest
from runhooks.testing import FakeClock


def steps(folder):
    return [int(path.rpartition("-")[2]) for path in checkpoints(folder)]


def test_saves_and_restores(tmp_path, at_step):
    sess = at_step(12)
    sess.states = {"hook": {"best": 1.5}}
    path = Saver().save(sess, tmp_path / "new" / "model.ckpt", global_step=12)
    assert path == str(tmp_path / "new" / "model.ckpt-12")
    fresh = at_step(0)
    Saver().restore(fresh, path)
    assert fresh.global_step == 12
    np.testing.assert_array_equal(fresh.arrays["weights"], sess.arrays["weights"])
    assert fresh.states == {"hook": {"best": 1.5}}


@pytest.mark.parametrize("step", [12, np.int64(12), np.array(12), "global_step"])
def test_the_step_may_be_a_number_or_a_tensor(tmp_path, at_step, step):
    path = Saver().save(at_step(12), str(tmp_path / "model.ckpt"), global_step=step)
    assert path == str(tmp_path / "model.ckpt-12")


def test_a_step_that_could_not_be_read_back_is_refused(tmp_path, at_step):
    with pytest.raises(ValueError, match="global_step"):
        Saver().save(at_step(12), tmp_path / "model.ckpt", global_step=1 << 63)


def test_without_a_step_the_path_is_as_given(tmp_path, at_step):
    assert Saver().save(at_step(3), tmp_path / "weights") == str(tmp_path / "weights")
    assert latest_checkpoint(tmp_path) == str(tmp_path / "weights")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"max_to_keep": -1}, ValueError, "max_to_keep .* -1"),
        ({"keep_checkpoint_every_n_hours": 0}, ValueError, "keep_checkpoint_every_n_hours .* 0"),
        ({"var_list": "weights"}, TypeError, "var_list .* 'weights'"),
        ({"var_list": {"old": "new"}}, TypeError, "var_list"),
    ],
)
def test_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        Saver(**arguments)


def test_keeps_the_newest_and_says_what_it_deletes(tmp_path, at_step, caplog):
    caplog.set_level(logging.DEBUG, logger="runhooks")
    saver = Saver(max_to_keep=2)
    for step in (10, 20, 30, 40):
        saver.save(at_step(step), tmp_path / "model.ckpt", global_step=step)
    assert steps(tmp_path) == [30, 40]
    assert saver.last_checkpoints == checkpoints(tmp_path)
    assert [record.message for record in caplog.records] == [
        f"deleted checkpoint {tmp_path}/model.ckpt-{step}: "
        "none of KeepLast(n=2), KeepEvery(hours=10000.0) keeps it"
        for step in (10, 20)
    ]
    assert {path.name for path in tmp_path.iterdir()} == {"model.ckpt-30", "model.ckpt-40"}


@pytest.mark.parametrize("max_to_keep", [None, 0])
def test_keeps_all_if_asked(tmp_path, at_step, max_to_keep):
    saver = Saver(max_to_keep=max_to_keep)
    for step in range(8):
        saver.save(at_step(step), tmp_path / "model.ckpt", global_step=step)
    assert steps(tmp_path) == list(range(8))


def test_a_run_that_went_back_is_resumed_where_it_went_on_from(tmp_path, at_step):
    for step in (20, 30, 11, 12):
        Saver(max_to_keep=3).save(at_step(step), tmp_path / "model.ckpt", global_step=step)
    assert steps(tmp_path) == [30, 11, 12]
    sess = at_step(0)
    restore_latest(Saver(), sess, tmp_path)
    assert sess.global_step == 12


def test_a_clock_that_is_set_back_does_not_change_the_order(tmp_path, at_step, fake_clock):
    fake_clock.advance(100)
    Saver().save(at_step(30), tmp_path / "model.ckpt", global_step=30)
    with FakeClock():
        for step in (20, 10):
            Saver().save(at_step(step), tmp_path / "model.ckpt", global_step=step)
    assert steps(tmp_path) == [30, 20, 10]


def test_each_directory_keeps_as_many(tmp_path, at_step):
    saver, folders = Saver(max_to_keep=2), (tmp_path / "a", tmp_path / "b")
    for folder in folders:
        for step in range(4):
            saver.save(at_step(step), folder / "model.ckpt", global_step=step)
    assert [steps(folder) for folder in folders] == [[2, 3], [2, 3]]
    assert saver.last_checkpoints == [path for folder in folders for path in checkpoints(folder)]


def test_other_names_in_the_directory_are_not_counted(tmp_path, at_step):
    for step in range(3):
        Saver().save(at_step(step), tmp_path / "model.ckpt-best", global_step=step)
        Saver(max_to_keep=1).save(at_step(step), tmp_path / "model.ckpt", global_step=step)
    assert {Path(path).name for path in checkpoints(tmp_path)} == {
        "model.ckpt-best-0",
        "model.ckpt-best-1",
        "model.ckpt-best-2",
        "model.ckpt-2",
    }


def test_saving_a_step_again_replaces_it(tmp_path, at_step):
    saver, sess = Saver(max_to_keep=2), at_step(1)
    saver.save(sess, tmp_path / "model.ckpt", global_step=1)
    sess.arrays["weights"] = np.full(8, 7, np.float32)
    path = saver.save(sess, tmp_path / "model.ckpt", global_step=1)
    assert saver.last_checkpoints == [path]
    fresh = at_step(0)
    saver.restore(fresh, path)
    assert fresh.arrays["weights"][0] == 7


def test_deletes_nothing_before_the_new_one_is_on_the_disk(tmp_path, at_step, monkeypatch):
    saver = Saver(max_to_keep=1)
    saver.save(at_step(1), tmp_path / "model.ckpt", global_step=1)

    def fail(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left") as error:
        patch.setattr(os, "fsync", fail)
        saver.save(at_step(2), tmp_path / "model.ckpt", global_step=2)
    assert "model.ckpt-2" in error.value.__notes__[0]
    assert [path.name for path in tmp_path.iterdir()] == ["model.ckpt-1"]
    saver.save(at_step(3), tmp_path / "model.ckpt", global_step=3)
    assert steps(tmp_path) == [3]


def test_of_one_that_is_a_link_only_the_link_is_deleted(tmp_path, at_step):
    elsewhere = Path(Saver().save(at_step(1), tmp_path / "other" / "model.ckpt", global_step=1))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model.ckpt-1").symlink_to(elsewhere)
    saver, sess = Saver(max_to_keep=1), at_step(0)
    assert restore_latest(saver, sess, tmp_path / "run") is not None
    assert sess.global_step == 1
    saver.save(at_step(2), tmp_path / "run" / "model.ckpt", global_step=2)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["model.ckpt-2"]
    assert checkpoints(elsewhere.parent) == [str(elsewhere)]


def test_one_that_cannot_be_deleted_is_named(tmp_path, at_step, monkeypatch, caplog):
    def refuse(path, missing_ok=False):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    saver = Saver(max_to_keep=1)
    saver.save(at_step(1), tmp_path / "model.ckpt", global_step=1)
    monkeypatch.setattr(Path, "unlink", refuse)
    saver.save(at_step(2), tmp_path / "model.ckpt", global_step=2)
    (warning,) = caplog.messages
    assert warning.endswith("model.ckpt-1 could not be deleted: Permission denied")
    assert steps(tmp_path) == [1, 2]


def test_one_that_was_removed_by_hand_does_no_harm(tmp_path, at_step):
    saver = Saver(max_to_keep=1)
    gone = saver.save(at_step(1), tmp_path / "model.ckpt", global_step=1)
    Path(gone).rename(tmp_path / "kept_elsewhere")
    saver.save(at_step(2), tmp_path / "model.ckpt", global_step=2)
    assert saver.last_checkpoints == [str(tmp_path / "model.ckpt-2")]
