"""Which checkpoint of a directory is the latest, and that it is restored."""

import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from runhooks.checkpoint import (
    Saver,
    Snapshot,
    checkpoint_step,
    checkpoints,
    latest_checkpoint,
    restore_latest,
    write_checkpoint,
)
from runhooks.checkpoint.format import find_checkpoints
from runhooks.errors import DataLossError, NotFoundError


def write(path, step):
    write_checkpoint(path, Snapshot({"w": np.zeros(1)}, {}), global_step=step)
    return str(path)


def test_a_directory_without_any(tmp_path):
    assert latest_checkpoint(tmp_path) is None
    assert latest_checkpoint(tmp_path / "absent") is None
    assert checkpoints(tmp_path) == []


def test_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    path = write(tmp_path / "run" / "model-3", 3)
    assert latest_checkpoint("~/run") == path
    assert checkpoint_step("~/run/model-3") == 3


def test_the_order_is_that_of_saving(tmp_path):
    paths = [write(tmp_path / f"model-{step}", step) for step in (9, 100, 20)]
    assert checkpoints(tmp_path) == paths
    assert latest_checkpoint(tmp_path) == paths[2]
    assert latest_checkpoint(str(tmp_path)) == paths[2]
    assert checkpoint_step(paths[2]) == 20


@pytest.mark.usefixtures("fake_clock")
def test_of_those_saved_at_one_moment_the_order_is_that_of_steps_and_names(tmp_path):
    saved = [("model-100", 100), ("weights", None), ("b-9", 9), ("a-9", 9)]
    paths = [write(tmp_path / name, step) for name, step in saved]
    assert checkpoints(tmp_path) == [paths[1], paths[3], paths[2], paths[0]]
    assert checkpoint_step(paths[1]) is None


def test_what_else_is_in_the_directory_is_left_alone(tmp_path):
    for name in ("model.ckpt-12.index", "model.ckpt-12.data-00000-of-00001", "checkpoint"):
        (tmp_path / name).write_bytes(b"TensorFlow's")
    (tmp_path / "images-99").mkdir()
    (tmp_path / "images-99" / "1.png").write_bytes(b"")
    (tmp_path / "model-13").mkdir()
    (tmp_path / "model-13" / "attempt-host-1-0a0a0a0a-0-checkpoint.safetensors").touch()
    (tmp_path / "plots-1").mkdir()
    (tmp_path / "gone-2").symlink_to(tmp_path / "nowhere")
    (tmp_path / "x-3").mkdir()
    (tmp_path / "x-3" / "model.safetensors").write_text("another's")
    assert find_checkpoints(tmp_path) == []


def test_an_unfinished_one_is_none(tmp_path):
    sound, unfinished = write(tmp_path / "model-1", 1), write(tmp_path / "model-2", 2)
    Path(unfinished, "checkpoint.safetensors").unlink()
    (tmp_path / "model-3").mkdir()
    assert checkpoints(tmp_path) == [sound]
    for name in ("model-2", "model-3", "model-4"):
        with pytest.raises(NotFoundError):
            checkpoint_step(tmp_path / name)


@pytest.mark.usefixtures("fake_clock")
def test_one_that_is_cut_short_is_not_complete(tmp_path):
    sound, damaged = write(tmp_path / "model-1", 1), Path(write(tmp_path / "model-2", 2))
    (damaged / "checkpoint.safetensors").write_bytes(b"")
    assert latest_checkpoint(tmp_path) == sound
    assert [it.path for it in find_checkpoints(tmp_path)] == [Path(sound), damaged]


@pytest.mark.parametrize("before", ["lstat", "open"])
@pytest.mark.parametrize("damaged", [False, True])
def test_one_that_is_removed_while_it_is_looked_at_gives_way_to_the_next(
    tmp_path, monkeypatch, before, damaged
):
    old, new = tmp_path / "model-5", tmp_path / "model-6"
    write(old, 5)
    if damaged:
        (old / "checkpoint.safetensors").write_bytes(b"")
    call = getattr(os, before)

    def late(path, *args, **kwargs):
        if isinstance(path, Path) and old in (path, path.parent):
            monkeypatch.undo()
            write(new, 6)
            shutil.rmtree(old)
        return call(path, *args, **kwargs)

    monkeypatch.setattr(os, before, late)
    assert latest_checkpoint(tmp_path) == str(new)


@pytest.fixture
def saved(tmp_path, at_step):
    """A directory with the checkpoints of the steps 10, 20 and 30."""
    for step in (10, 20, 30):
        Saver().save(at_step(step), tmp_path / "model.ckpt", global_step=step)
    return tmp_path


def truncate(path):
    os.truncate(path / "checkpoint.safetensors", 20)


def test_restores_the_newest(saved, at_step):
    sess = at_step(0)
    assert restore_latest(Saver(), sess, saved) == str(saved / "model.ckpt-30")
    assert sess.global_step == 30
    np.testing.assert_array_equal(sess.arrays["weights"], np.full(8, 30, np.float32))


def test_nothing_to_restore(tmp_path, at_step):
    assert restore_latest(Saver(), at_step(0), tmp_path) is None
    assert restore_latest(Saver(), at_step(0), tmp_path / "absent") is None


def test_the_damaged_one_is_replaced_when_its_step_comes_again(saved, at_step):
    truncate(saved / "model.ckpt-30")
    Saver().save(at_step(30), saved / "model.ckpt", global_step=30)
    assert restore_latest(Saver(), at_step(0), saved) == str(saved / "model.ckpt-30")


def test_all_damaged_is_an_error(saved, at_step):
    for path in list(saved.iterdir()):
        truncate(path)
    sess = at_step(0)
    with pytest.raises(DataLossError, match="none of the 3 checkpoints") as error:
        restore_latest(Saver(), sess, saved)
    assert error.value.path == str(saved)
    assert sess.global_step == 0


def test_another_model_is_an_error_at_once(saved, make_session):
    other = make_session(global_step=np.int64(0), kernel=np.zeros(3))
    with pytest.raises(ValueError, match="kernel, weights") as error:
        restore_latest(Saver(), other, saved)
    (note,) = error.value.__notes__
    assert f"while restoring checkpoint {saved / 'model.ckpt-30'}" in note


def test_one_that_was_removed_for_a_newer_one_gives_way_to_that(tmp_path, at_step):
    chief = Saver(max_to_keep=1)
    chief.save(at_step(5), tmp_path / "model.ckpt", global_step=5)

    class LateSaver(Saver):
        def restore(self, sess, save_path):
            if Path(save_path).name == "model.ckpt-5":
                chief.save(at_step(6), tmp_path / "model.ckpt", global_step=6)
            super().restore(sess, save_path)

    sess = at_step(0)
    assert restore_latest(LateSaver(), sess, tmp_path) == str(tmp_path / "model.ckpt-6")
    assert sess.global_step == 6


def test_one_that_is_removed_while_it_is_read_is_not_damaged(saved, at_step, caplog, monkeypatch):
    os_open = os.open

    def late(path, *args, **kwargs):
        if path == saved / "model.ckpt-30" / "checkpoint.safetensors":
            shutil.rmtree(path.parent)
        return os_open(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", late)
    assert restore_latest(Saver(), at_step(0), saved) == str(saved / "model.ckpt-20")
    assert caplog.records == []


@pytest.fixture
def refuse(monkeypatch):
    """Makes a call of the system fail for all that is in a folder."""

    def refuse(call, folder, number):
        real = getattr(os, call)

        def refused(path, *args, **kwargs):
            if isinstance(path, Path) and path.parent == folder:
                raise OSError(number, os.strerror(number), str(path))
            return real(path, *args, **kwargs)

        monkeypatch.setattr(os, call, refused)

    return refuse


@pytest.mark.parametrize("name", ["lost+found", "model.ckpt-5", "model.ckpt-99"])
def test_a_folder_that_cannot_be_looked_into_stops_nobody(saved, at_step, refuse, name):
    (saved / name).mkdir()
    refuse("lstat", saved / name, errno.EACCES)
    assert latest_checkpoint(saved) == str(saved / "model.ckpt-30")
    assert restore_latest(Saver(), at_step(0), saved) == str(saved / "model.ckpt-30")
    Saver().save(at_step(40), saved / "model.ckpt", global_step=40)
    assert latest_checkpoint(saved) == str(saved / "model.ckpt-40")


@pytest.mark.parametrize("call", ["lstat", "open"])
@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_one_that_cannot_be_read_is_skipped_with_one_warning(
    saved, at_step, refuse, caplog, call, number
):
    refuse(call, saved / "model.ckpt-30", number)
    assert restore_latest(Saver(), at_step(0), saved) == str(saved / "model.ckpt-20")
    (record,) = caplog.records
    assert f"{saved / 'model.ckpt-30'}" in record.message
    assert os.strerror(number) in record.message


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_what_fails_for_another_reason_is_not_damage(saved, at_step, refuse, number):
    refuse("open", saved / "model.ckpt-30", number)
    with pytest.raises(OSError, match=os.strerror(number)):
        restore_latest(Saver(), at_step(0), saved)


def test_a_directory_whose_entries_cannot_be_looked_at_is_an_error(saved, at_step, monkeypatch):
    def refused(path, *args, **kwargs):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    with monkeypatch.context() as patch:  # it may be listed, but not entered
        patch.setattr(os, "lstat", refused)
        with pytest.raises(OSError, match="Permission denied"):
            restore_latest(Saver(), at_step(0), saved)
