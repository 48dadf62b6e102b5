from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runhooks.checkpoint import Saver, latest_checkpoint, restore_latest
from runhooks.errors import DataLossError

AtStep = Callable[[int], Any]


@pytest.fixture
def saved(tmp_path: Path, at_step: AtStep) -> Path:
    """A directory with the checkpoints of the steps 10, 20 and 30."""
    for step in (10, 20, 30):
        Saver().save(at_step(step), tmp_path / "model.ckpt", global_step=step)
    return tmp_path


def truncate(path: Path) -> None:
    os.truncate(path / "checkpoint.safetensors", 20)


def test_restores_the_newest(saved: Path, at_step: AtStep) -> None:
    sess = at_step(0)
    assert restore_latest(Saver(), sess, saved) == str(saved / "model.ckpt-30")
    assert sess.global_step == 30
    np.testing.assert_array_equal(sess.arrays["weights"], np.full(8, 30, np.float32))


def test_nothing_to_restore(tmp_path: Path, at_step: AtStep) -> None:
    assert restore_latest(Saver(), at_step(0), tmp_path) is None
    assert restore_latest(Saver(), at_step(0), tmp_path / "absent") is None


def test_the_damaged_one_is_replaced_when_its_step_comes_again(
    saved: Path, at_step: AtStep
) -> None:
    truncate(saved / "model.ckpt-30")
    Saver().save(at_step(30), saved / "model.ckpt", global_step=30)
    assert restore_latest(Saver(), at_step(0), saved) == str(saved / "model.ckpt-30")


def test_all_damaged_is_an_error(saved: Path, at_step: AtStep) -> None:
    for path in list(saved.iterdir()):
        truncate(path)
    sess = at_step(0)
    with pytest.raises(DataLossError, match="none of the 3 checkpoints") as error:
        restore_latest(Saver(), sess, saved)
    assert error.value.path == str(saved)
    assert sess.global_step == 0


def test_another_model_is_an_error_at_once(saved: Path, make_session: Callable[..., Any]) -> None:
    other = make_session(global_step=np.int64(0), kernel=np.zeros(3))
    with pytest.raises(ValueError, match="kernel, weights") as error:
        restore_latest(Saver(), other, saved)
    (note,) = error.value.__notes__
    assert f"while restoring checkpoint {saved / 'model.ckpt-30'}" in note


def test_one_that_was_removed_for_a_newer_one_gives_way_to_that(
    tmp_path: Path, at_step: AtStep
) -> None:
    chief = Saver(max_to_keep=1)
    chief.save(at_step(5), tmp_path / "model.ckpt", global_step=5)

    class LateSaver(Saver):
        def restore(self, sess: Any, save_path: Any) -> None:
            if Path(save_path).name == "model.ckpt-5":
                chief.save(at_step(6), tmp_path / "model.ckpt", global_step=6)
            super().restore(sess, save_path)

    sess = at_step(0)
    assert restore_latest(LateSaver(), sess, tmp_path) == str(tmp_path / "model.ckpt-6")
    assert sess.global_step == 6


def test_one_that_is_removed_while_it_is_read_is_not_damaged(
    saved: Path, at_step: AtStep, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    os_open = os.open

    def late(path: Any, *args: Any, **kwargs: Any) -> int:
        if path == saved / "model.ckpt-30" / "checkpoint.safetensors":
            shutil.rmtree(path.parent)
        return os_open(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", late)
    assert restore_latest(Saver(), at_step(0), saved) == str(saved / "model.ckpt-20")
    assert caplog.records == []


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes a call of the system fail for all that is in a folder."""

    def refuse(call: str, folder: Path, number: int) -> None:
        real = getattr(os, call)

        def refused(path: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(path, Path) and path.parent == folder:
                raise OSError(number, os.strerror(number), str(path))
            return real(path, *args, **kwargs)

        monkeypatch.setattr(os, call, refused)

    return refuse


@pytest.mark.parametrize("name", ["lost+found", "model.ckpt-5", "model.ckpt-99"])
def test_a_folder_that_cannot_be_looked_into_stops_nobody(
    saved: Path, at_step: AtStep, refuse: Callable[..., None], name: str
) -> None:
    (saved / name).mkdir()
    refuse("lstat", saved / name, errno.EACCES)
    assert latest_checkpoint(saved) == str(saved / "model.ckpt-30")
    assert restore_latest(Saver(), at_step(0), saved) == str(saved / "model.ckpt-30")
    Saver().save(at_step(40), saved / "model.ckpt", global_step=40)
    assert latest_checkpoint(saved) == str(saved / "model.ckpt-40")


@pytest.mark.parametrize("call", ["lstat", "open"])
@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_one_that_cannot_be_read_is_skipped_with_one_warning(
    saved: Path,
    at_step: AtStep,
    refuse: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
    call: str,
    number: int,
) -> None:
    refuse(call, saved / "model.ckpt-30", number)
    assert restore_latest(Saver(), at_step(0), saved) == str(saved / "model.ckpt-20")
    (record,) = caplog.records
    assert f"{saved / 'model.ckpt-30'}" in record.message
    assert os.strerror(number) in record.message


def test_a_disk_that_fails_while_it_is_read_is_damage(
    saved: Path, at_step: AtStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(io.FileIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", Failing)
        with pytest.raises(
            DataLossError, match=r"checkpoint\.safetensors.* Input/output error"
        ) as error:
            Saver().restore(at_step(0), saved / "model.ckpt-30")
    assert isinstance(error.value.__cause__, OSError)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_what_fails_for_another_reason_is_not_damage(
    saved: Path, at_step: AtStep, refuse: Callable[..., None], number: int
) -> None:
    refuse("open", saved / "model.ckpt-30", number)
    with pytest.raises(OSError, match=os.strerror(number)):
        restore_latest(Saver(), at_step(0), saved)


def test_a_directory_whose_entries_cannot_be_looked_at_is_an_error(
    saved: Path, at_step: AtStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Any, *args: Any, **kwargs: Any) -> Any:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    with monkeypatch.context() as patch:  # it may be listed, but not entered
        patch.setattr(os, "lstat", refused)
        with pytest.raises(OSError, match="Permission denied"):
            restore_latest(Saver(), at_step(0), saved)
