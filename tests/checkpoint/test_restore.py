from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runhooks.checkpoint import Saver, restore_latest
from runhooks.errors import DataLossError

AtStep = Callable[[int], Any]


@pytest.fixture
def saved(tmp_path: Path, at_step: AtStep) -> Path:
    """A directory with the checkpoints of the steps 10, 20 and 30."""
    for step in (10, 20, 30):
        Saver().save(at_step(step), tmp_path / "model.ckpt", global_step=step)
    return tmp_path


def truncate(path: Path) -> None:
    os.truncate(path / "variables.safetensors", 20)


def flip(path: Path) -> None:
    data = bytearray((path / "variables.safetensors").read_bytes())
    data[-1] ^= 1
    (path / "variables.safetensors").write_bytes(data)


def lose_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()


def test_restores_the_newest(saved: Path, at_step: AtStep) -> None:
    sess = at_step(0)
    assert restore_latest(Saver(), sess, saved) == str(saved / "model.ckpt-30")
    assert sess.global_step == 30


def test_nothing_to_restore(tmp_path: Path, at_step: AtStep) -> None:
    assert restore_latest(Saver(), at_step(0), tmp_path) is None
    assert restore_latest(Saver(), at_step(0), tmp_path / "absent") is None


@pytest.mark.parametrize("damage", [truncate, flip, lose_manifest])
def test_a_damaged_one_is_skipped_with_one_warning(
    saved: Path,
    at_step: AtStep,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], None],
) -> None:
    damage(saved / "model.ckpt-30")
    sess = at_step(0)
    assert restore_latest(Saver(), sess, saved) == str(saved / "model.ckpt-20")
    assert sess.global_step == 20
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"checkpoint {saved / 'model.ckpt-30'} is damaged: " in record.message


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
    with pytest.raises(DataLossError, match=r"none of the 3 checkpoints in .* is sound") as error:
        restore_latest(Saver(), sess, saved)
    assert error.value.path == str(saved)
    assert sess.global_step == 0


def test_another_model_is_an_error_at_once(saved: Path, make_session: Callable[..., Any]) -> None:
    other = make_session(global_step=np.int64(0), kernel=np.zeros(3))
    with pytest.raises(ValueError, match="kernel, weights") as error:
        restore_latest(Saver(), other, saved)
    (note,) = error.value.__notes__
    assert f"while restoring checkpoint {saved / 'model.ckpt-30'}" in note
    assert "another directory" in note


def test_one_that_was_removed_meanwhile_is_passed_over(
    saved: Path, at_step: AtStep, caplog: pytest.LogCaptureFixture
) -> None:
    class LateSaver(Saver):
        def restore(self, sess: Any, save_path: Any) -> None:
            if Path(save_path).name == "model.ckpt-30":
                shutil.rmtree(save_path)
            super().restore(sess, save_path)

    assert restore_latest(LateSaver(), at_step(0), saved) == str(saved / "model.ckpt-20")
    assert caplog.records == []


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
    read_bytes = Path.read_bytes

    def late(self: Path) -> bytes:
        if self == saved / "model.ckpt-30" / "variables.safetensors":
            shutil.rmtree(self.parent)
        return read_bytes(self)

    monkeypatch.setattr(Path, "read_bytes", late)
    assert restore_latest(Saver(), at_step(0), saved) == str(saved / "model.ckpt-20")
    assert caplog.records == []


def test_no_step_is_saved_with_another_steps_values(saved: Path, at_step: AtStep) -> None:
    sess = at_step(0)
    restore_latest(Saver(), sess, saved)
    np.testing.assert_array_equal(sess.arrays["weights"], np.full(8, 30, np.float32))
